"""Searches by chunks against torch's own over whole rows, at lengths around chunk borders and the short-row limit."""

import pytest
import torch

from clover_agent.engine.vocabulary import CHUNK, SHORT, best, nucleus, pick, top

LENGTHS = [1, 7, CHUNK, SHORT, SHORT + 1, SHORT + CHUNK, 2 * SHORT + 13, 20_000]


def values(length: int, rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, length, generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_best_is_the_argmax_and_the_first_of_equals(length: int) -> None:
    some = values(length)
    assert torch.equal(best(some), some.argmax(1))
    some[:, length // 2] = some[:, -1] = 99.0
    assert best(some).tolist() == [length // 2] * 5


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("k", [0, 1, 4, 16])
def test_top_is_topk(length: int, k: int) -> None:
    some = values(length)
    some[0] = torch.arange(length)  # the last, incomplete chunk holds the largest
    found, index = top(some, k)
    expected = some.topk(min(k, length), dim=1)
    assert torch.equal(found, expected.values)
    assert torch.equal(index, expected.indices)


@pytest.mark.parametrize("length", [SHORT + 1, 20_000])
def test_nan_is_never_overlooked(length: int) -> None:
    some = values(length)
    some[2, length - 1] = torch.nan
    assert best(some)[2] == length - 1


@pytest.mark.parametrize("length", LENGTHS)
def test_pick_inverts_the_distribution_function(length: int) -> None:
    weights = values(length, rows=64).double().exp()
    weights[:, ::3] = 0
    weights[:, -1] = 1
    uniforms = (torch.arange(64, dtype=torch.float64)[:, None] + 0.5) / 64
    reached = weights.cumsum(1) / weights.sum(1, keepdim=True)
    expected = (reached <= uniforms).sum(1)
    assert torch.equal(pick(weights, uniforms), expected)


@pytest.mark.parametrize("length", [CHUNK, SHORT + 1, 20_000])
def test_the_extremes_of_a_draw_never_pick_weight_zero(length: int) -> None:
    weights = torch.zeros(2, length)
    weights[:, [5, length // 2]] = 0.1
    uniforms = torch.tensor([[0.0], [1 - 2**-53]], dtype=torch.float64)
    assert pick(weights, uniforms).tolist() == [5, length // 2]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_the_nucleus_is_that_of_a_sorted_row(length: int, dtype: torch.dtype, scale: float) -> None:
    weights = (scale * values(length, rows=6)).to(dtype).exp()
    weights[3, 1:] = 0
    shares = torch.tensor([0.05, 0.5, 0.9, 0.95, 0.999, 0.3], dtype=torch.float64)[:, None]
    target = shares * weights.sum(1, keepdim=True, dtype=torch.float64)
    ranked = weights.sort(dim=1, descending=True).values
    place = (ranked.cumsum(1, dtype=torch.float64) < target).sum(1, keepdim=True)
    assert torch.equal(nucleus(weights, target), ranked.gather(1, place))
