"""`python -m avatar_server.models NAME…` prints the path of each model, fetching what is missing.

Without a name: all models of the default configuration.
"""

from __future__ import annotations

import sys

from avatar_server.config import load_settings
from avatar_server.models import ModelError, ModelStore, RichProgress, default_models


def main(names: list[str]) -> int:
    """Exit code: 0 all are here, 1 one cannot be had."""
    store = ModelStore()
    try:
        with RichProgress() as progress:
            paths = store.ensure(names or default_models(load_settings()), progress)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    for path in paths.values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
