"""The loop without a grammar: equal to the reference, exact budgets, alignment, what the model is shown."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import EngineOptions
from clover_agent.errors import NonFiniteLogits
from clover_agent.model.protocol import ModelSpec
from clover_agent.types import SamplingParams
from tests.engine.fakes import END, MASK, FakeModel, hashed, peaked, spec
from tests.engine.harness import drive, request
from tests.engine.strategies import VOCAB, bounded, sampling
from tests.reference import Reference

PROMPTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20).map(tuple)
SPECS = st.builds(
    lambda size, alignment, context: spec(VOCAB, size, block_alignment=alignment, max_context=context),
    st.integers(1, 9),
    st.sampled_from(["response", "absolute"]),
    st.sampled_from([512, 32]),
)


@bounded()
@given(SPECS, sampling(), PROMPTS, st.integers(0, 50), st.integers(1, 30))
def test_the_loop_equals_the_reference(
    facts: ModelSpec, params: SamplingParams, prompt: tuple[int, ...], seed: int, chunk: int
) -> None:
    """Any parameters, greedy or sampled, any prompt (mask and end tokens in it too), any prefill chunks."""
    model = FakeModel(facts, hashed(VOCAB, 2.0, seed))
    seq, _ = drive(model, request(params, prompt), EngineOptions(prefill_tokens=chunk))
    assert (seq.output, seq.finish_reason) == Reference(model, prompt, params).run()


@bounded()
@given(st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_max_tokens_is_exact(most: int, block_size: int, fits: bool) -> None:
    model = FakeModel(spec(VOCAB, block_size), peaked(VOCAB, [4] * (most if fits else most + 5), 3))
    seq, steps = drive(model, request(SamplingParams(max_tokens=most)))
    assert seq.output == [4] * most
    assert seq.finish_reason == "length"
    assert [step.finish for step in steps[:-1]] == [None] * (len(steps) - 1)


def test_the_turn_ends_at_the_end_token_and_the_rest_of_the_block_is_dropped() -> None:
    model = FakeModel(spec(VOCAB, 8), peaked(VOCAB, [4, 5, 6], 3))
    seq, steps = drive(model, request(SamplingParams()))
    assert (seq.output, seq.finish_reason) == ([4, 5, 6], "stop")
    assert (len(steps), seq.stats.denoising_steps, seq.stats.forwards) == (1, 1, 1)


def test_the_last_block_is_never_committed_and_commits_are_fused() -> None:
    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4] * 10, 3))
    seq, _ = drive(model, request(SamplingParams()))
    assert model.states[0].advances == [(5, 6, 7), (4,) * 4, (4,) * 4]
    assert model.forwards == [[(3, 4)], [(4, 4)], [(4, 4)]]
    assert seq.stats.forwards == seq.stats.denoising_steps == 3


def test_prefill_passes_count_as_forwards_but_not_as_denoising_steps() -> None:
    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4], 9))
    seq, _ = drive(model, request(SamplingParams(), (5,) * 9), EngineOptions(prefill_tokens=4))
    assert model.forwards == [[(4, 0)], [(4, 0)], [(1, 4)]]
    assert (seq.stats.forwards, seq.stats.denoising_steps) == (3, 1)


def test_absolute_alignment_shortens_the_first_block() -> None:
    model = FakeModel(spec(VOCAB, 8, block_alignment="absolute"), peaked(VOCAB, [4] * 12, 5))
    drive(model, request(SamplingParams(), (5,) * 5))
    assert model.forwards == [[(5, 3)], [(3, 8)], [(8, 8)]]


def test_final_text_leaves_before_the_block_is_done() -> None:
    """One position a step: every step tells one more token, and never takes one back."""
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5))
    _, steps = drive(model, request(SamplingParams(max_tokens=6, threshold=1.0, min_tokens=6)))
    assert [len(step.tokens) for step in steps] == [1] * 6


def test_drafts_show_the_block_from_the_frontier() -> None:
    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
        logits = np.zeros(VOCAB)
        logits[4 + position] = 1.0 if position == 1 and block[0] == MASK else 20.0
        return logits

    model = FakeModel(spec(VOCAB, 4), rule)
    wish = request(SamplingParams(max_tokens=4))
    _, silent = drive(model, wish)
    assert [step.draft for step in silent] == [None, None]
    drafting = type(wish)(wish.id, wish.prompt_ids, wish.sampling, drafts=True)
    _, steps = drive(model, drafting)
    assert [step.draft for step in steps] == [(None,) * 4, (None, 6, 7), ()]


def test_a_draft_that_has_not_changed_is_not_told_again() -> None:
    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4] * 4, 40))
    wish = request(SamplingParams(max_tokens=4), (5,) * 40)
    drafting = type(wish)(wish.id, wish.prompt_ids, wish.sampling, drafts=True)
    _, steps = drive(model, drafting, EngineOptions(prefill_tokens=4))
    assert [step.draft for step in steps] == [(None,) * 4, ()]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_are_an_error(bad: float) -> None:
    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
        return np.full(VOCAB, bad if position == 2 else 0.0)

    with pytest.raises(NonFiniteLogits):
        drive(FakeModel(spec(VOCAB), rule), request(SamplingParams()))


def test_ignore_eos_goes_on_to_the_budget() -> None:
    model = FakeModel(spec(VOCAB), peaked(VOCAB, [4, 5], 3))
    seq, _ = drive(model, request(SamplingParams(max_tokens=20, ignore_eos=True)))
    assert len(seq.output) == 20
    assert END not in seq.output


def test_min_tokens_holds_back_the_end() -> None:
    model = FakeModel(spec(VOCAB), peaked(VOCAB, [4, 5], 3))
    seq, _ = drive(model, request(SamplingParams(min_tokens=11)))
    assert (len(seq.output), seq.finish_reason) == (11, "stop")


def test_a_seed_decides() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB, 0.5))
    outputs = [
        drive(model, request(SamplingParams(max_tokens=30, temperature=1.0, seed=seed, ignore_eos=True)))[0].output
        for seed in (1, 1, 2)
    ]
    assert outputs[0] == outputs[1] != outputs[2]


def test_a_tiny_temperature_is_greedy() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB, 0.5))
    outputs = [drive(model, request(SamplingParams(max_tokens=30, temperature=t)))[0].output for t in (0.0, 1e-300)]
    assert outputs[0] == outputs[1]


def test_a_budget_of_nothing_ends_at_once() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB))
    seq, steps = drive(model, request(SamplingParams(max_tokens=0)))
    assert (seq.output, steps[0].finish, model.forwards) == ([], "length", [])
