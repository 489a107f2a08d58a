"""A GGUF model's weights in the form that llama.cpp multiplies fastest on a CPU.

Its kernels for whole batches (reading a prompt) know Q8_0 and not Q4_1. The same weights as Q8_0
take half as much memory again and are read 1.6 to 1.8 times, and written 1.3 times, as fast
(SmolLM2 135M, one thread, AVX2; `docs/figures.md`). Q8_0 is finer than what it is made of, so the
model stays what it was.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

from avatar_server.paths import cache_dir

log = logging.getLogger(__name__)

EDITION = 1
"""To be raised when the way copies are made changes: older ones are then not used."""
LARGEST_BYTES = 512 << 20
"""Of a file that is copied: the copy of a larger one would take memory that nobody gave."""


def quick_copy(model: Path, folder: Path | None = None) -> Path:
    """A copy of `model` with its Q4_1 matrices as Q8_0, made once and kept in the cache.

    `model` itself where it has none, is larger than `LARGEST_BYTES`, or no copy can be made: it
    works as well, only slower. Takes some 3 s the first time, and blocks.
    """
    try:
        status = model.stat()
        if not model.is_file() or status.st_size > LARGEST_BYTES:
            return model
        seen = f"{model.resolve()}:{status.st_size}:{status.st_mtime_ns}:{EDITION}"
        key = hashlib.sha256(seen.encode()).hexdigest()[:16]
        copy = (folder or cache_dir() / "llm") / f"{model.stem}-{key}" / model.name
        if copy.is_file():
            return copy
        return _make(model, copy)
    except OSError as error:
        log.warning("no quicker copy of %s: %s", model, error)
    except Exception as error:  # the reader raises what it meets in a file it does not understand
        log.warning("no quicker copy of %s, it is not understood: %s", model, error)
    return model


def _make(model: Path, copy: Path) -> Path:
    from gguf import GGMLQuantizationType, GGUFReader

    reader = GGUFReader(model)
    if not any(t.tensor_type == GGMLQuantizationType.Q4_1 for t in reader.tensors):
        return model
    log.info("writing %s's weights in the form that is quickest on a CPU, once", model.stem)
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial = copy.with_suffix(f".{os.getpid()}.partial")
    try:
        _write(reader, partial)
        partial.replace(copy)
    finally:
        partial.unlink(missing_ok=True)
    return copy


def _write(reader: Any, path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants

    slow, quick = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
    writer = GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    try:
        for name, field in reader.fields.items():
            # The file's own form, which the writer says anew.
            if name.startswith("GGUF.") or name in ("general.architecture", "general.alignment"):
                continue
            if field.types[0] == GGUFValueType.ARRAY:
                writer.add_array(name, field.contents())
            else:
                writer.add_key_value(name, field.contents(), field.types[0])
        for tensor in reader.tensors:
            data, kind = tensor.data, tensor.tensor_type
            if kind == slow:
                data, kind = quants.quantize(quants.dequantize(data, slow), quick), quick
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
