"""Fixtures shared by all tests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from avatar_server.models import FetchError, ModelStore

# The environment of the GPU engines' tests has no hypothesis, and needs none.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    # A test says what is right, not how fast: the machine may have other work.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


class SkippingStore(ModelStore):
    """The user's own model store; a model that cannot be fetched skips the test.

    In continuous integration (`CI` is set) it fails the test instead, so that tests with real
    models cannot silently stop running.
    """

    def path(self, name: str, progress: Any = None) -> Path:
        try:
            return super().path(name, progress)
        except FetchError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))


@pytest.fixture(scope="session")
def model_store() -> ModelStore:
    """Real models: `model_store.path("whisper-tiny.en")`."""
    return SkippingStore()
