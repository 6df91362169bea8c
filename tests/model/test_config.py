from typing import Any

import pytest

from clover_agent.errors import LoadFailed
from clover_agent.model.config import ModelConfig

from .builders import BASE, CLOVER, MOE, raw_config


def test_reads_sizes_and_switches() -> None:
    config = ModelConfig.from_dict(raw_config(clover={"gdn_in_block": "causal", "logits_shift": 1}))
    assert config.layer_types == ("linear_attention", "full_attention") * 2
    assert (config.rotary_dim, config.key_dim, config.value_dim) == (4, 16, 16)
    assert (config.gdn_in_block, config.logits_shift, config.commit_attention) == ("causal", 1, "causal")
    assert (config.mask_token_id, config.block_size, config.end_token_ids) == (3, 8, (1,))


def test_every_fourth_layer_is_attention_unless_told_otherwise() -> None:
    raw = {**BASE, "num_hidden_layers": 8, "clover": CLOVER}
    del raw["layer_types"]
    attention = [i for i, kind in enumerate(ModelConfig.from_dict(raw).layer_types) if kind == "full_attention"]
    assert attention == [3, 7]
    every_second = ModelConfig.from_dict({**raw, "full_attention_interval": 2})
    assert every_second.layer_types.count("full_attention") == 4


def test_a_multimodal_config_is_read_through_its_text_config() -> None:
    nested = {"model_type": "qwen3_5_moe", "text_config": {**BASE, **MOE}, "clover": CLOVER}
    assert ModelConfig.from_dict(nested) == ModelConfig.from_dict({**BASE, **MOE, "clover": CLOVER})


def test_rotary_facts_of_the_top_level_are_read_too() -> None:
    raw = raw_config(rope_theta=5e5, partial_rotary_factor=0.25)
    del raw["rope_parameters"]
    config = ModelConfig.from_dict(raw)
    assert (config.rope_theta, config.rotary_dim) == (5e5, 2)


def test_several_end_tokens() -> None:
    assert ModelConfig.from_dict(raw_config(eos_token_id=[1, 2])).end_token_ids == (1, 2)
    assert ModelConfig.from_dict(raw_config(eos_token_id=None)).end_token_ids == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"vocab_size": 1 << 40}, "vocab_size"),
        ({"vocab_size": "61"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 3}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 3 + ["mamba"]}, "layer_types"),
        ({"layer_types": None, "full_attention_interval": 0}, "full_attention_interval"),
        ({"num_key_value_heads": 3}, "num_attention_heads"),
        ({"linear_num_key_heads": 3}, "linear_num_value_heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"eos_token_id": 61}, "61"),
        ({"eos_token_id": "1"}, "eos_token_id"),
        ({"eos_token_id": 3}, "mask and end"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"num_experts": 4}, "num_experts_per_tok"),
        ({**MOE, "num_experts_per_tok": 7}, "num_experts_per_tok"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {"rope_theta": "10000"}}, "rope_theta"),
        ({"rope_parameters": {"partial_rotary_factor": 0.4}}, "partial_rotary_factor"),
        ({"clover": {}}, "mask_token_id"),
        ({"clover": []}, "clover"),
        ({"clover": {**CLOVER, "block_size": 0}}, "block_size"),
        ({"clover": {**CLOVER, "gdn_in_block": "both"}}, "gdn_in_block"),
        ({"clover": {**CLOVER, "commit_attention": None}}, "commit_attention"),
        ({"clover": {**CLOVER, "logits_shift": 2}}, "logits_shift"),
        ({"clover": {**CLOVER, "logits_shift": True}}, "logits_shift"),
        ({"clover": {**CLOVER, "block_alignment": "left"}}, "block_alignment"),
    ],
)
def test_a_bad_value_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(LoadFailed, match=field):
        ModelConfig.from_dict({**raw_config(), **change})


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"])
def test_a_missing_size_is_named(field: str) -> None:
    raw = raw_config()
    del raw[field]
    with pytest.raises(LoadFailed, match=field):
        ModelConfig.from_dict(raw)
