"""This process's place among others: OS priority, threads, memory."""

from __future__ import annotations

import logging
import os
import sys

from avatar_server.config import InferenceSettings

log = logging.getLogger(__name__)

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def bound_threads(threads: int) -> None:
    """Have numeric libraries start `threads` threads each; to be called before their import.

    Left alone each starts one per core, and they collapse under each other's load.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def lower_priority(settings: InferenceSettings) -> None:
    """Step back behind the processes that owe 30 frames a second.

    Threads started afterwards inherit it, so this comes before the models' libraries.
    """
    if settings.nice:
        try:
            os.nice(settings.nice)
        except OSError as error:
            log.warning("cannot lower the priority: %s", error)
    if sys.platform == "linux" and settings.sched != "normal":
        policy = os.SCHED_IDLE if settings.sched == "idle" else os.SCHED_BATCH
        try:
            os.sched_setscheduler(0, policy, os.sched_param(0))
        except OSError as error:
            log.warning("cannot change the scheduling class: %s", error)


def rss_bytes() -> int:
    """Resident memory now; on systems without /proc, the most there has been."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
