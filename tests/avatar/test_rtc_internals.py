"""The versions of aiortc whose private parts are relied on."""

from __future__ import annotations

import pytest

from avatar_server.avatar.rtc_internals import UnsupportedAiortcError, require_supported_aiortc


def test_the_installed_version_is_supported() -> None:
    require_supported_aiortc()


@pytest.mark.parametrize("version", ["1.14.0", "1.17.0", "2.0.0"])
def test_another_version_is_refused_in_words(version: str) -> None:
    with pytest.raises(UnsupportedAiortcError, match=r"constraints\.txt"):
        require_supported_aiortc(version)
