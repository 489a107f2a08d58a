"""An avatar that is recorded does not say that nothing is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from avatar_server.avatars import AvatarSpec, VoiceSpec, load_avatar
from avatar_server.paths import assets_dir

SHIPPED = sorted(file.parent.name for file in (assets_dir() / "avatars").glob("*/avatar.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_asked_whether_it_is_recorded_a_shipped_avatar_says_the_truth(name: str) -> None:
    avatar = load_avatar(assets_dir() / "avatars" / name)
    for spec, answer in ((avatar, "No sound is kept"), (avatar.when_recorded(), "Yes, this")):
        (fact,) = [fact for fact in spec.facts if fact.startswith("Is my voice recorded?")]
        assert answer in fact
    assert len(avatar.when_recorded().facts) == len(avatar.facts)


def test_facts_of_a_recorded_talk_come_besides_or_in_place_of_others(tmp_path: Path) -> None:
    spec = AvatarSpec(
        name="mia", title="Mia", voice=VoiceSpec(name="any"), folder=tmp_path,
        facts=["Is it recorded? No.", "The sky is blue."],
        recorded_facts=["is it recorded? Yes.", "Who can hear it? My doctor."],
    ).when_recorded()  # fmt: skip
    assert spec.facts == [
        "The sky is blue.",
        "is it recorded? Yes.",
        "Who can hear it? My doctor.",
    ]
