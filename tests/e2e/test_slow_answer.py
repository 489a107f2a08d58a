"""A real server whose language model is slow: the avatar says that it thinks, and then answers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from avatar_server.config import TtsSettings
from avatar_server.inference.tts import build_synthesizer
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import Utterance, spoken
from avatar_server.loadtest.viewer import SyntheticViewer
from avatar_server.models import ModelStore
from avatar_server.protocol import events
from tests.e2e.test_conversation import seen, settled

DELAY_S = 5.0
ANSWER = "They dream of deep blue water."
QUESTIONS = ["Which colour do the whales dream of?", "And where do the penguins go to dance?"]


class SlowEndpoint(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint that thinks for `DELAY_S` about everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(DELAY_S)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        piece = json.dumps({"choices": [{"delta": {"content": ANSWER}}]})
        self.wfile.write(f"data: {piece}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def lines(model_store: ModelStore) -> list[Utterance]:
    synthesizer = build_synthesizer(model_store, TtsSettings(engine="piper"), 1)
    return spoken(synthesizer, QUESTIONS, synthesizer.voices()[0])


@pytest.fixture(scope="module")
def server(model_store: ModelStore) -> Iterator[ServerProcess]:
    endpoint = ThreadingHTTPServer(("127.0.0.1", 0), SlowEndpoint)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    values = {
        "llm.engine": "openai",
        "llm.model": "slow",
        "llm.base_url": f"http://127.0.0.1:{endpoint.server_port}/v1",
        "llm.small_talk": "false",
        "llm.fact_threshold": "1.0",
    }
    sets = [text for pair in values.items() for text in ("--set", "=".join(pair))]
    with ServerProcess(sets) as running:
        yield running
    endpoint.shutdown()
    endpoint.server_close()


def test_the_wait_for_a_slow_answer_is_covered_once_and_the_answer_follows(
    server: ServerProcess, lines: list[Utterance]
) -> None:
    async def talk() -> None:
        async with SyntheticViewer(server.url, avatar="theo") as viewer:
            await settled(viewer)
            # The remarks are made while nobody talks.
            await asyncio.sleep(3.0)
            for line in lines:
                started, _ = viewer.microphone.say(line.pcm)
                ended = started + line.voiced_end
                done = await viewer.wait_for(events.TurnDone, since=started, timeout_s=40)
                assert done.acknowledged_ms is not None
                assert done.voice_to_voice_ms is not None
                assert done.acknowledged_ms < DELAY_S * 1e3 < done.voice_to_voice_ms
                assert done.overran == "llm"
                first = viewer.received.first_audible_after(started + 0.25)
                assert first is not None
                assert first - ended < DELAY_S
                captions = seen(viewer, events.Caption, started)
                remarks = {c.text for c in captions if c.clause < 0}
                assert len(remarks) == 1
                assert captions[-1].text == ANSWER
                await settled(viewer)

    asyncio.run(asyncio.wait_for(talk(), 150))
