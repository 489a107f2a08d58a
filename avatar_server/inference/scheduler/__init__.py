"""Who is served next: pure logic under an injected clock.

The inference process, the tests and the simulator run this same code.
"""

from avatar_server.inference.scheduler.core import Scheduler
from avatar_server.inference.scheduler.costs import CostModel, Prior, StageCost
from avatar_server.inference.scheduler.jobs import Device, Engine, Job
from avatar_server.inference.scheduler.policies import POLICIES

__all__ = ["POLICIES", "CostModel", "Device", "Engine", "Job", "Prior", "Scheduler", "StageCost"]
