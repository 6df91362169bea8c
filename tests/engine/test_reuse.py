"""Prefix reuse through the engine: a hit changes no output, turns go on where the last input ended, nothing leaks."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import Engine, EngineOptions, GenerationRequest
from clover_agent.engine import reuse as module
from clover_agent.engine.reuse import Reuse
from clover_agent.errors import CloverError
from clover_agent.model.protocol import BlockModel, Work
from clover_agent.types import DiffusionStats, SamplingParams, Step
from tests.engine.fakes import FakeModel, FakeState, fake, hashed, spec
from tests.engine.strategies import VOCAB, bounded, sampling
from tests.engine.test_native import SWITCHES
from tests.model.builders import tiny_model
from tests.reference import Reference

ROOM = 1 << 30
GREEDY = SamplingParams(max_tokens=9)
SHORT = SamplingParams(max_tokens=1)
Answer = tuple[list[int], str | None]
PIECES = st.lists(st.integers(4, VOCAB - 1), min_size=1, max_size=12).map(tuple)


@pytest.fixture(autouse=True)
def even_short_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST", 1)


@contextmanager
def running(model: BlockModel, **options: Any) -> Iterator[Engine]:
    engine = Engine(model, EngineOptions(**{"prefix_cache": ROOM, **options}))
    engine.start()
    try:
        yield engine
    finally:
        engine.close()
        engine.check_integrity()


async def ask(
    engine: Engine, name: str, prompt: Sequence[int], keep_at: tuple[int, ...], params: SamplingParams = GREEDY
) -> tuple[Answer, DiffusionStats]:
    steps: list[Step] = []
    async for step in engine.submit(GenerationRequest(name, tuple(prompt), params, keep_at=keep_at)):
        steps.append(step)
    return ([token for step in steps for token in step.tokens], steps[-1].finish), steps[-1].stats


def cached(engine: Engine, name: str, prompt: Sequence[int], *keep_at: int) -> int:
    return asyncio.run(ask(engine, name, prompt, keep_at))[1].cached_tokens


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_a_warm_turn_equals_a_cold_one_on_the_real_model(switches: dict[str, Any]) -> None:
    """Three turns, each after the last with the answer re-rendered in its own tokens or in others; together with two
    other conversations on the same head. Float64."""
    model = tiny_model(**switches)
    head, params = [7, 8, 9] * 7, SamplingParams(max_tokens=11, threshold=0.05)
    served = 0

    async def conversation(engine: Engine, number: int, echo: bool) -> list[tuple[list[int], Answer]]:
        nonlocal served
        prompt, said = [*head, 20 + number, 21], list[tuple[list[int], Answer]]()
        for turn in range(2):
            wish = [*prompt, 5]
            answer, stats = await ask(engine, f"{number}.{turn}", wish, (len(head), len(prompt)), params)
            said.append((wish, answer))
            served += stats.cached_tokens
            prompt = [*wish, *(answer[0] if echo else [33, 34]), 40 + turn, 41, 42]
        return said

    async def everybody(engine: Engine) -> list[list[tuple[list[int], Answer]]]:
        return await asyncio.gather(*(conversation(engine, n, n != 1) for n in range(3)))

    with running(model, prefill_tokens=16, prefill_beside=8) as engine:
        for said in asyncio.run(everybody(engine)):
            for prompt, answer in said:
                with torch.inference_mode():
                    assert answer == Reference(model, tuple(prompt), params).run()
    assert served > 3 * len(head)


WISHES = st.lists(
    st.tuples(st.lists(PIECES, min_size=1, max_size=3), sampling(block_size=st.none()), st.integers(0, 4)),
    min_size=1,
    max_size=5,
)


@bounded(12)
@given(WISHES, st.integers(1, 3), st.sampled_from([600, 3000, ROOM]), st.booleans(), st.sampled_from([5, 16, 2048]))
def test_any_mix_of_requests_equals_the_reference_and_leaves_nothing_behind(
    wishes: list[tuple[list[tuple[int, ...]], SamplingParams, int]], slots: int, room: int, causal: bool, chunk: int
) -> None:
    """Prompts of shared pieces, some twice, some given up half way, in a cache that may be far too small."""
    model = FakeModel(spec(VOCAB, 4, causal_commit=causal), hashed(VOCAB, 1.5))

    async def one(engine: Engine, number: int) -> None:
        pieces, params, patience = wishes[number % len(wishes)]
        prompt = (7, 8, 9, 10, *(token for piece in pieces for token in piece))
        keep = (4, len(prompt) - len(pieces[-1]), len(prompt))
        request = GenerationRequest(str(number), prompt, params, keep_at=keep)
        async with aclosing(engine.submit(request)) as steps:
            if patience == 4:
                await anext(steps)
                return
            said = [step async for step in steps]
        tokens = [token for step in said for token in step.tokens]
        assert (tokens, said[-1].finish) == expected(prompt, params)

    @cache
    def expected(prompt: tuple[int, ...], params: SamplingParams) -> Answer:
        return Reference(FakeModel(model.spec, model.rule), prompt, params).run()

    async def everybody(engine: Engine) -> None:
        await asyncio.gather(*(one(engine, n) for n in range(2 * len(wishes))))

    with running(model, max_num_seqs=slots, prefix_cache=room, prefill_tokens=chunk) as engine:
        asyncio.run(everybody(engine))
    assert all(state.freed for state in model.states)


def fakes(**facts: object) -> FakeModel:
    return FakeModel(spec(VOCAB, 4, **facts), hashed(VOCAB, 1.5))


def test_the_next_turn_goes_on_where_the_last_input_ended() -> None:
    """The generation prompt (3) and the answer come out otherwise in the next turn."""
    first = [5] * 10 + [6] * 5
    with running(fakes()) as engine:
        assert cached(engine, "1", [*first, 3], 10, 15) == 0
        assert cached(engine, "2", [*first, 4, 4, 4, 7, 3], 10, 19) == 15
        assert cached(engine, "another task", [*([5] * 10), 8, 3], 10, 11) == 10


def test_and_through_the_answer_where_that_renders_to_the_same_tokens() -> None:
    prompt = [5] * 10 + [3]
    with running(fakes()) as engine:
        (tokens, _), _ = asyncio.run(ask(engine, "1", prompt, (10,)))
        assert len(tokens) > 4
        committed = len(prompt) + (len(tokens) - 1) // 4 * 4
        assert cached(engine, "2", [*prompt, *tokens, 7, 3], 10) == committed


def test_commits_that_see_whole_blocks_are_cut_between_blocks_and_answers_are_not_reused() -> None:
    prompt = [5] * 10 + [3]
    with running(fakes(causal_commit=False)) as engine:
        (tokens, _), _ = asyncio.run(ask(engine, "1", prompt, (10,)))
        assert cached(engine, "2", [*prompt, *tokens, 7, 3], 10) == 8


def test_prompts_in_flight_wait_for_the_one_that_is_ahead() -> None:
    """Eight at once with one head: it is computed once."""
    model = fakes()
    head = (5,) * 40

    async def everybody(engine: Engine) -> list[int]:
        asked = (ask(engine, str(n), (*head, 6 + n, 3), (40, 41)) for n in range(8))
        return [stats.cached_tokens for _, stats in await asyncio.gather(*asked)]

    with running(model, prefill_tokens=16) as engine:
        assert sorted(asyncio.run(everybody(engine))) == [0] + [40] * 7
    assert sum(sum(map(len, state.advances[:4])) >= 40 for state in model.states) == 1


def test_the_one_that_waits_goes_on_if_the_one_ahead_is_cancelled() -> None:
    async def both(engine: Engine) -> Answer:
        ahead = asyncio.create_task(ask(engine, "ahead", (5,) * 400, (400,), SamplingParams(max_tokens=90)))
        await asyncio.sleep(0)
        behind = asyncio.create_task(ask(engine, "behind", (5,) * 400, (400,)))
        await asyncio.sleep(0)
        ahead.cancel()
        return (await behind)[0]

    model = fakes()
    with running(model, prefill_tokens=4) as engine:
        assert asyncio.run(both(engine)) == Reference(model, (5,) * 400, GREEDY).run()


def test_a_failing_request_lets_go_of_what_it_ran_on() -> None:
    def poisoned(work: Sequence[Work]) -> None:
        if any(13 in (*fake(w.state).tokens, *w.advance) for w in work):
            raise RuntimeError("bad")

    model = fakes()
    model.fail = poisoned
    with running(model) as engine:
        assert asyncio.run(ask(engine, "1", [5] * 10, (8,), SHORT))[1].cached_tokens == 0
        with pytest.raises(CloverError):
            cached(engine, "2", [5] * 10 + [13], 8)
        engine._runner.reuse.cache.check_integrity()
        assert engine.stats().cache.hits == 1


def test_memory_is_given_up_before_a_request_fails() -> None:
    model = fakes()
    failures = iter([RuntimeError("DefaultCPUAllocator: can't allocate memory")])

    def once(work: Sequence[Work]) -> None:
        if 13 in work[0].advance and (error := next(failures, None)):
            raise error

    model.fail = once
    with running(model) as engine:
        for prompt in ([5] * 10, [6, 13]):
            asyncio.run(ask(engine, "1", prompt, (8,), SHORT))
        assert engine.stats().cache.evicted > 0
        assert engine.stats().failed == 0


def test_a_cache_that_is_found_damaged_is_emptied(caplog: pytest.LogCaptureFixture) -> None:
    kept, state = Reuse(ROOM, spec()), FakeState()
    state.tokens = [5] * 8
    kept.cache.insert(b"key", state, None)
    kept.check_idle()
    assert kept.cache.stats().entries == 1
    kept.cache._nbytes += 1
    kept.check_idle()
    assert kept.cache.stats().entries == 0
    assert "damaged" in caplog.text


def test_without_room_nothing_is_kept() -> None:
    with running(fakes(), prefix_cache=0) as engine:
        assert [cached(engine, str(n), [5] * 10, 8) for n in range(2)] == [0, 0]
        assert engine.stats().cache.queries == 0
