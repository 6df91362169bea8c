import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine.memory import plan_memory
from clover_agent.errors import LoadFailed
from tests.engine.fakes import spec
from tests.engine.strategies import bounded


@bounded()
@given(st.integers(0, 10**6), st.integers(0, 5000), st.integers(1, 50), st.none() | st.integers(0, 10**6))
def test_a_plan_never_gives_away_more_than_there_is(free: int, fixed: int, token: int, cache: int | None) -> None:
    facts = spec(state_bytes=fixed, token_bytes=token)
    try:
        plan = plan_memory(free, facts, prefix_cache=cache, most_cache=30_000)
    except LoadFailed:
        assert free - (cache or 0) < fixed + token * 3 * facts.block_size
        return
    assert plan.states is not None
    assert plan.states + plan.prefix_cache == free
    assert plan.prefix_cache == cache if cache is not None else plan.prefix_cache <= 30_000
    assert facts.block_size <= plan.max_context <= facts.max_context
    assert fixed + token * (plan.max_context + facts.block_size) <= plan.states


def test_one_request_of_full_length_comes_before_the_cache() -> None:
    facts = spec(state_bytes=1000, token_bytes=10, max_context=500)
    assert plan_memory(6100, facts, prefix_cache=None).prefix_cache == (6100 - 1000 - 10 * 508) // 2
    assert plan_memory(8080, facts, prefix_cache=None).max_context == 500
    assert plan_memory(4000, facts, prefix_cache=0).max_context == 292


def test_too_little_is_said_at_once() -> None:
    with pytest.raises(LoadFailed, match="--max-memory"):
        plan_memory(100, spec(state_bytes=1000, token_bytes=10), prefix_cache=None)


def test_states_of_no_account_only_leave_the_cache() -> None:
    plan = plan_memory(1000, spec(), prefix_cache=None, most_cache=200)
    assert (plan.states, plan.prefix_cache, plan.max_context) == (None, 200, 512)
