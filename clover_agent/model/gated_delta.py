"""The Gated DeltaNet layer: projections, short convolution, gated delta rule, gated norm.

Works on rows like the attention layer; `scan` and `read` want them gathered into sequences of equal length. What a
sequence brings along is its recurrent state and the last raw inputs of the convolution.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .delta_rule import CHUNK, ScanInputs, delta_scan, read_block
from .layers import GatedRMSNorm, at_least_float32


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """qkv: raw convolution input [..., 2 key_dim + value_dim]; beta (write strength) and log_decay: [..., heads]."""

    qkv: Tensor
    beta: Tensor
    log_decay: Tensor


class GatedDeltaNet(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.key_heads, self.heads = config.linear_num_key_heads, config.linear_num_value_heads
        self.key_dim, self.value_dim = config.linear_key_head_dim, config.linear_value_head_dim
        width = 2 * config.key_dim + config.value_dim
        self.in_proj_qkv = nn.Linear(config.hidden_size, width, bias=False)
        self.in_proj_z = nn.Linear(config.hidden_size, config.value_dim, bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, self.heads, bias=False)
        self.in_proj_a = nn.Linear(config.hidden_size, self.heads, bias=False)
        self.conv1d = nn.Conv1d(width, width, config.linear_conv_kernel_dim, groups=width, bias=False)
        self.dt_bias = nn.Parameter(torch.empty(self.heads))
        self.A_log = nn.Parameter(torch.empty(self.heads))
        self.norm = GatedRMSNorm(self.value_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(config.value_dim, config.hidden_size, bias=False)
        self.reset_decay()

    def reset_decay(self) -> None:
        """Decay rates in [0.01, 16] at time steps log-uniform in [0.001, 0.1], as Mamba-2 and Gated DeltaNet start."""
        with torch.no_grad():
            self.A_log.uniform_(0.01, 16).log_()
            step = torch.empty_like(self.dt_bias).uniform_(math.log(0.001), math.log(0.1)).exp()
            self.dt_bias.copy_(step + (-(-step).expm1()).log())

    def project(self, x: Tensor) -> tuple[DeltaRows, Tensor]:
        """Rows of x [rows, hidden] and the gate [rows, heads * value_dim] that `finish` wants back."""
        step = at_least_float32(self.in_proj_a(x)) + self.dt_bias
        log_decay = -at_least_float32(self.A_log).exp() * functional.softplus(step)
        return DeltaRows(self.in_proj_qkv(x), torch.sigmoid(self.in_proj_b(x)), log_decay), self.in_proj_z(x)

    def scan(self, rows: DeltaRows, tail: Tensor, state: Tensor | None, *, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
        """Rows gathered into sequences [batch, length, ...] -> outputs [batch, length, heads * value_dim] and the
        states at the chunk boundaries, see `delta_scan`.

        tail: raw inputs before the sequence, [batch, kernel - 1, width], zeros at a sequence's start.
        """
        out, states = delta_scan(self._inputs(rows, tail), state, chunk=chunk)
        return out.reshape(*rows.qkv.shape[:2], -1).to(rows.qkv.dtype), states

    def read(self, rows: DeltaRows, tail: Tensor, state: Tensor, *, both_ways: bool) -> Tensor:
        """The outputs of `scan` over blocks that change nothing, see `read_block`."""
        out = read_block(self._inputs(rows, tail), state, both_ways=both_ways)
        return out.reshape(*rows.qkv.shape[:2], -1).to(rows.qkv.dtype)

    def finish(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """mixed, gate: [rows, heads * value_dim] -> [rows, hidden]."""
        shape = (*mixed.shape[:-1], self.heads, self.value_dim)
        out: Tensor = self.out_proj(self.norm(mixed.view(shape), gate.view(shape)).flatten(-2))
        return out

    def _inputs(self, rows: DeltaRows, tail: Tensor) -> ScanInputs:
        batch, length, _ = rows.qkv.shape
        mixed = at_least_float32(self._convolve(rows.qkv, tail))
        keys = self.key_heads * self.key_dim
        q, k, v = mixed.split_with_sizes((keys, keys, self.heads * self.value_dim), dim=-1)
        return ScanInputs(
            q=_unit(q.view(batch, length, self.key_heads, self.key_dim)) * self.key_dim**-0.5,
            k=_unit(k.view(batch, length, self.key_heads, self.key_dim)),
            v=v.view(batch, length, self.heads, self.value_dim),
            log_decay=rows.log_decay,
            beta=rows.beta.to(mixed.dtype),
        )

    def _convolve(self, qkv: Tensor, tail: Tensor) -> Tensor:
        """Causal depth-wise convolution and silu: a sum of shifted products, which a CPU does faster than conv1d."""
        length, taps = qkv.shape[1], self.conv1d.weight[:, 0].unbind(-1)
        padded = torch.cat((tail, qkv), dim=1)
        out = padded[:, :length] * taps[0]
        for i, tap in enumerate(taps[1:], start=1):
            out = torch.addcmul(out, padded[:, i : i + length], tap)
        return functional.silu(out)


def _unit(x: Tensor) -> Tensor:
    """Unit length over the last dimension (eps 1e-6, as the Flash Linear Attention kernels have it)."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
