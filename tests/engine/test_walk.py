"""Constrained unmasking: the invariants over random automata and hostile logits, and the walk's rules one by one."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import EngineOptions, Strategy
from clover_agent.errors import GrammarError
from clover_agent.types import SamplingParams
from tests.engine.constrained_reference import ConstrainedReference
from tests.engine.fakes import END, Automaton, AutomatonConstraint, FakeModel, Rule, hashed, peaked, spec
from tests.engine.harness import drive, request
from tests.engine.strategies import VOCAB, automata, bounded, sampling

Logits = npt.NDArray[np.float64]
STRATEGIES = st.sampled_from(list(Strategy))


def hostile(kind: str, seed: int) -> Rule:
    """Logits that a grammar must withstand: noise, early ends of turn, one and the same token everywhere."""
    if kind == "noise":
        return hashed(VOCAB, 3.0, seed)
    favourite = END if kind == "end" else 3 + seed

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
        logits = np.zeros(VOCAB)
        logits[favourite] = 30.0
        return logits

    return rule


MODELS = st.builds(
    FakeModel,
    st.just(spec(VOCAB)),
    st.builds(hostile, st.sampled_from(["noise", "end", "stuck"]), st.integers(0, 5)),
    st.booleans(),
)


@bounded()
@given(MODELS, automata(), sampling(), STRATEGIES, st.integers(0, 5))
def test_invariants_hold_for_any_automaton(
    model: FakeModel, automaton: Automaton, params: SamplingParams, strategy: Strategy, margin: int
) -> None:
    constraint = AutomatonConstraint(automaton)
    options = EngineOptions(strategy=strategy, candidates=4, close_margin=margin)
    seq, _ = drive(model, request(params, constraint=constraint), options)
    assert seq.finish_reason == "stop" or len(seq.output) == params.max_tokens or constraint.accepting()


@bounded()
@given(automata(with_free=False), st.integers(0, 20), st.sampled_from([0.3, 0.6, 0.95]), st.integers(1, 25))
def test_the_prefix_walk_equals_the_reference(automaton: Automaton, seed: int, threshold: float, most: int) -> None:
    params = SamplingParams(max_tokens=most, threshold=threshold)
    model = FakeModel(spec(VOCAB), hashed(VOCAB, 3.0, seed))
    options = EngineOptions(candidates=VOCAB, close_reserve=0)
    constraint = AutomatonConstraint(automaton)
    seq, _ = drive(model, request(params, constraint=constraint), options)
    expected = ConstrainedReference(model, (5, 6, 7), params, AutomatonConstraint(automaton)).run()
    assert (seq.output, seq.finish_reason) == expected


@bounded()
@given(sampling(), st.integers(0, 20), STRATEGIES)
def test_where_all_is_free_the_sampler_is_untouched(params: SamplingParams, seed: int, strategy: Strategy) -> None:
    """I5, with the number of forwards."""
    free = Automaton({}, frozenset({0}), VOCAB, frozenset({0}))
    model = FakeModel(spec(VOCAB), hashed(VOCAB, 2.0, seed))
    plain, _ = drive(model, request(params))
    bound, _ = drive(model, request(params, constraint=AutomatonConstraint(free)), EngineOptions(strategy=strategy))
    assert (plain.output, plain.finish_reason, plain.stats) == (bound.output, bound.finish_reason, bound.stats)


def word(*tokens: int) -> Automaton:
    """Exactly one word."""
    return Automaton({i: {t: i + 1} for i, t in enumerate(tokens)}, frozenset({len(tokens)}), VOCAB)


def test_a_forced_answer_needs_no_forward() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB))
    tokens = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    seq, steps = drive(model, request(SamplingParams(), constraint=AutomatonConstraint(word(*tokens))))
    assert (seq.output, seq.finish_reason) == (tokens, "stop")
    assert model.forwards == []
    assert len(steps) == 1
    assert (seq.stats.forced_tokens, seq.stats.forwards) == (10, 0)


def test_forced_tokens_cross_block_borders_and_the_model_reads_them() -> None:
    """A choice, then a forced run longer than a block: the next forward commits all of it and shows the rest."""
    run = {i: {3 + i % 4: i + 1} for i in range(1, 12)}
    automaton = Automaton({0: {4: 1, 5: 1}, **run, 12: {4: 13, 5: 13}}, frozenset({13}), VOCAB)
    model = FakeModel(spec(VOCAB, block_size=4), peaked(VOCAB, [4] * 20, 3))
    seq, _ = drive(model, request(SamplingParams(), constraint=AutomatonConstraint(automaton)))
    assert (len(seq.output), seq.finish_reason) == (13, "stop")
    assert (seq.stats.denoising_steps, seq.stats.forced_tokens) == (2, 11)
    assert model.states[0].advances == [
        (5, 6, 7),
        tuple(seq.output[:4]),
        tuple(seq.output[4:8]),
        tuple(seq.output[8:12]),
    ]
    assert seq.stats.forwards == 4  # prompt + step, two commits alone, commit + step


def test_illegal_mass_is_renormalised_away_but_not_below_the_floor() -> None:
    automaton = Automaton({0: {4: 1, 5: 1}, 1: {4: 2, 5: 2}, 2: {4: 3, 5: 3}}, frozenset({3}), VOCAB)

    def split(mass: float) -> Rule:
        """`mass` on token 4, the rest on an illegal token."""

        def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
            logits = np.full(VOCAB, -30.0)
            logits[4], logits[8] = np.log(mass), np.log(1 - mass)
            return logits

        return rule

    for mass, steps in ((0.4, 1), (0.2, 3)):
        model = FakeModel(spec(VOCAB), split(mass))
        seq, _ = drive(model, request(SamplingParams(), constraint=AutomatonConstraint(automaton)))
        assert (seq.output, seq.stats.denoising_steps) == ([4, 4, 4], steps)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_dense_row_where_no_candidate_is_legal(sparse: bool) -> None:
    automaton = Automaton({0: {12: 1, 13: 1}}, frozenset({1}), VOCAB)

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
        return np.array([0, 0, 0, 9, 8, 7, 6, 5, 0, 0, 0, 0, -1, -0.5, 0, 0], dtype=np.float64)

    constraint = AutomatonConstraint(automaton)
    model = FakeModel(spec(VOCAB), rule, sparse=sparse)
    seq, _ = drive(model, request(SamplingParams(), constraint=constraint), EngineOptions(candidates=4))
    assert seq.output == ([12] if sparse else [13])  # sparse logits do not tell the two apart
    assert constraint.masks_made == 1


def test_a_grammar_without_any_legal_token_ends_with_an_error() -> None:
    dead = Automaton({0: {4: 1, 5: 1}}, frozenset(), VOCAB)
    model = FakeModel(spec(VOCAB), hashed(VOCAB))
    with pytest.raises(GrammarError, match="no token"):
        drive(model, request(SamplingParams(), constraint=AutomatonConstraint(dead)))


def test_the_turn_ends_only_where_the_grammar_accepts() -> None:
    automaton = Automaton({0: {4: 1, 5: 1}, 1: {4: 2, 5: 2}, 2: {4: 2, 5: 2}}, frozenset({2}), VOCAB)
    model = FakeModel(spec(VOCAB), peaked(VOCAB, [], 3))  # end of turn everywhere
    seq, _ = drive(model, request(SamplingParams(), constraint=AutomatonConstraint(automaton)))
    assert (len(seq.output), seq.finish_reason) == (2, "stop")


def test_min_tokens_yields_to_a_grammar_that_has_nothing_to_add() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB))
    seq, _ = drive(model, request(SamplingParams(min_tokens=9), constraint=AutomatonConstraint(word(4, 5))))
    assert (seq.output, seq.finish_reason) == ([4, 5], "stop")


def trigger_then_word() -> Automaton:
    """Free text; token 9 opens a part that must be 4|5, 6|7, 8 and leads back to free text."""
    return Automaton({0: {9: 1}, 1: {4: 2, 5: 2}, 2: {6: 3, 7: 3}, 3: {8: 0}}, frozenset({0}), VOCAB, frozenset({0}))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_trigger_in_free_text_hands_over_to_the_grammar(strategy: Strategy) -> None:
    """The model is certain of a wrong token after the trigger; the grammar's part is right all the same."""
    script = [10, 11, 9, 4, 12, 8, 10, 11]
    model = FakeModel(spec(VOCAB), peaked(VOCAB, script, 3))
    constraint = AutomatonConstraint(trigger_then_word())
    seq, _ = drive(model, request(SamplingParams(), constraint=constraint), EngineOptions(strategy=strategy))
    assert seq.output in ([10, 11, 9, 4, 6, 8, 10, 11], [10, 11, 9, 4, 7, 8, 10, 11])
    assert seq.finish_reason == "stop"


def test_penalties_do_not_touch_what_the_grammar_owns() -> None:
    """Token 4 is in the prompt and repeats; penalties would make 5 the choice."""
    automaton = Automaton({i: {4: i + 1, 5: i + 1} for i in range(3)}, frozenset({3}), VOCAB)
    params = SamplingParams(presence_penalty=2.0, frequency_penalty=2.0, repetition_penalty=2.0)

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
        logits = np.full(VOCAB, -9.0)
        logits[4], logits[5] = 1.0, 0.9
        return logits

    model = FakeModel(spec(VOCAB), rule)
    seq, _ = drive(model, request(params, (4, 4, 4), AutomatonConstraint(automaton)))
    assert seq.output == [4, 4, 4]
    free, _ = drive(model, request(params, (4, 4, 4)))
    assert 5 in free.output[:3]


def test_any_order_keeps_confident_tokens_ahead_of_a_hole() -> None:
    """Position 1 is unsure, the rest certain: the look-ahead accepts the rest at once, so two steps are enough."""
    automaton = Automaton({i: {4: i + 1, 5: i + 1} for i in range(6)}, frozenset({6}), VOCAB)

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
        logits = np.full(VOCAB, -30.0)
        alone = position in (1, 3) and block[position - 1] in (1, 4) and all(t == 1 for t in block[4:6])
        logits[4], logits[5] = 5.0, 4.9 if alone else -20.0
        return logits

    steps = {}
    for strategy in Strategy:
        model = FakeModel(spec(VOCAB, block_size=6), rule)
        wish = request(SamplingParams(), constraint=AutomatonConstraint(automaton))
        seq, _ = drive(model, wish, EngineOptions(strategy=strategy))
        assert seq.output == [4] * 6
        steps[strategy] = seq.stats.denoising_steps
    assert steps[Strategy.ANY_ORDER] < steps[Strategy.PREFIX]


def test_a_tentative_token_that_no_continuation_accepts_is_masked_again() -> None:
    """Two holes, then a certain but illegal token: it must not survive its look-ahead."""
    automaton = Automaton({i: {4: i + 1, 5: i + 1} for i in range(4)}, frozenset({4}), VOCAB)

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> Logits:
        logits = np.full(VOCAB, -30.0)
        if position == 2:
            logits[12] = 9.0
            logits[4] = 1.0
        else:
            logits[4], logits[5] = 5.0, 4.9
        return logits

    wish = request(SamplingParams(), constraint=AutomatonConstraint(automaton))
    model = FakeModel(spec(VOCAB, block_size=4), rule)
    seq, _ = drive(model, wish, EngineOptions(strategy=Strategy.ANY_ORDER))
    assert seq.output == [4, 4, 4, 4]
    assert seq.block.strikes[2] == 2
