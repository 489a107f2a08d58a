"""A small random model of the product's own class, made on the spot: nothing is fetched.

It says nothing that makes sense, but goes through the same kernels, cache and scheduling as
`Qwen/Qwen3.6-35B-A3B-FP8`: gated delta-net layers, full attention and a mixture of experts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% else %}{{ '<think>\\n' }}{% endif %}{% endif %}"
)
"""As the real one in what matters here: thinking is on unless it is switched off."""
TEXT = (
    "The quick brown fox jumps over the lazy dog. You are a helpful assistant, and you like "
    "short answers. What is the capital of France? It is Paris. Turn on the light, please. "
    "One two three four five six seven eight nine ten. "
)


def make_tokenizer(folder: Path) -> dict[str, int]:
    """A byte-level BPE with ChatML's tokens; returns their ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": list(SPECIAL[1:]),
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return {name: tokenizer.token_to_id(name) for name in SPECIAL} | {
        "size": tokenizer.get_vocab_size()
    }


def make_model(folder: Path, seed: int = 7) -> Path:
    """Config, weights and tokenizer in `folder`, which is made; some seconds."""
    import torch
    from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    ids = make_tokenizer(folder)
    text: dict[str, Any] = {
        "vocab_size": ids["size"],
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        # A block of the cache holds as many tokens of attention as fit into one state of a linear
        # layer. Wide attention and few linear heads make it 128, so that short prompts hit, too.
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 128,
        # The kernels are written for this size only.
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "max_position_embeddings": 4096,
        # Wide enough for outputs that differ from each other.
        "initializer_range": 0.3,
        "eos_token_id": ids["<|im_end|>"],
        "bos_token_id": None,
        "pad_token_id": ids["<|endoftext|>"],
    }
    vision: dict[str, Any] = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
    }
    config = Qwen3_5MoeConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = Qwen3_5MoeForConditionalGeneration(config).to(torch.bfloat16)
    with torch.no_grad():
        # Ends no reply by itself, so that tests decide how long one is.
        model.lm_head.weight[ids["<|im_end|>"]] = 0
    model.save_pretrained(folder)
    return folder
