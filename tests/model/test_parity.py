"""Weight for weight, the causal mode is transformers' Qwen3.5 text model."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig, Qwen3_5TextConfig
from transformers.cache_utils import DynamicCache

from clover_agent.model.native import NativeModel, load_native
from clover_agent.model.protocol import Work
from clover_agent.model.ragged import RaggedPass, Span
from clover_agent.model.weights import save_native

from .builders import BASE, CLOVER, MOE, block_logits, randomise

LINEAR, FULL = "linear_attention", "full_attention"
CONFIGS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense, untied, biased": {"tie_word_embeddings": False, "attention_bias": True},
    "dense, one key head for all": {"num_key_value_heads": 1, "linear_num_key_heads": 4, "head_dim": 16},
    "dense, three to one": {"layer_types": [LINEAR] * 3 + [FULL], "linear_conv_kernel_dim": 2},
    "dense, attention first": {"layer_types": [FULL, LINEAR], "num_hidden_layers": 2, "linear_value_head_dim": 12},
    "experts": MOE,
    "experts, all of them": {**MOE, "num_experts": 3, "num_experts_per_tok": 3, "tie_word_embeddings": False},
    "experts, three to one": {**MOE, "layer_types": [LINEAR] * 3 + [FULL], "rms_norm_eps": 1e-5},
}
TOLERANCE = 1e-4


def pair(changes: dict[str, Any], tmp_path: Path) -> tuple[Any, NativeModel]:
    """Transformers' model with random weights, and ours, loaded from its tensors."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    raw = {**BASE, **changes}
    # The sections of the multimodal rotary embedding do not matter for text; their sum must fit.
    rotary = {**raw["rope_parameters"], "mrope_section": [2, 1, 1]}
    settings = {**raw, "rope_parameters": rotary, "pad_token_id": None}
    torch.manual_seed(1)
    if "num_experts" in changes:
        theirs: Any = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**settings))
    else:
        theirs = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**settings))
    randomise(theirs)
    names = {name.removeprefix("model."): tensor for name, tensor in theirs.state_dict().items()}
    if raw["tie_word_embeddings"]:
        del names["lm_head.weight"]
    save_native(tmp_path, {**raw, "clover": {**CLOVER, "logits_shift": 1, "gdn_in_block": "causal"}}, names)
    return theirs.eval().requires_grad_(False), load_native(tmp_path)


def prefill_logits(model: NativeModel, ids: list[int]) -> Tensor:
    """Logits at every position of a prefill; the public protocol gives those of blocks only."""
    state = model.new_state()
    state.reserve(len(ids))
    layout = RaggedPass(model.config, [Span(0, state, ids, 0)], [], torch.device("cpu"))
    transformer = model.transformer
    return transformer.head(transformer(transformer.embed_tokens(layout.ids), layout))


# The name of the argument changed in 5.24; 5.19 knows only the old one.
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS.keys())
def test_logits_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs, ours = pair(changes, tmp_path)
    ids = torch.randint(4, 61, (75,), generator=torch.Generator().manual_seed(2)).tolist()
    expected = theirs(torch.tensor([ids])).logits[0]
    assert expected.std() > 0.1
    assert (prefill_logits(ours, ids) - expected).abs().max() < TOLERANCE

    # Cached: a prefill of 40 tokens, then token by token. With logits_shift 1 the first row of a block is the output
    # of the last committed token.
    cache = DynamicCache(config=theirs.config)
    state = ours.new_state()
    for piece in (ids[:40], *([token] for token in ids[40:])):
        expected = theirs(torch.tensor([piece]), past_key_values=cache, use_cache=True).logits[0, -1]
        found = block_logits(ours, Work(state, piece, [3]))[0]
        assert (found - expected).abs().max() < TOLERANCE
