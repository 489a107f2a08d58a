"""Fixtures of the avatar process's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, which aiortc needs."""
    return "asyncio"
