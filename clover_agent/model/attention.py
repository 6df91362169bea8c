"""Gated full attention with grouped heads: its projections, and the attention itself.

The layer works on rows and is blind to which row belongs to which sequence; whoever lays out a pass
(`transformer.Pass`) calls `attend` once it has brought the right queries and keys together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .layers import RMSNorm, rotate


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """q: [rows, heads, head_dim]; k, v: [rows, kv_heads, head_dim]; q and k are normalised and rotated."""

    q: Tensor
    k: Tensor
    v: Tensor


class GatedAttention(nn.Module):
    """Query, key and value per row; output gated by sigmoid(gate). `q_proj` holds [query | gate] head by head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, queries * 2, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[AttentionRows, Tensor]:
        """Heads of x [rows, hidden] and the gate [rows, heads * head_dim] that `finish` wants back."""
        rows = x.shape[0]
        query, gate = self.q_proj(x).view(rows, -1, 2 * self.head_dim).chunk(2, dim=-1)
        key = self.k_proj(x).view(rows, -1, self.head_dim)
        value = self.v_proj(x).view(rows, -1, self.head_dim)
        query, key = rotate(self.q_norm(query), cos, sin), rotate(self.k_norm(key), cos, sin)
        return AttentionRows(query, key, value), gate.reshape(rows, -1)

    def finish(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """mixed: [rows, heads * head_dim] -> [rows, hidden]."""
        out: Tensor = self.o_proj(mixed * torch.sigmoid(gate))
        return out


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v with grouped heads.

    q: [batch, heads, n, head_dim]; k, v: [batch, kv_heads, length, head_dim]; mask: [(batch, 1,) n, length], bool and
    true where visible, or float and added; `causal` wants n == length and no mask. Returns [batch, heads, n, head_dim].

    Without a mask the queries that share a key head are laid one after another: one product reads each key once.
    """
    batch, heads, n, size = q.shape
    groups = heads // k.shape[1]
    if causal or mask is not None:
        grouped = groups > 1
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    out = functional.scaled_dot_product_attention(q.reshape(batch, k.shape[1], groups * n, size), k, v)
    return out.view(batch, heads, n, size)
