import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from clover_agent.model.delta_rule import ScanInputs, delta_scan, read_block


def draw(length: int, *, seed: int, batch: int = 2, dtype: torch.dtype = torch.float64) -> tuple[ScanInputs, Tensor]:
    """Random inputs with 2 key heads serving 4 heads, and a random state."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    inputs = ScanInputs(
        q=functional.normalize(normal(batch, length, 2, 6), dim=-1),
        k=functional.normalize(normal(batch, length, 2, 6), dim=-1),
        v=normal(batch, length, 4, 5),
        log_decay=-functional.softplus(normal(batch, length, 4)),
        beta=normal(batch, length, 4).sigmoid(),
    )
    return inputs, normal(batch, 4, 6, 5)


def token_by_token(inputs: ScanInputs, state: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The recurrence as it is written; outputs, and the state before every position and after the last."""
    q, k = (x.repeat_interleave(2, dim=2) for x in (inputs.q, inputs.k))
    out, states = [], [state]
    for t in range(inputs.v.shape[1]):
        decayed = states[-1] * inputs.log_decay[:, t].exp()[..., None, None]
        known = torch.einsum("bhkv,bhk->bhv", decayed, k[:, t])
        written = (inputs.v[:, t] - known) * inputs.beta[:, t, :, None]
        states.append(decayed + torch.einsum("bhk,bhv->bhkv", k[:, t], written))
        out.append(torch.einsum("bhkv,bhk->bhv", states[-1], q[:, t]))
    return torch.stack(out, dim=1), states


def reversed_(inputs: ScanInputs) -> ScanInputs:
    return ScanInputs(*(getattr(inputs, name).flip(1) for name in ScanInputs.__slots__))


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 40), chunk=st.integers(1, 17), seed=st.integers(0, 99))
def test_equals_the_recurrence(length: int, chunk: int, seed: int) -> None:
    inputs, state = draw(length, seed=seed)
    out, states = delta_scan(inputs, state, chunk=chunk)
    expected, passed = token_by_token(inputs, state)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    places = [min(i * chunk, length) for i in range(len(states))]
    torch.testing.assert_close(states, torch.stack([passed[i] for i in places]), rtol=1e-9, atol=1e-9)


def test_starts_empty_without_a_state() -> None:
    inputs, state = draw(9, seed=0)
    out, states = delta_scan(inputs, chunk=4)
    torch.testing.assert_close(out, token_by_token(inputs, torch.zeros_like(state))[0])
    assert not states[0].any()


def test_keeps_its_digits_where_all_keys_are_equal() -> None:
    """A block of masks writes nearly one key again and again, without forgetting."""
    inputs, state = draw(32, seed=1, dtype=torch.float32)
    repeated = ScanInputs(
        inputs.q,
        inputs.k[:, :1].expand(-1, 32, -1, -1),
        inputs.v,
        torch.zeros_like(inputs.log_decay),
        torch.full_like(inputs.beta, 0.9),
    )
    out, _ = delta_scan(repeated, state)
    torch.testing.assert_close(out, token_by_token(repeated, state)[0], rtol=1e-4, atol=1e-4)


def test_gradients_are_those_of_the_recurrence() -> None:
    inputs, state = draw(7, seed=2, batch=1)
    leaves = [inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.beta, state]
    for leaf in leaves:
        leaf.requires_grad_()
    weights = torch.arange(7.0, dtype=torch.float64)[:, None, None]
    out, states = delta_scan(inputs, state, chunk=3)
    found = torch.autograd.grad((out * weights).sum() + states[1:].square().sum(), leaves)
    expected_out, passed = token_by_token(inputs, state)
    total = (expected_out * weights).sum() + sum(passed[i].square().sum() for i in (3, 6, 7))
    for ours, theirs in zip(found, torch.autograd.grad(total, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("started", [False, True])
@settings(max_examples=15, deadline=None)
@given(length=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_block_is_read_like_a_scan(started: bool, length: int, seed: int) -> None:
    inputs, state = draw(length, seed=seed)
    empty = torch.zeros_like(state)
    start = state if started else empty
    ahead, _ = token_by_token(inputs, start)
    behind, _ = token_by_token(reversed_(inputs), empty)
    given = state if started else None
    torch.testing.assert_close(read_block(inputs, given), ahead, rtol=1e-9, atol=1e-9)
    both = read_block(inputs, given, both_ways=True)
    torch.testing.assert_close(both, ahead + behind.flip(1), rtol=1e-9, atol=1e-9)


def test_gradients_of_a_read_block_are_those_of_the_recurrence() -> None:
    inputs, state = draw(7, seed=2, batch=1)
    leaves = [inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.beta, state]
    for leaf in leaves:
        leaf.requires_grad_()
    weights = torch.arange(7.0, dtype=torch.float64)[:, None, None]
    found = torch.autograd.grad((read_block(inputs, state, both_ways=True) * weights).sum(), leaves)
    ahead, behind = token_by_token(inputs, state)[0], token_by_token(reversed_(inputs), torch.zeros_like(state))[0]
    expected = torch.autograd.grad(((ahead + behind.flip(1)) * weights).sum(), leaves)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
