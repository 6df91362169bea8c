"""The hybrid decoder: embedding, layers of Gated DeltaNet or gated attention, norm, head.

It sees one flat list of rows. How rows form sequences, what they may look at and which state they start from is decided
by the `Pass` that comes along: cached inference and training each bring their own. Parameter names are those of
transformers' `Qwen3_5Moe` / `Qwen3_5` text model without the leading `model.`.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from .attention import AttentionRows, GatedAttention
from .config import LayerType, ModelConfig
from .gated_delta import DeltaRows, GatedDeltaNet
from .layers import RMSNorm, SwiGLU, rotary_angles
from .moe import Experts, Router, SparseMoe


class Pass(Protocol):
    """The layout of one forward pass: what only the whole pass knows about its rows."""

    @property
    def positions(self) -> Tensor:
        """int64 [rows]: the place of each row in its sequence."""

    def attend(self, layer: int, rows: AttentionRows) -> Tensor:
        """Attention of layer `layer` over all rows: [rows, heads * head_dim]."""

    def mix(self, layer: int, mixer: GatedDeltaNet, rows: DeltaRows) -> Tensor:
        """Gated delta rule of layer `layer` over all rows: [rows, heads * value_dim]."""


class DecoderLayer(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x)). Holds `linear_attn` or `self_attn`."""

    def __init__(self, config: ModelConfig, kind: LayerType) -> None:
        super().__init__()
        self.linear_attn = GatedDeltaNet(config) if kind == "linear_attention" else None
        self.self_attn = GatedAttention(config) if kind == "full_attention" else None
        self.mlp = SparseMoe(config) if config.num_experts else SwiGLU(config.hidden_size, config.intermediate_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, index: int, angles: tuple[Tensor, Tensor], layout: Pass) -> Tensor:
        normed = self.input_layernorm(x)
        if self.linear_attn is not None:
            delta, gate = self.linear_attn.project(normed)
            x = x + self.linear_attn.finish(layout.mix(index, self.linear_attn, delta), gate)
        elif self.self_attn is not None:
            heads, gate = self.self_attn.project(normed, *angles)
            x = x + self.self_attn.finish(layout.attend(index, heads), gate)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class HybridTransformer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, kind) for kind in config.layer_types)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        tied = config.tie_word_embeddings
        self.lm_head = None if tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, x: Tensor, layout: Pass) -> Tensor:
        """Embedded rows [rows, hidden] -> rows after the last norm [rows, hidden]."""
        angles = rotary_angles(layout.positions, self.config.rotary_dim, self.config.rope_theta, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, index, angles, layout)
        out: Tensor = self.norm(x)
        return out

    @property
    def head_weight(self) -> Tensor:
        """[vocab_size, hidden]: the head's matrix, the embedding itself where they are tied."""
        return self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def head(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.head_weight)

    @torch.no_grad()
    def initialise(self) -> None:
        """Fresh weights: normal matrices of `initializer_range`, norms at one, decays as the layer resets them."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d):
                bound = 0.5 if isinstance(module, nn.Conv1d) else 0.0
                if bound:
                    module.weight.uniform_(-bound, bound)
                else:
                    module.weight.normal_(std=self.config.initializer_range)
            elif isinstance(module, Router | Experts):
                for weight in module.parameters():
                    weight.normal_(std=self.config.initializer_range)
            elif isinstance(module, GatedDeltaNet):
                module.reset_decay()
