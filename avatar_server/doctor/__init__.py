"""`avatar-server doctor`: what is here, what follows from it, and how to mend what is wrong."""

from avatar_server.doctor.check import Check, failed, guarded, passed
from avatar_server.doctor.examine import Diagnosis, examine

__all__ = ["Check", "Diagnosis", "examine", "failed", "guarded", "passed"]
