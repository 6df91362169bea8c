"""Mixture of experts: softmax router, top-k of it, fused expert weights, a shared expert behind a sigmoid gate.

Numerics and parameter names of transformers' `Qwen3_5MoeSparseMoeBlock`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .layers import SwiGLU, at_least_float32


class Router(nn.Module):
    """Each row's experts and their weights: softmax over all experts in float32, the top k of it, renormalised."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.weight = nn.Parameter(torch.zeros(config.num_experts, config.hidden_size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: [rows, hidden] -> weights in x's dtype and int64 expert ids, both [rows, top_k]."""
        probabilities = at_least_float32(functional.linear(x, self.weight)).softmax(dim=-1)
        weights, experts = probabilities.topk(self.top_k, dim=-1)
        return (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype), experts


class Experts(nn.Module):
    """SwiGLU experts: gate_up_proj [experts, 2 * intermediate, hidden], down_proj [experts, hidden, intermediate]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        count, size = config.num_experts, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * size, config.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(count, config.hidden_size, size))

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """x: [rows, hidden]; weights, experts: [rows, top_k] -> [rows, hidden]. Rows are sorted by expert, so each
        expert's weights are read once."""
        rows, top_k = experts.shape
        order = experts.flatten().argsort(stable=True)
        counts = experts.flatten().bincount(minlength=self.gate_up_proj.shape[0])
        gate, up = _grouped(x[order // top_k], self.gate_up_proj, counts).chunk(2, dim=-1)
        out = _grouped(functional.silu(gate) * up, self.down_proj, counts) * weights.flatten()[order, None]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return out[back].view(rows, top_k, -1).sum(dim=1)


def _grouped(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Rows of x [n, in], sorted by expert with `counts` rows each, times their expert's weight [experts, out, in]."""
    if _kernel_takes(x, weight):
        product: Tensor = functional.grouped_mm(x, weight.mT, offs=counts.cumsum(0).to(torch.int32))
        return product
    parts = torch.split(x, counts.tolist())
    return torch.cat([functional.linear(part, weight[i]) for i, part in enumerate(parts) if len(part)])


def _kernel_takes(x: Tensor, weight: Tensor) -> bool:
    """The grouped product of torch takes no float64, and only rows of whole 16 bytes."""
    return x.dtype != torch.float64 and all(size * x.element_size() % 16 == 0 for size in weight.shape[1:])


class SparseMoe(nn.Module):
    """experts(x) + sigmoid(shared_expert_gate(x)) * shared_expert(x). x: [rows, hidden]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config)
        self.shared_expert = SwiGLU(config.hidden_size, config.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        shared: Tensor = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        routed: Tensor = self.experts(x, *self.gate(x))
        return routed + shared
