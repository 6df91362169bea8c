"""The engine as its users see it: streams, batches, cancel, deadline, back-pressure, shutdown, death."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import Engine, EngineOptions, GenerationRequest
from clover_agent.errors import (
    CloverError,
    ContextLengthExceeded,
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from clover_agent.model.protocol import Work
from clover_agent.types import SamplingParams, Step
from tests.engine.fakes import AutomatonConstraint, FakeModel, fake, hashed, peaked, spec
from tests.engine.harness import request
from tests.engine.strategies import VOCAB, automata, bounded, sampling
from tests.reference import Reference

ENDLESS = SamplingParams(max_tokens=400, ignore_eos=True, threshold=1.0)


class Gate:
    """Lets the test decide when a forward may run, and see that one is waiting. Open once `open` was called."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)
        self._open = False

    def __call__(self, work: Sequence[Work]) -> None:
        if not self._open:
            self.reached.release()
            self._allowed.acquire()

    def let(self, forwards: int = 1) -> None:
        for _ in range(forwards):
            self._allowed.release()

    def open(self) -> None:
        self._open = True
        self.let(8)


def slow_reader_model() -> FakeModel:
    return FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5))


@contextmanager
def running(model: FakeModel, options: EngineOptions | None = None) -> Iterator[Engine]:
    engine = Engine(model, options)
    engine.start()
    try:
        yield engine
    finally:
        if isinstance(model.fail, Gate):
            model.fail.open()
        engine.close()
        engine.check_integrity()
        assert all(state.freed for state in model.states)


async def read(steps: AsyncIterator[Step]) -> tuple[list[int], str | None]:
    tokens, finish = list[int](), None
    async for step in steps:
        tokens += step.tokens
        finish = step.finish
    return tokens, finish


WISHES = st.lists(
    st.tuples(sampling(), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12).map(tuple), st.integers(0, 3)),
    min_size=1,
    max_size=6,
)


@bounded(25)
@given(WISHES, st.integers(1, 4), st.integers(1, 20), st.integers(0, 9))
def test_requests_coming_and_going_equal_the_reference(
    wishes: list[tuple[SamplingParams, tuple[int, ...], int]], slots: int, chunk: int, seed: int
) -> None:
    """Each starts after some steps of the first; some are dropped half way; the others must not notice."""
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 1.5, seed))

    async def one(engine: Engine, index: int) -> tuple[list[int], str | None] | None:
        params, prompt, patience = wishes[index]
        async with aclosing(engine.submit(GenerationRequest(str(index), prompt, params))) as steps:
            if patience == 3:  # a client that hangs up after its first step
                await anext(steps)
                return None
            for _ in range(patience):
                await asyncio.sleep(0)
            return await read(steps)

    async def everybody(engine: Engine) -> list[tuple[list[int], str | None] | None]:
        return await asyncio.gather(*(one(engine, i) for i in range(len(wishes))))

    with running(model, EngineOptions(max_num_seqs=slots, prefill_tokens=chunk)) as engine:
        answers = asyncio.run(everybody(engine))
    for (params, prompt, _), answer in zip(wishes, answers, strict=True):
        assert answer is None or answer == Reference(model, prompt, params).run()


@bounded(15)
@given(st.lists(st.tuples(automata(), sampling()), min_size=2, max_size=4), st.integers(0, 9))
def test_constrained_requests_do_not_influence_each_other(
    wishes: list[tuple[object, SamplingParams]], seed: int
) -> None:
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 1.5, seed))

    async def answer(engine: Engine, chosen: Sequence[int]) -> list[object]:
        async def one(i: int) -> object:
            automaton, params = wishes[i]
            constraint = AutomatonConstraint(automaton)  # type: ignore[arg-type]
            try:
                return await read(engine.submit(request(params, constraint=constraint, name=str(i))))
            except CloverError as error:
                return repr(error)

        return await asyncio.gather(*(one(i) for i in chosen))

    with running(model) as engine:
        together = asyncio.run(answer(engine, range(len(wishes))))
        alone = [asyncio.run(answer(engine, [i]))[0] for i in range(len(wishes))]
    assert together == alone


async def test_closing_the_stream_frees_the_slot_within_a_step() -> None:
    """One slot: the second request can only be answered because the first one's was freed."""
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5))
    with running(model, EngineOptions(max_num_seqs=1)) as engine:
        async with aclosing(engine.submit(request(ENDLESS, name="gone"))) as steps:
            await anext(steps)
        tokens, _ = await read(engine.submit(request(SamplingParams(max_tokens=3), name="next")))
        assert len(tokens) <= 3
        stats = engine.stats()
    assert (stats.cancelled, stats.finished, stats.running) == (1, 1, 0)


async def test_cancel_takes_effect_between_two_forwards_and_may_be_repeated() -> None:
    gate = Gate()
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5), fail=gate)
    with running(model, EngineOptions(max_num_seqs=1)) as engine:
        reader = asyncio.create_task(read(engine.submit(request(ENDLESS, name="a"))))
        await asyncio.to_thread(gate.reached.acquire)
        for name in ("a", "a", "never heard of"):
            engine.cancel(name)
        forwards = len(model.forwards)
        gate.open()
        await read(engine.submit(request(SamplingParams(max_tokens=1), name="b")))
        assert sum(len(works) for works in model.forwards) - forwards <= 2
        assert engine.stats().cancelled == 1
        with pytest.raises(GenerationFailed, match="cancelled"):
            await reader


async def test_a_waiting_request_can_be_cancelled_and_overload_is_refused() -> None:
    gate = Gate()
    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4] * 20, 3), fail=gate)
    with running(model, EngineOptions(max_num_seqs=1, max_waiting=1)) as engine:
        first = asyncio.create_task(read(engine.submit(request(SamplingParams(), name="a"))))
        await asyncio.to_thread(gate.reached.acquire)
        waiting = asyncio.create_task(read(engine.submit(request(SamplingParams(), name="b"))))
        await asyncio.sleep(0)
        refused = asyncio.create_task(read(engine.submit(request(SamplingParams(), name="c"))))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.open()
        with pytest.raises(Overloaded):
            await refused
        assert await first == ([4] * 20, "stop")


async def test_a_deadline_ends_running_and_waiting_requests() -> None:
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5))
    late = [GenerationRequest(name, (5, 6), ENDLESS, deadline_s=0.0) for name in "ab"]
    with running(model, EngineOptions(max_num_seqs=1)) as engine:
        for wish in late:
            with pytest.raises(DeadlineExceeded):
                await read(engine.submit(wish))
        assert engine.stats().failed == 2
        assert engine.healthy


async def test_a_slow_reader_pauses_its_own_request_only() -> None:
    model = slow_reader_model()
    with running(model, EngineOptions(outbox_size=2)) as engine:
        async with aclosing(engine.submit(request(ENDLESS, name="slow"))) as slow:
            first = await anext(slow)
            tokens, _ = await read(engine.submit(request(SamplingParams(max_tokens=60, ignore_eos=True), name="fast")))
            assert len(tokens) == 60
            unread = [await anext(slow) for _ in range(10)]
            assert [len(step.tokens) for step in [first, *unread]] == [1] * 11
            # it advanced by what was read plus what the outbox holds, not by what the fast one took
            assert unread[0].stats.denoising_steps == 2
            assert unread[9].stats.denoising_steps == 11


async def test_failures_of_one_request_leave_the_others_alone() -> None:
    def fail(work: Sequence[Work]) -> None:
        if any(13 in (*w.advance, *fake(w.state).tokens[:3]) for w in work):
            raise RuntimeError("out of memory")

    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4] * 9, 3), fail=fail)
    with running(model) as engine:
        bad = asyncio.create_task(read(engine.submit(request(SamplingParams(), (13, 5, 6), name="bad"))))
        good = asyncio.create_task(read(engine.submit(request(SamplingParams(), name="good"))))
        assert await good == ([4] * 9, "stop")
        with pytest.raises(GenerationFailed, match="log"):
            await bad
        assert await read(engine.submit(request(SamplingParams(), name="after"))) == ([4] * 9, "stop")
        assert engine.healthy


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (request(SamplingParams(), ()), InvalidRequest),
        (request(SamplingParams(), (VOCAB,)), InvalidRequest),
        (request(SamplingParams(), (-1,)), InvalidRequest),
        (request(SamplingParams(block_size=0)), InvalidRequest),
        (request(SamplingParams(logit_bias=((VOCAB, 1.0),))), InvalidRequest),
        (request(SamplingParams(stop_token_ids=(-3,))), InvalidRequest),
        (request(SamplingParams(block_size=257)), InvalidRequest),
        (request(SamplingParams(), (5,) * 512), ContextLengthExceeded),
    ],
)
async def test_bad_requests_are_refused(wish: GenerationRequest, error: type[CloverError]) -> None:
    with running(slow_reader_model()) as engine:
        with pytest.raises(error):
            await read(engine.submit(wish))
        assert len((await read(engine.submit(request(SamplingParams(max_tokens=2, ignore_eos=True)))))[0]) == 2


async def test_an_id_is_taken_while_its_request_runs() -> None:
    with running(slow_reader_model()) as engine:
        async with aclosing(engine.submit(request(ENDLESS))) as steps:
            await anext(steps)
            with pytest.raises(InvalidRequest, match="running"):
                await read(engine.submit(request(ENDLESS)))
            await anext(steps)  # refusing the second has not cancelled the first
        await read(engine.submit(request(SamplingParams(max_tokens=1))))


async def test_close_drains_what_runs_and_refuses_what_comes() -> None:
    gate = Gate()
    model = FakeModel(spec(VOCAB, 4), peaked(VOCAB, [4] * 20, 3), fail=gate)
    engine = Engine(model)
    with pytest.raises(Unavailable):
        await read(engine.submit(request(SamplingParams())))
    engine.start()
    reader = asyncio.create_task(read(engine.submit(request(SamplingParams()))))
    await asyncio.to_thread(gate.reached.acquire)
    closing = asyncio.create_task(asyncio.to_thread(engine.close, 60.0))
    while engine.healthy:  # noqa: ASYNC110 - `close` blocks: only its effect can be watched
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await read(engine.submit(request(SamplingParams(), name="late")))
    gate.open()
    assert await reader == ([4] * 20, "stop")
    await closing
    engine.close()
    assert model.states[0].freed


async def test_close_without_patience_ends_open_streams_with_an_error() -> None:
    gate = Gate()
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5), fail=gate)
    engine = Engine(model)
    engine.start()
    reader = asyncio.create_task(read(engine.submit(request(ENDLESS))))
    await asyncio.to_thread(gate.reached.acquire)
    closing = asyncio.create_task(asyncio.to_thread(engine.close))
    while engine.healthy:  # noqa: ASYNC110 - `close` blocks: only its effect can be watched
        await asyncio.sleep(0)
    gate.open()
    await closing
    with pytest.raises(Unavailable, match="shutting down"):
        await reader


async def test_a_dead_thread_ends_every_stream_and_shows(caplog: pytest.LogCaptureFixture) -> None:
    class Death(BaseException):
        pass

    def die(work: Sequence[Work]) -> None:
        raise Death

    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB), fail=die)
    engine = Engine(model)
    engine.start()
    readers = [read(engine.submit(request(SamplingParams(), name=name))) for name in "abc"]
    outcomes = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    assert not engine.healthy
    assert "died" in caplog.text
    with pytest.raises(Unavailable):
        await read(engine.submit(request(SamplingParams())))
    engine.close()


def test_several_event_loops_share_an_engine() -> None:
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 1.0))
    params = SamplingParams(max_tokens=20)
    answers: dict[int, object] = {}

    def client(engine: Engine, number: int) -> None:
        prompt = (5, 3 + number)
        answers[number] = asyncio.run(read(engine.submit(GenerationRequest(str(number), prompt, params))))

    with running(model, EngineOptions(max_num_seqs=3)) as engine:
        threads = [threading.Thread(target=client, args=(engine, n)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {n: Reference(model, (5, 3 + n), params).run() for n in range(5)}


def test_a_loop_that_is_gone_costs_its_request_only() -> None:
    gate = Gate()
    model = FakeModel(spec(VOCAB, 4), hashed(VOCAB, 0.5), fail=gate)

    async def abandon(engine: Engine) -> None:
        steps = engine.submit(request(ENDLESS, name="abandoned"))
        reading = asyncio.ensure_future(anext(steps))
        await asyncio.to_thread(gate.reached.acquire)
        assert not reading.done()

    with running(model) as engine:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(abandon(engine))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        gate.open()
        tokens, _ = asyncio.run(read(engine.submit(request(SamplingParams(max_tokens=2, ignore_eos=True), name="b"))))
        assert len(tokens) == 2
