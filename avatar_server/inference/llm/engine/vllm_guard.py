"""No engine of vLLM's outlives the process that started it.

vLLM runs its engine in a child process, which does not notice when its parent is killed: it goes
on holding the GPU's memory, so that the next start fails (vLLM issues 19849 and 55510). This is a
plugin (entry point `vllm.general_plugins`), which vLLM loads in each of its processes.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading

MARK = "AVATAR_SERVER_VLLM"
"""Environment variable: set for engines of ours. Others that share the installation are none
of our business."""


def guard() -> None:
    """End this process when its parent ends, however it does."""
    parent = multiprocessing.parent_process()
    if parent is None or not os.environ.get(MARK):
        return
    threading.Thread(
        target=_end_with, args=(parent.sentinel,), name="end-with-parent", daemon=True
    ).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    # Nothing is left to finish, and nobody to tell: the GPU's memory is wanted back at once.
    os._exit(1)
