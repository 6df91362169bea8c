"""What a block-diffusion model must do, whatever its weights: block semantics, cached states, batches."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.model import native, ragged
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import Work
from clover_agent.model.state import NativeState

from .builders import MASK, MOE, advanced, block_logits, raw_config, tiny_model

PROMPT = [5, 9, 30, 4, 17, 17, 60, 8, 21, 33, 12, 7, 44]
BLOCK = [MASK, 12, MASK, MASK, 40, MASK, MASK, MASK]
SCHEMES: list[dict[str, Any]] = [
    {},
    {"gdn_in_block": "causal"},
    {"commit_attention": "block"},
    {"logits_shift": 1, "block_alignment": "absolute"},
]
schemes = pytest.mark.parametrize("clover", SCHEMES, ids=str)
tokens = st.lists(st.integers(4, 60), min_size=1, max_size=40)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def same_states(a: NativeState, b: NativeState) -> None:
    assert a.length == b.length
    same(a.keys[:, :, :, : a.length], b.keys[:, :, :, : b.length])
    for ours, theirs in zip(a.recurrent, b.recurrent, strict=True):
        same(ours.state, theirs.state)
        same(ours.tail, theirs.tail)


@schemes
def test_a_denoising_step_changes_nothing(clover: dict[str, Any]) -> None:
    model = tiny_model(**clover)
    state = advanced(model, PROMPT)
    first = block_logits(model, Work(state, block=BLOCK))
    block_logits(model, Work(state, block=[20] * 8))
    assert torch.equal(block_logits(model, Work(state, block=BLOCK)), first)
    same_states(state, advanced(model, PROMPT))


@pytest.mark.parametrize("raw", [raw_config(), raw_config(clover={"gdn_in_block": "causal"}), raw_config(**MOE)])
def test_every_position_of_a_block_reaches_every_other(raw: dict[str, Any]) -> None:
    model = tiny_model(raw)
    state = advanced(model, PROMPT)
    before = block_logits(model, Work(state, block=BLOCK))
    for position in range(len(BLOCK)):
        changed = [*BLOCK]
        changed[position] = 50
        after = block_logits(model, Work(state, block=changed))
        assert (after != before).any(dim=-1).all()


def test_the_delta_layers_alone_reach_backwards_only_if_bidirectional() -> None:
    raw = {"layer_types": ["linear_attention"] * 2, "num_hidden_layers": 2}
    for scheme, reaches in (("causal", False), ("bidirectional", True)):
        model = tiny_model(raw_config(clover={"gdn_in_block": scheme}, **raw))
        state = advanced(model, PROMPT)
        before, after = (block_logits(model, Work(state, block=[*BLOCK[:-1], last])) for last in (MASK, 50))
        assert (before[:-1] != after[:-1]).any().item() is reaches


@schemes
def test_the_prefix_reaches_the_block_and_not_the_other_way_round(clover: dict[str, Any]) -> None:
    model = tiny_model(**clover)
    first, second = (advanced(model, [*PROMPT[:-1], last]) for last in (10, 11))
    logits = [block_logits(model, Work(state, block=BLOCK)) for state in (first, second)]
    assert (logits[0] != logits[1]).any(dim=-1).all()
    # Fused: the state that results does not know what was denoised beside its advance.
    fused, alone = advanced(model, PROMPT), advanced(model, PROMPT)
    model.forward([Work(fused, [20, 21, 22], BLOCK)])
    model.forward([Work(alone, [20, 21, 22])])
    same_states(fused, alone)


@settings(max_examples=15, deadline=None)
@given(ids=tokens, cuts=st.sets(st.integers(1, 39)), shift=st.integers(0, 1))
def test_causal_prefill_in_pieces_is_prefill_in_one_piece(ids: list[int], cuts: set[int], shift: int) -> None:
    model = tiny_model(logits_shift=shift)
    whole, pieces = advanced(model, ids), model.new_state()
    bounds = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    for start, end in pairwise(bounds):
        model.forward([Work(pieces, ids[start:end])])
    same_states(whole, pieces)
    same(block_logits(model, Work(whole, block=BLOCK)), block_logits(model, Work(pieces, block=BLOCK)))


@pytest.mark.parametrize("alignment", ["response", "absolute"])
def test_block_commit_sees_its_whole_block(alignment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "SLICE", 12)
    model = tiny_model(commit_attention="block", block_alignment=alignment)
    ids = [*range(10, 34)]
    whole, blocks = advanced(model, ids), model.new_state()
    for start in range(0, len(ids), 8):
        model.forward([Work(blocks, ids[start : start + 8])])
    same_states(whole, blocks)
    changed = advanced(model, [*ids[:7], 50, *ids[8:]])
    # The second attention layer's keys of the block's first position know of the block's last one.
    keys = [state.keys[1, 0, :, 0] for state in (whole, changed)]
    assert not torch.equal(keys[0], keys[1])


def test_absolute_blocks_are_counted_from_the_start_of_the_sequence() -> None:
    """Eight tokens from position 4 on are two half blocks, whose positions see no further than their block."""
    kept = {}
    for alignment in ("absolute", "response"):
        model = tiny_model(commit_attention="block", block_alignment=alignment)
        first, second = (advanced(model, [20, 21, 22, 23]) for _ in range(2))
        model.forward([Work(first, [10, 11, 12, 13, 14, 15, 16, 17]), Work(second, [10, 11, 12, 13, 14, 15, 16, 50])])
        kept[alignment] = torch.equal(first.keys[1, 0, :, 4], second.keys[1, 0, :, 4])
    assert kept == {"absolute": True, "response": False}


@schemes
def test_a_batch_is_the_same_as_each_alone(clover: dict[str, Any]) -> None:
    model = tiny_model(**clover)
    jobs: list[tuple[list[int], list[int], list[int]]] = [
        (PROMPT, [], BLOCK),
        (PROMPT[:4], [20] * 8, BLOCK),
        (PROMPT[:7], [21, 22, 23], []),
        ([8], [9] * 8, [MASK] * 8),
        (PROMPT, [], [MASK] * 3),
        (PROMPT[:9], [], []),
    ]
    together = [advanced(model, prompt) for prompt, _, _ in jobs]
    alone = [advanced(model, prompt) for prompt, _, _ in jobs]
    rows = block_logits(
        model, *(Work(s, advance, block) for s, (_, advance, block) in zip(together, jobs, strict=True))
    )
    each = [block_logits(model, Work(s, advance, block)) for s, (_, advance, block) in zip(alone, jobs, strict=True)]
    same(rows, torch.cat(each))
    for ours, theirs in zip(together, alone, strict=True):
        same_states(ours, theirs)


def test_a_fused_commit_is_commit_then_denoise() -> None:
    for clover in SCHEMES:
        model = tiny_model(**clover)
        fused, split = advanced(model, PROMPT), advanced(model, PROMPT)
        together = block_logits(model, Work(fused, [20] * 8, BLOCK))
        model.forward([Work(split, [20] * 8)])
        same(together, block_logits(model, Work(split, block=BLOCK)))


def test_long_advances_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    ids = [*range(4, 60)]
    whole = advanced(model, ids)
    expected = block_logits(model, Work(whole, block=BLOCK))
    monkeypatch.setattr(native, "PREFILL_CHUNK", 16)
    monkeypatch.setattr(ragged, "SLICE", 5)
    cut, other = model.new_state(), model.new_state()
    logits = block_logits(model, Work(other, PROMPT), Work(cut, ids, BLOCK))
    same(logits, expected)
    same_states(cut, whole)
    same_states(other, advanced(model, PROMPT))


def test_rows_are_given_in_the_order_asked_for() -> None:
    model = tiny_model()
    hidden = model.forward([Work(advanced(model, PROMPT), block=BLOCK)])
    assert hidden.rows == 8
    every = model.logits(hidden, range(8)).values
    same(model.logits(hidden, [6, 0, 3]).values, every[[6, 0, 3]])
    assert model.logits(hidden, []).values.shape == (0, 61)


def test_works_without_tokens_do_nothing() -> None:
    model = tiny_model()
    state = advanced(model, PROMPT)
    assert model.forward([]).rows == model.forward([Work(state)]).rows == 0
    same_states(state, advanced(model, PROMPT))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("raw", [raw_config(), raw_config(**MOE)], ids=["dense", "experts"])
def test_narrow_types_stay_near_float64(raw: dict[str, Any], dtype: torch.dtype) -> None:
    exact, narrow = tiny_model(raw), tiny_model(raw, dtype=dtype)
    expected = block_logits(exact, Work(exact.new_state(), PROMPT, BLOCK))
    found = block_logits(narrow, Work(narrow.new_state(), PROMPT, BLOCK))
    assert found.dtype == dtype
    error = (found.double() - expected).abs().mean() / expected.abs().mean()
    assert error < (1e-5 if dtype == torch.float32 else 0.1)


def test_the_spec_is_the_checkpoint_s() -> None:
    spec = tiny_model(block_alignment="absolute").spec
    assert (spec.vocab_size, spec.mask_token_id, spec.end_token_ids) == (61, MASK, (1,))
    assert (spec.block_size, spec.max_context, spec.block_alignment) == (8, 4096, "absolute")


def test_misuse_is_named() -> None:
    model: NativeModel = tiny_model(logits_shift=1)
    state = advanced(model, PROMPT)
    with pytest.raises(ValueError, match="only once"):
        model.forward([Work(state, [4]), Work(state, [5])])
    with pytest.raises(ValueError, match="logits_shift"):
        model.forward([Work(model.new_state(), block=BLOCK)])
    state.free()
    with pytest.raises(ValueError, match="freed"):
        model.forward([Work(state, block=BLOCK)])
    with pytest.raises(TypeError, match="native"):
        model.forward([Work(object(), block=BLOCK)])  # type: ignore[arg-type]
