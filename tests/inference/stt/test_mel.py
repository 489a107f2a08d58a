"""Log-mel features."""

from __future__ import annotations

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from avatar_server.inference.stt.mel import MelExtractor


@pytest.mark.parametrize("bands", [80, 128])
def test_features_are_those_of_the_reference(bands: int) -> None:
    rng = np.random.default_rng(0)
    samples = (rng.normal(0, 0.1, 16_000) * np.linspace(0, 1, 16_000)).astype(np.float32)
    wanted = FeatureExtractor(feature_size=bands)(samples, padding=0)
    found = MelExtractor(bands)(samples)
    assert found.shape == (bands, 100)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_a_tone_is_loudest_in_its_band() -> None:
    samples = np.sin(2 * np.pi * 1_000 * np.arange(16_000) / 16_000).astype(np.float32)
    loudest = MelExtractor(80)(samples)[:, 50].argmax()
    # Slaney's scale puts 1 kHz at mel 15 of 45.2, band 26 of 80.
    assert abs(int(loudest) - 26) <= 1


@pytest.mark.parametrize("count", [0, 1, 100, 159, 160, 200, 201])
def test_very_short_sound_has_features_too(count: int) -> None:
    features = MelExtractor(80)(np.ones(count, dtype=np.float32))
    assert features.shape == (80, count // 160)
    assert np.isfinite(features).all()
