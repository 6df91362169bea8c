"""Hypothesis strategies: sampling parameters that matter to the engine, small automata, logits rules."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from clover_agent.types import SamplingParams
from tests.engine.fakes import Automaton

VOCAB = 16
TOKENS = st.integers(3, VOCAB - 1)


def bounded(examples: int = 60) -> settings:
    """Settings of a property test: few examples, and no clock, for a busy machine must not fail it."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sampling(**fixed: st.SearchStrategy[object]) -> st.SearchStrategy[SamplingParams]:
    choices: dict[str, st.SearchStrategy[object]] = {
        "max_tokens": st.integers(1, 30),
        "min_tokens": st.sampled_from([0, 0, 5]),
        "temperature": st.sampled_from([0.0, 0.0, 0.7, 1.3]),
        "top_p": st.sampled_from([1.0, 0.8]),
        "top_k": st.sampled_from([0, 4]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "seed": st.integers(0, 9),
        "repetition_penalty": st.sampled_from([1.0, 1.2]),
        "presence_penalty": st.sampled_from([0.0, 0.9]),
        "frequency_penalty": st.sampled_from([0.0, -0.5]),
        "logit_bias": st.sampled_from([(), ((5, 3.0), (7, -4.0))]),
        "stop_token_ids": st.sampled_from([(), (9,)]),
        "ignore_eos": st.booleans(),
        "threshold": st.sampled_from([0.3, 0.6, 0.95, 1.0]),
        "block_size": st.sampled_from([None, 1, 5]),
        "fallback": st.sampled_from(["leftmost", "max_confidence"]),
        "length_penalty": st.sampled_from([0.0, 3.0]),
        "length_penalty_start": st.sampled_from([0, 3]),
    }
    return st.builds(SamplingParams, **{**choices, **fixed})


@st.composite
def automata(draw: st.DrawFn, *, with_free: bool = True) -> Automaton:
    """Every state can go on or may end; whether an accepting state can be reached is up to chance."""
    count = draw(st.integers(2, 5))
    states = st.integers(0, count - 1)
    accepting = frozenset(draw(st.sets(states, min_size=1)))
    free = frozenset(draw(st.sets(states, max_size=2))) if with_free else frozenset[int]()
    transitions = {
        state: draw(st.dictionaries(TOKENS, states, min_size=0 if state in accepting else 1, max_size=4))
        for state in range(count)
    }
    blocked = frozenset(draw(st.sets(states, max_size=1)))
    return Automaton(transitions, accepting, VOCAB, free, blocked)
