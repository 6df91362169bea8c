import pytest
import torch
from torch.nn import functional

from clover_agent.model.config import ModelConfig
from clover_agent.model.moe import SparseMoe

from .builders import MOE, randomise, raw_config


def make(dtype: torch.dtype, **changes: int) -> SparseMoe:
    moe = SparseMoe(ModelConfig.from_dict(raw_config(**{**MOE, **changes})))
    torch.nn.init.zeros_(moe.experts.gate_up_proj)
    torch.nn.init.zeros_(moe.experts.down_proj)
    randomise(moe)
    return moe.to(dtype)


def one_by_one(moe: SparseMoe, x: torch.Tensor) -> torch.Tensor:
    """Every row alone, every chosen expert alone."""
    out = []
    for row in x:
        probabilities = (moe.gate.weight @ row).softmax(dim=-1)
        weights, experts = probabilities.topk(moe.gate.top_k)
        total = torch.sigmoid(moe.shared_expert_gate(row)) * moe.shared_expert(row)
        for weight, expert in zip(weights / weights.sum(), experts, strict=True):
            gate, up = (moe.experts.gate_up_proj[expert] @ row).chunk(2)
            total = total + weight * (moe.experts.down_proj[expert] @ (functional.silu(gate) * up))
        out.append(total)
    return torch.stack(out)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float64, 16), (torch.float32, 16), (torch.float32, 15)], ids=["loop", "grouped", "odd"]
)
def test_equals_each_row_alone(rows: int, dtype: torch.dtype, size: int) -> None:
    """Float64 and odd sizes take the plain path, the others torch's grouped product."""
    moe = make(dtype, moe_intermediate_size=size)
    x = torch.randn(rows, 32, dtype=dtype, generator=torch.Generator().manual_seed(rows))
    torch.testing.assert_close(moe(x), one_by_one(moe, x), rtol=1e-4, atol=1e-5)


def test_gradients_reach_router_and_experts() -> None:
    moe = make(torch.float64)
    moe(torch.randn(20, 32, dtype=torch.float64)).square().sum().backward()
    for name, parameter in moe.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
