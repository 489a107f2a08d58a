"""Recordings of sessions: written in the avatar process, kept and given out by the gateway."""
