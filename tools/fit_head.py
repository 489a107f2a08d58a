"""Fit the router's head on the shipped data, and write `assets/router/head.npz`.

    python tools/fit_head.py

A minute of one core, and 4 GB. With `--held-out en-train-travel "ja-train 6"` it is fitted without
these topics, and tells how often it is right about them; name another file with `--out` then.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from avatar_server.eval.router import eval_router
from avatar_server.inference.llm.retrieval import SentenceEncoder
from avatar_server.inference.llm.router import EmbeddingRouter, load_examples, storage
from avatar_server.inference.llm.router.fitting import fit_head, topic
from avatar_server.paths import assets_dir

DATA = assets_dir() / "eval" / "routing-train.jsonl"


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parse.add_argument("--out", type=Path, default=assets_dir() / "router" / "head.npz")
    parse.add_argument("--held-out", nargs="*", default=[])
    given = parse.parse_args()
    rows = load_examples(DATA)
    if missing := set(given.held_out) - {topic(row) for row in rows}:
        parse.error(f"no rows are of {sorted(missing)}; topics: {sorted(set(map(topic, rows)))}")
    encoder = SentenceEncoder()
    head = fit_head(encoder, [row for row in rows if topic(row) not in given.held_out])
    storage.save(head, given.out, storage.fingerprint(DATA.read_text(encoding="utf-8")))
    if held := [row for row in rows if topic(row) in given.held_out]:
        figures = eval_router(held, {"head": EmbeddingRouter(encoder, head)})["head"]
        print(
            f"of {len(held)} held out, the head alone is right on {figures['accuracy']:.1%}; "
            f"on continuations {figures['continuation_accuracy']:.1%}"
        )


if __name__ == "__main__":
    main()
