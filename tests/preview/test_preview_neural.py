"""A film of an avatar whose mouth a network draws from the film's own sound."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from avatar_server.inference.tts.whole import WholeClause
from avatar_server.preview.film import write_film
from avatar_server.preview.performance import performance
from avatar_server.preview.voice import Said, Speech
from renderers.neural import NeuralRenderer
from tests.renderers.neural.tiny_network import write_avatar

RATE = 48_000


def test_the_mouth_of_a_film_is_drawn_while_it_sounds(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).standard_normal(round(0.6 * RATE)) * 8_000
    pcm = np.concatenate([np.zeros(round(0.5 * RATE)), noise]).astype(np.int16)
    clause = WholeClause(pcm[round(0.5 * RATE) :], [], [], [])
    speech = Speech("Shh.", "a voice", pcm, [Said(0.5, clause, "Shh.")])
    renderer = NeuralRenderer(write_avatar(tmp_path / "tester"), width=640, height=360)
    renderer.hear(speech.sound)
    renderer.faces_here(device="cpu", fps=30)
    path = tmp_path / "film.mp4"
    moments = performance(speech, seconds=1.8, fps=30, seed=1)
    write_film(path, renderer, moments, speech.pcm, fps=30)
    renderer.close()
    blue = []
    with av.open(str(path)) as film:
        for frame in film.decode(film.streams.video[0]):
            u = np.frombuffer(frame.planes[1], np.uint8).reshape(-1, frame.planes[1].line_size)
            at = float(frame.pts * frame.time_base)
            blue.append((at, float(u[100:125, 145:175].mean()) > 140))
    drawn = [at for at, there in blue if there]
    assert 0.25 < drawn[0] < 0.5
    assert 1.0 < drawn[-1] < 1.25
    assert len(drawn) >= 18
