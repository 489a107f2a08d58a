"""Who is served next: pure logic under an injected clock, driven by the workers' threads."""

from avatar_server.inference.scheduler.queue import Job, ResourceQueue, Urgency

__all__ = ["Job", "ResourceQueue", "Urgency"]
