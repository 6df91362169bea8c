"""What a checkpoint is: the sizes and switches of the hybrid family, read from a `config.json` and checked.

The names are those of transformers' `Qwen3_5MoeTextConfig` / `Qwen3_5TextConfig`; what block diffusion adds stands in a
`"clover"` section. Knows nothing of tensors and files of weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clover_agent.errors import LoadFailed

LayerType = Literal["linear_attention", "full_attention"]
GdnInBlock = Literal["causal", "bidirectional"]
CommitAttention = Literal["causal", "block"]
BlockAlignment = Literal["response", "absolute"]

# Bounds that no real checkpoint reaches: beyond them the file is damaged or hostile, and allocating may hang the host.
LIMITS: Mapping[str, tuple[int, int]] = {
    "vocab_size": (2, 1 << 22),
    "hidden_size": (1, 1 << 16),
    "num_hidden_layers": (1, 1024),
    "num_attention_heads": (1, 1024),
    "num_key_value_heads": (1, 1024),
    "head_dim": (2, 4096),
    "linear_num_key_heads": (1, 1024),
    "linear_num_value_heads": (1, 1024),
    "linear_key_head_dim": (1, 4096),
    "linear_value_head_dim": (1, 4096),
    "linear_conv_kernel_dim": (1, 64),
    "intermediate_size": (1, 1 << 20),
    "num_experts": (0, 4096),
    "num_experts_per_tok": (1, 4096),
    "moe_intermediate_size": (1, 1 << 20),
    "shared_expert_intermediate_size": (1, 1 << 20),
    "max_position_embeddings": (1, 1 << 24),
    "block_size": (1, 4096),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A checked configuration, sizes as in transformers; `num_experts == 0`: a dense SwiGLU of `intermediate_size`.

    rotary_dim         leading dimensions of a head that carry the rotary embedding (partial rotary)
    end_token_ids      `eos_token_id`, always a tuple
    gdn_in_block       within a block that is denoised: forward scan only, or forward + reverse scan, outputs summed
    commit_attention   within a block that is committed: causal, or every position sees the whole block
    logits_shift       0 = the output at a position predicts that position's token, 1 = the next one's
    block_alignment    where blocks start, see `ModelSpec`
    """

    vocab_size: int
    hidden_size: int
    layer_types: tuple[LayerType, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int
    rms_norm_eps: float
    attention_bias: bool
    tie_word_embeddings: bool
    initializer_range: float
    max_position_embeddings: int
    end_token_ids: tuple[int, ...]
    mask_token_id: int
    block_size: int
    gdn_in_block: GdnInBlock
    commit_attention: CommitAttention
    logits_shift: int
    block_alignment: BlockAlignment

    @property
    def key_dim(self) -> int:
        """Width of the queries, and of the keys, of a Gated DeltaNet layer."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "ModelConfig":
        """Read a `config.json`; a multimodal one is read through its `text_config`.

        Raises `LoadFailed` naming the field when a value is missing, of the wrong type, out of bounds or not supported.
        """
        return _Reader(raw).config()


class _Reader:
    """Takes values out of one config.json. Every method raises `LoadFailed` with the field's name."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        text = raw.get("text_config")
        self.raw: Mapping[str, Any] = {**raw, **text} if isinstance(text, Mapping) else raw
        clover = self.raw.get("clover", {})
        if not isinstance(clover, Mapping):
            raise LoadFailed(f"config.json: clover must be an object, not {clover!r}")
        self.clover: Mapping[str, Any] = clover

    def config(self) -> ModelConfig:
        heads = self.integer("num_attention_heads")
        hidden = self.integer("hidden_size")
        head_dim = self.integer("head_dim", default=max(2, hidden // heads))
        experts = self.integer("num_experts", default=0)
        rope = self.rope()
        config = ModelConfig(
            vocab_size=self.integer("vocab_size"),
            hidden_size=hidden,
            layer_types=self.layer_types(),
            num_attention_heads=heads,
            num_key_value_heads=self.integer("num_key_value_heads"),
            head_dim=head_dim,
            rotary_dim=int(head_dim * rope["partial_rotary_factor"]),
            rope_theta=rope["rope_theta"],
            linear_num_key_heads=self.integer("linear_num_key_heads", default=16),
            linear_num_value_heads=self.integer("linear_num_value_heads", default=32),
            linear_key_head_dim=self.integer("linear_key_head_dim", default=128),
            linear_value_head_dim=self.integer("linear_value_head_dim", default=128),
            linear_conv_kernel_dim=self.integer("linear_conv_kernel_dim", default=4),
            intermediate_size=self.integer("intermediate_size", default=1 if experts else None),
            num_experts=experts,
            num_experts_per_tok=self.integer("num_experts_per_tok", default=None if experts else 1),
            moe_intermediate_size=self.integer("moe_intermediate_size", default=None if experts else 1),
            shared_expert_intermediate_size=self.integer(
                "shared_expert_intermediate_size", default=None if experts else 1
            ),
            rms_norm_eps=self.positive("rms_norm_eps", 1e-6),
            attention_bias=self.flag("attention_bias"),
            tie_word_embeddings=self.flag("tie_word_embeddings"),
            initializer_range=self.positive("initializer_range", 0.02),
            max_position_embeddings=self.integer("max_position_embeddings", default=32768),
            end_token_ids=self.end_token_ids(),
            mask_token_id=self.mask_token_id(),
            block_size=self.integer("block_size", default=32, source=self.clover),
            gdn_in_block=self.choice("gdn_in_block", get_args(GdnInBlock), "bidirectional"),
            commit_attention=self.choice("commit_attention", get_args(CommitAttention), "causal"),
            logits_shift=self.choice("logits_shift", (0, 1), 0),
            block_alignment=self.choice("block_alignment", get_args(BlockAlignment), "response"),
        )
        _check(config, self.raw)
        return config

    def integer(self, name: str, *, default: int | None = None, source: Mapping[str, Any] | None = None) -> int:
        """An integer within `LIMITS`; without a default the field is required."""
        value = (self.raw if source is None else source).get(name)
        if value is None:
            value = default
        if value is None:
            raise LoadFailed(f"config.json: {name} is missing")
        low, high = LIMITS[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise LoadFailed(f"config.json: {name} must be an integer from {low} to {high}, not {value!r}")
        return value

    def positive(self, name: str, default: float) -> float:
        value = self.raw.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise LoadFailed(f"config.json: {name} must be a positive number, not {value!r}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.raw.get(name, False)
        if not isinstance(value, bool):
            raise LoadFailed(f"config.json: {name} must be true or false, not {value!r}")
        return value

    def choice(self, name: str, choices: tuple[Any, ...], default: Any) -> Any:
        value = self.clover.get(name, default)
        if isinstance(value, bool) or value not in choices:
            raise LoadFailed(f"config.json: clover.{name} must be one of {list(choices)}, not {value!r}")
        return value

    def layer_types(self) -> tuple[LayerType, ...]:
        layers = self.integer("num_hidden_layers")
        types = self.raw.get("layer_types")
        if types is None:
            interval = self.raw.get("full_attention_interval", 4)
            if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
                raise LoadFailed(f"config.json: full_attention_interval must be a positive integer, not {interval!r}")
            types = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
        if not isinstance(types, list | tuple) or len(types) != layers:
            raise LoadFailed(f"config.json: layer_types must list {layers} layers (num_hidden_layers), not {types!r}")
        for kind in types:
            if kind not in get_args(LayerType):
                raise LoadFailed(f"config.json: layer_types may hold {list(get_args(LayerType))}, not {kind!r}")
        return tuple(types)

    def rope(self) -> dict[str, float]:
        """Rotary facts in either of transformers' spellings (`rope_parameters`, or fields of the top level)."""
        nested = self.raw.get("rope_parameters") or self.raw.get("rope_scaling") or {}
        if not isinstance(nested, Mapping):
            raise LoadFailed(f"config.json: rope_parameters must be an object, not {nested!r}")
        kind = nested.get("rope_type", nested.get("type", "default"))
        if kind != "default":
            raise LoadFailed(f"config.json: rope_type {kind!r} is not supported (only 'default')")
        found: dict[str, float] = {}
        for name, default in (("rope_theta", 10_000.0), ("partial_rotary_factor", 0.25)):
            value = nested.get(name, self.raw.get(name, default))
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise LoadFailed(f"config.json: {name} must be a positive number, not {value!r}")
            found[name] = float(value)
        return found

    def end_token_ids(self) -> tuple[int, ...]:
        value = self.raw.get("eos_token_id")
        ids = value if isinstance(value, list | tuple) else [] if value is None else [value]
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int):
                raise LoadFailed(f"config.json: eos_token_id must be an integer or a list of them, not {value!r}")
        return tuple(ids)

    def mask_token_id(self) -> int:
        value = self.clover.get("mask_token_id", self.raw.get("mask_token_id"))
        if isinstance(value, bool) or not isinstance(value, int):
            raise LoadFailed(f"config.json: clover.mask_token_id must be a token id, not {value!r}")
        return value


def _check(config: ModelConfig, raw: Mapping[str, Any]) -> None:
    """What holds between fields."""
    if raw.get("hidden_act", "silu") != "silu":
        raise LoadFailed(f"config.json: hidden_act {raw['hidden_act']!r} is not supported (only 'silu')")
    for token in (config.mask_token_id, *config.end_token_ids):
        if not 0 <= token < config.vocab_size:
            raise LoadFailed(f"config.json: token id {token} is outside the vocabulary of {config.vocab_size}")
    if config.mask_token_id in config.end_token_ids:
        raise LoadFailed(f"config.json: token id {config.mask_token_id} cannot be both mask and end token")
    for many, few in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        if getattr(config, many) % getattr(config, few):
            raise LoadFailed(f"config.json: {many} must be a multiple of {few}")
    if config.rotary_dim < 2 or config.rotary_dim % 2 or config.rotary_dim > config.head_dim:
        raise LoadFailed(
            f"config.json: partial_rotary_factor gives {config.rotary_dim} rotary dimensions of {config.head_dim}; "
            "it must give an even number from 2 to head_dim"
        )
    if config.num_experts and config.num_experts_per_tok > config.num_experts:
        raise LoadFailed("config.json: num_experts_per_tok must not exceed num_experts")
