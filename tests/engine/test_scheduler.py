import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import EngineOptions
from clover_agent.engine.request import Sequence, Status
from clover_agent.engine.scheduler import Scheduler
from clover_agent.errors import Overloaded
from clover_agent.types import SamplingParams
from tests.engine.fakes import FakeState, spec
from tests.engine.harness import request
from tests.engine.strategies import bounded


def sequence(name: str, prompt: int = 3, deadline: float | None = None) -> Sequence:
    return Sequence(request(SamplingParams(), tuple([5] * prompt), name=name), spec(), deadline)


def started(scheduler: Scheduler) -> None:
    for seq in scheduler.admit():
        seq.start(FakeState(), None)
        seq.open_block()


def test_slots_then_queue_then_refusal() -> None:
    scheduler = Scheduler(EngineOptions(max_num_seqs=2, max_waiting=1))
    seqs = [sequence(str(i)) for i in range(3)]
    for seq in seqs:
        scheduler.add(seq)
    with pytest.raises(Overloaded, match="try again"):
        scheduler.add(sequence("late"))
    assert scheduler.admit() == seqs[:2]
    assert scheduler.admit() == []
    scheduler.remove(seqs[0])
    assert scheduler.admit() == [seqs[2]]
    scheduler.add(sequence("late"))


def test_a_waiting_sequence_can_leave() -> None:
    scheduler = Scheduler(EngineOptions(max_num_seqs=1))
    first, second = sequence("a"), sequence("b")
    scheduler.add(first)
    scheduler.add(second)
    scheduler.admit()
    scheduler.remove(second)
    scheduler.remove(second)
    assert (list(scheduler.waiting), scheduler.running) == ([], [first])


@bounded()
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 40))
def test_prompts_are_fed_in_bounded_chunks_beside_denoising(prompts: list[int], budget: int) -> None:
    scheduler = Scheduler(EngineOptions(prefill_tokens=50, prefill_beside=budget))
    for i, length in enumerate(prompts):
        scheduler.add(sequence(str(i), length))
    started(scheduler)
    for _ in range(sum(prompts) + len(prompts)):
        turns = scheduler.batch(())
        prefill = [turn for turn in turns if turn.seq.status is Status.PREFILL]
        most = budget if len(prefill) < len(turns) else 50
        assert sum(turn.advance for turn in prefill) <= max(most, spec().block_size)
        for turn in prefill:
            fed = len(turn.seq.request.prompt_ids) - turn.seq.prompt_left + turn.advance
            assert fed % turn.seq.spec.block_size == 0 or turn.advance == turn.seq.prompt_left
        denoising = [turn.seq for turn in turns if turn.seq.status is Status.DENOISING]
        assert denoising == [seq for seq in scheduler.running if seq.status is Status.DENOISING]
        for turn in turns:
            work = turn.seq.work(turn.advance)
            assert bool(work.block) == (turn.seq.prompt_left <= turn.advance)
            assert isinstance(work.state, FakeState)
            work.state.tokens += work.advance
            turn.seq.forwarded(work)
        if len(denoising) == len(prompts):
            break
    assert all(seq.status is Status.DENOISING for seq in scheduler.running)


def test_chunks_end_at_multiples_of_the_block_size() -> None:
    scheduler = Scheduler(EngineOptions(prefill_tokens=20))
    scheduler.add(sequence("a", 50))
    started(scheduler)
    [turn] = scheduler.batch(())
    assert turn.advance == 16


def test_paused_sequences_sit_out() -> None:
    scheduler = Scheduler(EngineOptions())
    for name in "abc":
        scheduler.add(sequence(name))
    started(scheduler)
    assert [turn.seq.id for turn in scheduler.batch({"b"})] == ["a", "c"]


def test_stalled_means_that_only_a_command_can_help() -> None:
    scheduler = Scheduler(EngineOptions(max_num_seqs=1))
    assert scheduler.stalled(())
    scheduler.add(sequence("a"))
    assert not scheduler.stalled(())
    started(scheduler)
    scheduler.add(sequence("waits behind a"))
    assert not scheduler.stalled(())
    assert scheduler.stalled({"a"})


def test_deadlines_count_while_waiting() -> None:
    scheduler = Scheduler(EngineOptions(max_num_seqs=1))
    seqs = [sequence("a", deadline=5.0), sequence("b", deadline=3.0), sequence("c")]
    for seq in seqs:
        scheduler.add(seq)
    scheduler.admit()
    assert scheduler.next_deadline() == 3.0
    assert scheduler.expired(2.9) == []
    assert scheduler.expired(3.0) == [seqs[1]]
    assert scheduler.expired(9.0) == seqs[:2]


def test_prompts_on_their_way_to_one_mark_come_one_after_the_other() -> None:
    scheduler = Scheduler(EngineOptions())
    for name, marks in (("a", {8: b"head", 30: b"a"}), ("b", {8: b"head", 20: b"b"}), ("c", {})):
        scheduler.add(sequence(name, 40))
        scheduler.waiting[-1].marks = marks
    started(scheduler)
    turns = scheduler.batch(())
    assert [(turn.seq.id, turn.advance) for turn in turns] == [("a", 8), ("c", 40)]
    assert [(turn.seq.id, turn.advance) for turn in scheduler.batch({"a"})] == [("b", 8), ("c", 40)]
    state = turns[0].seq.state
    assert isinstance(state, FakeState)
    state.tokens += [5] * 8
    turns[0].seq.forwarded(turns[0].seq.work(8))
    assert [(turn.seq.id, turn.advance) for turn in scheduler.batch(())] == [("a", 22), ("b", 8), ("c", 40)]


def test_a_request_waits_until_what_it_may_grow_to_fits() -> None:
    facts = spec(state_bytes=100, token_bytes=1)
    scheduler = Scheduler(EngineOptions(state_memory=400))
    lengths = {"fits": 50, "too big beside it": 150, "behind": 3}
    for name, new in lengths.items():
        scheduler.add(Sequence(request(SamplingParams(max_tokens=new), name=name), facts))
    [first] = scheduler.admit()
    assert scheduler.reserved == 100 + 3 + 50 + 8
    assert scheduler.admit() == []
    first.start(FakeState(), None)
    first.open_block()
    assert scheduler.stalled({"fits"})
    scheduler.remove(first)
    assert not scheduler.stalled(())
    assert [seq.id for seq in scheduler.admit()] == ["too big beside it", "behind"]


def test_what_is_larger_than_the_memory_runs_alone() -> None:
    facts = spec(token_bytes=10)
    scheduler = Scheduler(EngineOptions(state_memory=400))
    for name in "ab":
        scheduler.add(Sequence(request(SamplingParams(max_tokens=300), name=name), facts))
    assert [seq.id for seq in scheduler.admit()] == ["a"]
    assert scheduler.admit() == []
