"""Sprout's architecture: the `config.json` it is trained with unless the training data brings its own."""

import json
from pathlib import Path
from typing import Any

from clover_agent.errors import LoadFailed

from .twins import read_tokenizer


def sprout_config(*, vocab_size: int, mask_token_id: int, pad_token_id: int, end_token_id: int) -> dict[str, Any]:
    """1.4 M parameters at a vocabulary of 4096: Gated DeltaNet and gated attention in turn, dense, tied head."""
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "eos_token_id": end_token_id,
        "pad_token_id": pad_token_id,
        "clover": {
            "mask_token_id": mask_token_id,
            "block_size": 32,
            "gdn_in_block": "bidirectional",
            "commit_attention": "causal",
            "logits_shift": 0,
            "block_alignment": "response",
            "tool_format": "hermes_json",
            "chat_template": "sprout",
        },
    }


def read_config(data: Path) -> dict[str, Any]:
    """The model's config.json: the one in `data`, or sprout's with the ids of the tokenizer there."""
    if (data / "config.json").exists():
        try:
            config: dict[str, Any] = json.loads((data / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise LoadFailed(f"{data / 'config.json'}: {error}") from error
        return config
    tokenizer = read_tokenizer(data / "tokenizer.json")
    ids = {token["content"]: token["id"] for token in tokenizer.get("added_tokens", [])}
    try:
        return sprout_config(
            vocab_size=max(*ids.values(), *tokenizer["model"]["vocab"].values()) + 1,
            mask_token_id=ids["<|mask|>"],
            pad_token_id=ids["<|endoftext|>"],
            end_token_id=ids["<|im_end|>"],
        )
    except KeyError as error:
        raise LoadFailed(f"{data / 'tokenizer.json'}: has no token {error}") from error
