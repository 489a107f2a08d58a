"""The one library that CTranslate2 needs on a GPU and does not bring."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

_LIBRARIES = ("libcublasLt.so.12", "libcublas.so.12")


def load_cublas() -> None:
    """Load cuBLAS 12 from its Python package, where the system has none.

    CTranslate2 looks for it by name when it first multiplies, long after loading; a library that
    is loaded already is found by its name. PyTorch may have brought another major version, which
    does not help. Without any, CTranslate2's own error names the library.
    """
    try:
        ctypes.CDLL(_LIBRARIES[-1], mode=ctypes.RTLD_GLOBAL)
        return
    except OSError:
        pass
    for folder in _package_folders():
        if all((folder / name).is_file() for name in _LIBRARIES):
            for name in _LIBRARIES:
                ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
            return


def _package_folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations or []) if spec is not None else []
    return [Path(place) / "cublas" / "lib" for place in places]
