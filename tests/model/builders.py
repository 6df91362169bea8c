"""Tiny checkpoints with random weights, for the tests of the native model."""

from typing import Any

import torch

from clover_agent.model.config import ModelConfig
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import DenseLogits, Work
from clover_agent.model.state import NativeState
from clover_agent.model.transformer import HybridTransformer

BASE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 4,
    "intermediate_size": 48,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "eos_token_id": 1,
}
MOE: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 12,
}
CLOVER: dict[str, Any] = {"mask_token_id": 3, "block_size": 8}
MASK = CLOVER["mask_token_id"]


def raw_config(*, clover: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {**BASE, **changes, "clover": {**CLOVER, **(clover or {})}}


def randomise(module: torch.nn.Module, seed: int = 0) -> None:
    """Noise on every parameter, norms included: fresh norms would hide a wrong one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
            parameter.add_(noise.to(parameter.dtype))


def tiny_model(
    raw: dict[str, Any] | None = None, *, dtype: torch.dtype = torch.float64, seed: int = 0, **clover: Any
) -> NativeModel:
    torch.manual_seed(seed)
    transformer = HybridTransformer(ModelConfig.from_dict(raw_config(clover=clover) if raw is None else raw))
    transformer.initialise()
    randomise(transformer, seed)
    return NativeModel(transformer.to(dtype))


def advanced(model: NativeModel, ids: list[int]) -> NativeState:
    """A fresh state advanced by `ids` in one piece."""
    state = model.new_state()
    model.forward([Work(state, ids)])
    return state


def block_logits(model: NativeModel, *works: Work) -> torch.Tensor:
    """Logits of all block rows of one forward, [rows, vocab_size]."""
    hidden = model.forward(works)
    logits = model.logits(hidden, range(hidden.rows))
    assert isinstance(logits, DenseLogits)
    return logits.values
