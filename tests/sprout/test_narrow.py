import torch
from torch import nn

from clover_agent.sprout.narrow import NarrowLinear

X = torch.randn(5, 7, 48, generator=torch.Generator().manual_seed(0))


def gradients(layer: nn.Linear, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Output, and gradients in input and weight."""
    leaf = x.clone().requires_grad_()
    out = layer(leaf)
    return out.detach(), *torch.autograd.grad(out.square().sum(), (leaf, layer.weight))


def test_products_are_rounded_and_come_back_as_float32() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 80, bias=False)
    exact = gradients(layer, X)
    with NarrowLinear():
        narrow = gradients(layer, X)
    for ours, theirs in zip(narrow, exact, strict=True):
        assert ours.dtype == torch.float32
        assert not torch.equal(ours, theirs)
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05 * theirs.abs().max().item())
    assert torch.equal(layer(X), exact[0])


def test_small_biased_and_wide_layers_are_left_alone() -> None:
    for layer, x in (
        (nn.Linear(48, 8, bias=False), X),
        (nn.Linear(48, 80), X),
        (nn.Linear(48, 80, bias=False).double(), X.double()),
    ):
        exact = gradients(layer, x)
        with NarrowLinear():
            assert all(torch.equal(a, b) for a, b in zip(gradients(layer, x), exact, strict=True))
