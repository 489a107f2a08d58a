"""The array types of this package."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A float32 array. NumPy's and OpenCV's type stubs widen it in every operation, so the element
type is left open here instead of being cast back on every line."""
