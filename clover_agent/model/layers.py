"""The small row-wise layers: normalisations, rotary embedding, SwiGLU.

Everything here maps rows to rows and knows nothing of sequences. Numerics follow transformers' `Qwen3_5Moe` text model
(5.24): norms and the rotary angles in float32, or in float64 where the model runs in it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def at_least_float32(x: Tensor) -> Tensor:
    """`x` itself in float32 and float64, else a float32 copy."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class RMSNorm(nn.Module):
    """Zero-centred: y = x / rms(x) * (1 + weight). x: [..., size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        return functional.rms_norm(wide, (x.shape[-1],), 1 + self.weight.to(wide.dtype), self.eps).to(x.dtype)


class GatedRMSNorm(nn.Module):
    """y = x / rms(x) * weight * silu(gate); the weight is plain. x, gate: [..., size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = at_least_float32(x)
        normed = self.weight * functional.rms_norm(wide, (x.shape[-1],), None, self.eps).to(x.dtype)
        return (normed * functional.silu(gate.to(wide.dtype))).to(x.dtype)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)). x: [..., hidden]."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rotary_angles(positions: Tensor, rotary_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each [rows, 1, rotary_dim], for integer `positions` [rows]; ready to broadcast over heads."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=positions.device) / rotary_dim
    angles = positions.to(wide)[:, None] * (1.0 / theta**exponents).to(wide)
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first `cos.shape[-1]` dimensions of x [rows, heads, head_dim], halves paired."""
    size = cos.shape[-1]
    turning, rest = x[..., :size], x[..., size:]
    left, right = turning.chunk(2, dim=-1)
    turned = turning * cos + torch.cat((-right, left), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned
