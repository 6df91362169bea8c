"""Edits of logits against slow arithmetic on single rows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine.processors import History, Query, base_logits, length_bonus, penalised, penalises
from clover_agent.types import SamplingParams
from tests.engine.strategies import bounded

VOCAB = 12
IDS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@bounded()
@given(st.tuples(IDS, IDS, IDS), st.floats(0.5, 2), st.floats(-2, 2), st.floats(-2, 2))
def test_penalties_follow_their_definitions(
    text: tuple[list[int], list[int], list[int]], repetition: float, presence: float, frequency: float
) -> None:
    prompt, output, block = text
    params = SamplingParams(repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency)
    history = History(prompt, VOCAB)
    history.extend(output)
    query = Query(params, ordinals=range(3), history=history, open_ids=block)
    plain = Query(SamplingParams(), ordinals=range(2))
    logits = rows(5)
    got = penalised(logits, [plain, query])
    assert torch.equal(got[:2], logits[:2])
    for token in range(VOCAB):
        count = (output + block).count(token)
        for row in range(2, 5):
            value = float(logits[row, token])
            if token in prompt or count:
                value = value / repetition if value > 0 else value * repetition
            value -= frequency * count + (presence if count else 0)
            assert float(got[row, token]) == pytest.approx(value, abs=1e-5)


def test_the_history_grows_with_the_output_and_forgets_the_open_block() -> None:
    params = SamplingParams(frequency_penalty=1.0)
    history = History([1], VOCAB)
    query = Query(params, ordinals=[0], history=history, open_ids=[4, 4])
    logits = torch.zeros(1, VOCAB, dtype=torch.float64)
    assert penalised(logits, [query])[0, 4] == -2
    assert penalised(logits, [Query(params, ordinals=[0], history=history)])[0, 4] == 0
    history.extend([4, 5])
    assert penalised(logits, [query])[0, [1, 4, 5]].tolist() == [0, -3, -1]


def test_bias_end_rules_and_bans_edit_a_copy() -> None:
    params = SamplingParams(logit_bias=((3, 2.5), (4, -100.0)), min_tokens=2)
    query = Query(params, ordinals=[0, 1, 2], end_ids=(7,), banned_ids=(8,))
    logits = rows(5)
    before = logits.clone()
    got = base_logits(logits, [Query(SamplingParams(), ordinals=[0, 1]), query])
    assert torch.equal(logits, before)
    assert torch.equal(got[:2], before[:2])
    assert torch.allclose(got[2:, 3], before[2:, 3] + 2.5)
    assert torch.allclose(got[2:, 4], before[2:, 4] - 100)
    assert got[2:, 7].tolist() == [-math.inf, -math.inf, float(before[4, 7])]
    assert got[2:, 8].tolist() == [-math.inf] * 3


def test_nothing_to_edit_costs_nothing() -> None:
    logits = rows(2)
    queries = [Query(SamplingParams(length_penalty=1.0), ordinals=[0, 1], end_ids=(7,))]
    assert base_logits(logits, queries) is logits
    assert penalised(logits, queries) is logits
    assert not penalises(SamplingParams())


def test_the_length_bonus_starts_softly_and_keeps_growing() -> None:
    params = SamplingParams(length_penalty=2.0, length_penalty_start=100)
    assert length_bonus(params, 100) == 0
    assert length_bonus(params, 200) == pytest.approx(2 * math.log(2))
    bonuses = [length_bonus(params, n) for n in range(0, 2000, 50)]
    assert bonuses == sorted(bonuses)
    assert length_bonus(SamplingParams(length_penalty=1.0, length_penalty_start=0), 9) == pytest.approx(math.log(9))


def test_the_length_bonus_reaches_end_tokens_only() -> None:
    params = SamplingParams(length_penalty=3.0, length_penalty_start=1)
    logits = rows(2)
    got = base_logits(logits, [Query(params, ordinals=[0, 2], end_ids=(7, 9))])
    expected = logits.clone()
    expected[1, [7, 9]] += 3 * math.log1p(1)
    assert torch.allclose(got, expected)
