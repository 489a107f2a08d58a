"""A WebRTC server for talking avatars."""

__version__ = "0.1.0"
