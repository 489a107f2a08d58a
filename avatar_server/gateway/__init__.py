"""The HTTP side: pages, signalling, the registry of sessions, supervision."""
