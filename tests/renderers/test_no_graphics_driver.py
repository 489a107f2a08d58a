from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AVATARS = Path(__file__).parents[2] / "assets" / "avatars"

PROGRAM = """
import ctypes, sys
from pathlib import Path

HIDDEN = ("libEGL", "libGL.", "libGLX", "libOpenGL", "libGLES", "libvulkan")
real = ctypes.CDLL.__init__

def guarded(self, name, *rest, **named):
    if name and any(hidden in str(name) for hidden in HIDDEN):
        raise OSError(f"{name}: hidden by the test")
    real(self, name, *rest, **named)

ctypes.CDLL.__init__ = guarded

from renderers.contract import I420Frame, Pose
from renderers.puppet import PuppetRenderer

renderer = PuppetRenderer(Path(sys.argv[1]))
frame = I420Frame.empty(*renderer.size)
renderer.draw(Pose(yaw=5.0, jaw=0.5), frame)
assert frame.y.std() > 10
maps = Path("/proc/self/maps")
if maps.exists():
    loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "/" in line}
    graphics = [path for path in loaded if any(hidden in path for hidden in HIDDEN)]
    assert not graphics, graphics
print("drawn")
"""


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in AVATARS.glob("*/rig.yaml")), ids=lambda path: path.name
)
def test_faces_are_drawn_without_any_graphics_driver(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,  # loading takes seconds; the limit is for a hang
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "drawn"
