"""`avatar-server bench render`: what drawing a frame costs in CPU time, for each avatar.

Each avatar idles, listens and speaks sentences of the product's own voice, moved by the animator
that moves it in a session. Every frame is encoded after it was drawn, as in a session, so that
drawing does not find its memory in the processor's cache. Times are CPU times of the thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from avatar_server.avatar.clip import rms_per_10_ms
from avatar_server.avatar.encoder import FrameRing, H264Encoder
from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import AvatarSpec
from avatar_server.capacity.machine import this_machine
from avatar_server.config import TtsSettings, VideoSettings
from avatar_server.inference.tts import Synthesizer
from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ
from avatar_server.inference.tts.whole import whole_clause
from renderers import Attitude, Pose, Renderer, VisemeSpan
from renderers.motion import Animator
from renderers.neural import NeuralRenderer, PictureFaces
from renderers.sound import recorded

SENTENCES = (
    "Hello there, it is very good to see you again this morning.",
    "A few people asked me how the weather might change before the weekend.",
    "My voice and my face are made on this computer, one frame after another.",
    "Could you give me a moment to think about that?",
    "Five brave foxes jumped over both of the thick wooden fences.",
    "You should try the blueberry pie, which is baked with cinnamon and cloves.",
    "Oh, who would have thought that the old clock in the tower chimes at noon?",
    "The ship was moved by soft winds through a narrow channel near the shore.",
    "We measure each job, choose the cheapest way, and keep the rest for later.",
    "Thank you for waiting; that was quite a question.",
    "Please bring both maps, a warm blanket, and something to drink.",
    "Yes, I believe that they live in the yellow house beyond the bridge.",
)
_WARM_S = 1.0
"""Before measuring: the first frames fill caches and draw all of the picture."""
_ATTITUDES = (Attitude.IDLE, Attitude.LISTENING, Attitude.SPEAKING)
_REFERENCE_FRAMES = 40


class Spoken(NamedTuple):
    """A sentence as the animator takes it: its length (s), mouth movements and loudness; and its
    sound (int16, mono, 48 kHz) for faces that are drawn from that."""

    seconds: float
    visemes: list[VisemeSpan]
    energy: NDArray[np.float32]
    pcm: NDArray[np.int16] = np.zeros(0, np.int16)


def speak(synthesizer: Synthesizer, sentences: Sequence[str] = SENTENCES) -> list[Spoken]:
    """`sentences` in the synthesizer's first voice."""
    spoken = []
    for text in sentences:
        said = whole_clause(synthesizer.synthesize(text, synthesizer.voices()[0], 1.0, "en"))
        energy = rms_per_10_ms(said.pcm[: len(said.pcm) // 480 * 480])
        spoken.append(Spoken(said.seconds, said.visemes, energy, said.pcm))
    return spoken


def bench_render(
    avatars: Mapping[str, AvatarSpec],
    video: VideoSettings,
    *,
    seconds: float = 20.0,
    spoken: Sequence[Spoken] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure each of `avatars` and return the figures (CPU ms; `{"p50", "p95"}`).

    - `avatars` {NAME: {`idle_ms`, `listening_ms`, `speaking_ms`}}: moving and drawing one frame
      while it does that; `seconds` of idling and listening each. `speaking_ms` is taken from the
      first word that a newly loaded renderer says, over the frames in which the mouth moves.
    - `reference_ms`: what PyAV takes to turn a picture of this size from RGB into I420, the same
      work everywhere, by which figures of two machines can be compared.
    - `cpu`, `width`, `height`, `speech_s`.

    `spoken`: what is said; without it the sentences are synthesised. Raises `AvatarError` where an
    avatar cannot be drawn, `TtsError` where there is no voice.
    """
    spoken = _synthesised() if spoken is None else spoken
    figures: dict[str, Any] = {}
    for name, spec in avatars.items():
        progress(f"{name}: {len(spoken)} sentences")
        figures[name] = _measure(spec, video, spoken, seconds)
    return {
        "cpu": this_machine().cpu,
        "width": video.width,
        "height": video.height,
        "speech_s": round(sum(each.seconds for each in spoken), 1),
        "reference_ms": _quantiles(_reference(video)),
        "avatars": figures,
    }


def print_table(figures: Mapping[str, Any]) -> None:
    """The figures for a person."""
    title = f"Drawing a frame of {figures['width']}x{figures['height']} (CPU ms, p50 / p95)"
    table = Table("avatar", "idle", "listening", "speaking", title=title)
    for name, costs in figures["avatars"].items():
        cells = [costs[key] for key in ("idle_ms", "listening_ms", "speaking_ms")]
        table.add_row(name, *(f"{cell['p50']:.2f} / {cell['p95']:.2f}" for cell in cells))
    console = Console(highlight=False)
    console.print(table)
    reference = figures["reference_ms"]["p50"]
    console.print(f"{figures['cpu']}: RGB to I420 of such a picture takes {reference:.2f} ms")


def _synthesised() -> list[Spoken]:
    from avatar_server.inference.tts import build_synthesizer
    from avatar_server.models import ModelStore

    return speak(build_synthesizer(ModelStore(), TtsSettings(engine="piper"), 1))


def _measure(
    spec: AvatarSpec, video: VideoSettings, spoken: Sequence[Spoken], seconds: float
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for attitude in _ATTITUDES:
        # Loaded anew: a session's first words are drawn by a renderer that has drawn no others.
        renderer = load_renderer(spec, video.width, video.height)
        animator = Animator(seed=spec.seed)
        animator.set_attitude(attitude, 0.0)
        until = _WARM_S + seconds
        if attitude is Attitude.SPEAKING:
            until = _WARM_S
            for each in spoken:
                animator.add_speech(until, each.visemes, each.energy)
                until += each.seconds
            if isinstance(renderer, NeuralRenderer):
                # What the network itself takes is the inference process's.
                renderer.faces_from(PictureFaces(renderer.base), video.fps)
                quiet = np.zeros(round(_WARM_S * SAMPLE_RATE_HZ), np.int16)
                renderer.hear(recorded(np.concatenate([quiet, *(each.pcm for each in spoken)])))
        try:
            costs = _draw(renderer, animator, video, until, attitude is Attitude.SPEAKING)
        finally:
            renderer.close()
        figures[f"{attitude.value}_ms"] = _quantiles(costs)
    return figures


def _draw(
    renderer: Renderer, animator: Animator, video: VideoSettings, until: float, speaking: bool
) -> list[float]:
    """CPU time (ms) of each frame after the warm-up; of a speaker those in which it speaks."""
    ring, pose = FrameRing(video.width, video.height), Pose()
    encoder = H264Encoder(video)
    costs = []
    for index in range(round(until * video.fps)):
        at = index / video.fps
        began = time.thread_time()
        animator.pose(at, pose)
        changed = not renderer.draw(pose, ring.next).empty
        took = time.thread_time() - began
        if changed:
            ring.advance()
        encoder.encode(ring.last, index * 90_000 // video.fps, index == 0)
        if at >= _WARM_S and (not speaking or pose.visemes.any()):
            costs.append(1e3 * took)
    encoder.close()
    return costs


def _reference(video: VideoSettings) -> list[float]:
    rgb = np.random.default_rng(1).integers(0, 255, (video.height, video.width, 3), np.uint8)
    costs = []
    for _ in range(_REFERENCE_FRAMES):
        began = time.thread_time()
        VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="yuv420p")
        costs.append(1e3 * (time.thread_time() - began))
    return costs


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{at}": round(float(np.percentile(values, at)), 3) for at in (50, 95)}
