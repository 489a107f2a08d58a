"""Faces drawn by lip-sync networks, for all sessions together."""

from avatar_server.inference.faces.host import FaceCounts, FaceHost

__all__ = ["FaceCounts", "FaceHost"]
