"""Small random training data and models, for the tests of training."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from clover_agent.sprout.shards import Shards, pack, save_shards

CONFIG: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "intermediate_size": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
    "clover": {"mask_token_id": 3, "block_size": 8, "gdn_in_block": "bidirectional"},
}
END, MASK, BLOCK = 2, 3, 8


def random_shards(count: int, *, seed: int = 0, levels: int = 1) -> Shards:
    rng = np.random.default_rng(seed)

    def words(length: int) -> list[int]:
        found: list[int] = rng.integers(4, 40, length).tolist()
        return found

    return pack(
        (words(int(rng.integers(1, 40))), [*words(int(rng.integers(0, 20))), END], int(rng.integers(levels)))
        for _ in range(count)
    )


def data_directory(path: Path, shards: Shards) -> Path:
    save_shards(path, shards)
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path
