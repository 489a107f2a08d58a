"""What can go wrong with model files, in words."""

from __future__ import annotations


class ModelError(RuntimeError):
    """A model that cannot be had; the message says why and what to do."""


class UnknownModelError(ModelError):
    """A name that is neither in the catalogue nor a path."""


class FetchError(ModelError):
    """A source from which the model could not be fetched."""


class WrongContentError(FetchError):
    """Fetched files whose size or sha256 is not the catalogue's."""
