"""stub"""

from pathlib import Path
from typing import Any


def write_report(path: Path, figures: Any) -> None: ...
