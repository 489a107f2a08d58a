"""A small randomly initialised Kokoro of its real classes: noise for speech, real durations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from avatar_server.inference.tts.kokoro_alphabet import MAX_TOKENS, TOKEN_IDS

CONFIG: dict[str, Any] = {
    "dim_in": 64,
    "dropout": 0.0,
    # The class has this width written into its decoder.
    "hidden_dim": 512,
    "max_dur": 8,
    "multispeaker": True,
    "n_layer": 1,
    "n_mels": 80,
    "n_token": 178,
    # Half of a voice's 256 numbers; the model cuts its table there.
    "style_dim": 128,
    "text_encoder_kernel_size": 3,
    "istftnet": {
        # The rates decide how long a frame is (600 samples), so they are the real ones.
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]],
        "resblock_kernel_sizes": [3],
        "upsample_initial_channel": 512,
    },
    "plbert": {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": MAX_TOKENS + 2,
        "num_hidden_layers": 2,
        "dropout": 0.0,
    },
    "vocab": TOKEN_IDS,
}


def make_kokoro(folder: Path, seed: int = 3) -> Path:
    """`config.json`, weights as the package reads them, and two voices."""
    import torch

    from avatar_server.inference.tts.kokoro_torch import model_class

    torch.manual_seed(seed)
    (folder / "voices").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    weights = folder / "kokoro-tiny.pth"
    # The class loads weights whenever it is made: none at first, so that it starts at random.
    torch.save({}, weights)
    model = model_class()(repo_id="none", config=CONFIG, model=str(weights))
    parts = {name: part.state_dict() for name, part in model.named_children()}
    torch.save(parts, weights)
    for name in ("af_tiny", "bm_tiny", "zf_other"):
        torch.save(torch.randn(MAX_TOKENS, 1, 256), folder / "voices" / f"{name}.pt")
    return folder
