"""Model files: the catalogue of those the product knows, and the store that fetches them."""

from avatar_server.models.catalogue import CATALOGUE, default_models
from avatar_server.models.entries import ModelEntry
from avatar_server.models.errors import FetchError, ModelError, UnknownModelError, WrongContentError
from avatar_server.models.progress import Progress, RichProgress
from avatar_server.models.store import ModelStore

__all__ = [
    "CATALOGUE",
    "FetchError",
    "ModelEntry",
    "ModelError",
    "ModelStore",
    "Progress",
    "RichProgress",
    "UnknownModelError",
    "WrongContentError",
    "default_models",
]
