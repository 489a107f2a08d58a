"""Faces whose mouth a lip-sync network draws from the sound."""

from renderers.neural.base import Base
from renderers.neural.faces import Drawn, FaceSource, LocalFaces, PictureFaces
from renderers.neural.manifest import Manifest, NeuralError, load_manifest
from renderers.neural.network import FaceJob, LipSyncNetwork
from renderers.neural.renderer import NeuralRenderer

__all__ = [
    "Base",
    "Drawn",
    "FaceJob",
    "FaceSource",
    "LipSyncNetwork",
    "LocalFaces",
    "Manifest",
    "NeuralError",
    "NeuralRenderer",
    "PictureFaces",
    "load_manifest",
]
