"""Batches: ragged works, failures that stay with their request, and states that a failure has moved."""

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import pytest

from clover_agent.engine import EngineOptions
from clover_agent.engine.request import Sequence
from clover_agent.engine.runner import Runner
from clover_agent.engine.scheduler import Scheduler
from clover_agent.errors import CloverError, GenerationFailed, NonFiniteLogits
from clover_agent.model.protocol import Hidden, Logits, Work
from clover_agent.types import SamplingParams
from tests.engine.fakes import FakeModel, fake, hashed, spec
from tests.engine.harness import drive, request
from tests.engine.strategies import VOCAB

POISON = 13


class FailingLogits(FakeModel):
    """The head fails where a poisoned sequence is in the batch: by then every state has moved."""

    def logits(self, hidden: Hidden, rows: Seq[int]) -> Logits:
        contexts = hidden.contexts  # type: ignore[attr-defined]
        if any(POISON in tokens[:3] for tokens, _, _ in contexts):
            raise RuntimeError("bad head")
        return super().logits(hidden, rows)


def poisoned(work: Seq[Work]) -> None:
    if any(POISON in (*fake(w.state).tokens[:3], *w.advance[:3]) for w in work):
        raise RuntimeError("out of memory")


def half_moved(work: Seq[Work]) -> None:
    """Fails after the first state of a batch has moved."""
    if len(work) > 1:
        fake(work[0].state).tokens += work[0].advance
        raise RuntimeError("died half way")


def together(model: FakeModel, prompts: list[tuple[int, ...]]) -> tuple[list[Sequence], dict[str, CloverError]]:
    runner, scheduler = Runner(model, EngineOptions()), Scheduler(EngineOptions())
    params = SamplingParams(max_tokens=10, temperature=0.8, seed=3)
    seqs = [Sequence(request(params, prompt, name=str(i)), model.spec) for i, prompt in enumerate(prompts)]
    for seq in seqs:
        scheduler.add(seq)
    for seq in scheduler.admit():
        assert runner.start(seq) is None
    failures: dict[str, CloverError] = {}
    while scheduler.running:
        failures |= runner.step(scheduler.batch(()))
        for seq in list(scheduler.running):
            if seq.finished or seq.id in failures:
                scheduler.remove(seq)
    return seqs, failures


PROMPTS: list[tuple[int, ...]] = [(5, 6), (7, POISON, 8), (9, 9, 9, 9)]


@pytest.mark.parametrize(
    "model",
    [FakeModel(spec(VOCAB), hashed(VOCAB, 1.0), fail=poisoned), FailingLogits(spec(VOCAB), hashed(VOCAB, 1.0))],
    ids=["forward", "head"],
)
def test_only_the_culprit_fails_and_the_others_are_none_the_wiser(model: FakeModel) -> None:
    seqs, failures = together(model, PROMPTS)
    assert list(failures) == ["1"]
    assert isinstance(failures["1"], GenerationFailed)
    assert isinstance(failures["1"].__cause__, RuntimeError)
    clean = FakeModel(spec(VOCAB), hashed(VOCAB, 1.0))
    params = SamplingParams(max_tokens=10, temperature=0.8, seed=3)
    for i in (0, 2):
        assert seqs[i].output == drive(clean, request(params, PROMPTS[i]))[0].output


def test_non_finite_logits_end_their_request_only() -> None:
    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
        return hashed(VOCAB, 1.0)(tokens, block, position) + (np.nan if POISON in tokens[:3] else 0)

    seqs, failures = together(FakeModel(spec(VOCAB), rule), PROMPTS)
    assert {id_: type(error) for id_, error in failures.items()} == {"1": NonFiniteLogits}
    assert seqs[0].finished
    assert seqs[2].finished


def test_a_state_that_a_failed_forward_has_moved_is_not_used_again() -> None:
    seqs, failures = together(FakeModel(spec(VOCAB), hashed(VOCAB, 1.0), fail=half_moved), [(5, 6), (7, 8)])
    assert "unusable" in str(failures["0"])
    assert list(failures) == ["0"]
    assert seqs[1].finished


def test_a_request_that_cannot_start_is_reported() -> None:
    model = FakeModel(spec(VOCAB), hashed(VOCAB))
    model.new_state = lambda: (_ for _ in ()).throw(RuntimeError("no memory"))  # type: ignore[method-assign]
    seq = Sequence(request(SamplingParams()), model.spec)
    failure = Runner(model, EngineOptions()).start(seq)
    assert isinstance(failure, GenerationFailed)


def test_a_failing_constraint_fails_its_request_only() -> None:
    class Broken:
        free = True
        complete = False

        def accepting(self) -> bool:
            raise ValueError("a matcher in its error state")

    runner, scheduler = Runner(FakeModel(spec(VOCAB), hashed(VOCAB)), EngineOptions()), Scheduler(EngineOptions())
    good = Sequence(request(SamplingParams(max_tokens=3), name="good"), runner.spec)
    bad = Sequence(request(SamplingParams(), name="bad", constraint=Broken()), runner.spec)  # type: ignore[arg-type]
    for seq in (good, bad):
        scheduler.add(seq)
    for seq in scheduler.admit():
        runner.start(seq)
    failures = runner.step(scheduler.batch(()))
    assert list(failures) == ["bad"]
    assert good.output
