"""Proposals: against plain softmax arithmetic, sparse against dense, and independent of batch-mates."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine.processors import History, Query, penalises
from clover_agent.engine.sampler import Proposals, choose_legal, draw, propose, sample
from clover_agent.model.protocol import DenseLogits, SparseLogits
from clover_agent.types import SamplingParams
from tests.engine.strategies import bounded, sampling

VOCAB, MASK = 16, 1


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(rows, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def query(params: SamplingParams, rows: int, *, candidates: bool = False, draw: float = 0.37) -> Query:
    history = History([3, 4, 4], VOCAB) if penalises(params) else None
    uniforms = [(draw + 0.19 * i) % 1 for i in range(rows)] if params.temperature > 0 else []
    return Query(params, range(rows), uniforms, history, [5], end_ids=(2,), candidates=candidates)


def same(a: Proposals, b: Proposals) -> bool:
    fields = ("choice", "confidence", "ids", "probs", "scores", "finite")
    return all(getattr(a, name) == getattr(b, name) for name in fields)


def test_confidence_is_the_unmodified_probability_without_the_mask_token() -> None:
    values = logits(3)
    values[:, MASK] = 50.0
    params = SamplingParams(logit_bias=((6, 9.0),))
    [got] = propose(DenseLogits(values.clone()), [query(params, 3)], mask_token_id=MASK, candidates=4)
    clean = values.clone()
    clean[:, MASK] = -math.inf
    probs = clean.softmax(-1)
    assert got.choice == [6, 6, 6]
    assert got.confidence == pytest.approx(probs[:, 6].tolist())
    assert got.ids == [[], [], []]


def test_candidates_fall_by_base_logit_and_tell_unmodified_probabilities() -> None:
    values = logits(2)
    params = SamplingParams(logit_bias=((6, 9.0),), presence_penalty=5.0)
    [got] = propose(DenseLogits(values.clone()), [query(params, 2, candidates=True)], mask_token_id=MASK, candidates=5)
    values[:, MASK] = -math.inf
    probs = values.softmax(-1)
    for row in range(2):
        assert got.ids[row][0] == 6
        assert got.scores[row] == sorted(got.scores[row], reverse=True)
        assert got.probs[row] == pytest.approx([float(probs[row, i]) for i in got.ids[row]])
        assert torch.equal(got.row(row).argsort(descending=True)[:5], torch.tensor(got.ids[row]))


@bounded()
@given(st.lists(sampling(), min_size=1, max_size=4), st.integers(0, 20), st.booleans())
def test_rows_do_not_depend_on_batch_mates(wishes: list[SamplingParams], seed: int, wanted: bool) -> None:
    values = logits(3 * len(wishes), seed)
    queries = [query(params, 3, candidates=wanted or i == 0) for i, params in enumerate(wishes)]
    together = propose(DenseLogits(values.clone()), queries, mask_token_id=MASK, candidates=4)
    for i, one in enumerate(queries):
        part = DenseLogits(values[3 * i : 3 * i + 3].clone())
        [alone] = propose(part, [one], mask_token_id=MASK, candidates=4)
        if one.candidates:
            assert same(together[i], alone)
        assert (together[i].choice, together[i].confidence) == (alone.choice, alone.confidence)


@bounded()
@given(sampling(), st.integers(0, 20), st.booleans())
def test_sparse_equals_dense(params: SamplingParams, seed: int, with_mask: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(VOCAB, generator=generator)[:6] for _ in range(3)])
    if with_mask:
        ids[0, 2] = MASK if MASK not in ids[0] else ids[0, 2]
    values = 3 + torch.randn(3, 6, dtype=torch.float64, generator=generator)
    rest = torch.zeros(3, dtype=torch.float64)
    dense = rest[:, None].repeat(1, VOCAB).scatter_(1, ids, values)
    wish = query(params, 3, candidates=True)
    sparse = SparseLogits(ids, values, rest, VOCAB)
    [a] = propose(sparse, [wish], mask_token_id=MASK, candidates=8)
    [b] = propose(DenseLogits(dense), [wish], mask_token_id=MASK, candidates=8)
    assert a.choice == b.choice
    assert a.confidence == pytest.approx(b.confidence)
    for row in range(3):
        assert a.probs[row] == pytest.approx(b.probs[row])
        assert len(set(a.ids[row])) == 8
        assert MASK not in a.ids[row]
        assert torch.allclose(a.row(row), b.row(row))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_are_reported_for_their_query_only(bad: float) -> None:
    values = logits(4)
    values[2, 5] = bad
    got = propose(DenseLogits(values), [query(SamplingParams(), 2) for _ in range(2)], mask_token_id=MASK, candidates=4)
    assert [proposals.finite for proposals in got] == [True, False]


def test_an_impossible_token_is_no_error_but_an_impossible_row_is() -> None:
    values = logits(2)
    values[0, 3] = -math.inf
    values[1] = -math.inf
    wishes = [query(SamplingParams(), 1) for _ in range(2)]
    got = propose(DenseLogits(values), wishes, mask_token_id=MASK, candidates=4)
    assert [proposals.finite for proposals in got] == [True, False]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.8),
        SamplingParams(temperature=1.5, top_k=5),
        SamplingParams(temperature=1.0, top_p=0.7),
        SamplingParams(temperature=1.0, min_p=0.2),
        SamplingParams(temperature=1.2, top_k=8, top_p=0.9, min_p=0.05),
    ],
)
def test_sampling_follows_the_filtered_distribution(params: SamplingParams) -> None:
    """A grid of draws gives each token its share of the interval; the few-candidates version agrees."""
    row = logits(1, seed=3)[0]
    draws = [(i + 0.5) / 4000 for i in range(4000)]
    got = Counter(sample(row.expand(4000, -1), [params] * 4000, draws).tolist())
    probs = (row / params.temperature).softmax(-1)
    order = probs.argsort(descending=True).tolist()
    kept = [t for t in order if probs[t] >= params.min_p * probs.max()][: params.top_k or None]
    mass = float(probs[kept].sum())
    nucleus, before = [], 0.0
    for token in kept:
        if before < params.top_p * mass:
            nucleus.append(token)
        before += float(probs[token])
    total = float(probs[nucleus].sum())
    assert set(got) <= set(nucleus)
    for token in nucleus:
        assert got[token] / 4000 == pytest.approx(float(probs[token]) / total, abs=1e-3)
    scores = [float(row[token]) for token in order]
    assert Counter(order[draw(scores, params, u)] for u in draws) == pytest.approx(got, abs=2)


def test_the_extremes_of_a_draw_stay_within_the_nucleus() -> None:
    row = torch.tensor([[-math.inf, 2.0, 1.0, -math.inf]], dtype=torch.float32)
    for top_p in (1.0, 0.99):
        params = SamplingParams(temperature=1.0, top_p=top_p)
        ids = sample(row.expand(2, -1), [params] * 2, [0.0, 1 - 2**-53])
        assert ids.tolist() == [1, 2]


@pytest.mark.parametrize("uniform", [None, 0.2, 0.9999])
def test_the_last_resort_is_legal_even_if_infinitely_unlikely(uniform: float | None) -> None:
    scores = torch.tensor([5.0, -math.inf, 4.0, -math.inf])
    params = SamplingParams(temperature=0.0 if uniform is None else 0.5)
    assert choose_legal(scores, np.array([False, True, False, True]), params, uniform) in (1, 3)
    assert choose_legal(scores, np.array([False, True, True, False]), params, uniform) == 2
    assert choose_legal(scores, np.zeros(4, dtype=np.bool_), params, uniform) is None


def test_half_precision_logits_are_normalised_in_single() -> None:
    values = logits(1).to(torch.bfloat16)
    expected = values.float().index_fill(1, torch.tensor([MASK]), -math.inf).softmax(-1)
    [got] = propose(DenseLogits(values), [query(SamplingParams(), 1)], mask_token_id=MASK, candidates=4)
    assert got.confidence[0] == pytest.approx(float(expected.max()), rel=1e-6)
