"""What all tests with a whole server share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_refusals() -> Iterator[None]:
    """Servers of these tests take the sessions they are asked for, at full quality.

    Test machines are busy with other things: a server that refused a session for late frames, or
    saved on pictures, would do right, and the test would fail. Tests of admission and of overload
    ask for them with `--set`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AVATAR_SERVER_CAPACITY__ADMISSION", "fixed")
        patch.setenv("AVATAR_SERVER_CAPACITY__OVERLOAD__ENABLED", "false")
        yield
