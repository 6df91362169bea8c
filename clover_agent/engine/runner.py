"""The only code of the engine that calls the model: turns of sequences -> forward -> logits -> proposals -> steps.

Batches what the scheduler chose into one ragged forward. Knows no queues and no threads.
"""

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from clover_agent.engine import denoise
from clover_agent.engine.options import EngineOptions
from clover_agent.engine.processors import History, Query, penalises
from clover_agent.engine.request import Sequence
from clover_agent.engine.reuse import Reuse
from clover_agent.engine.sampler import Proposals, propose
from clover_agent.engine.scheduler import Turn
from clover_agent.errors import CloverError, GenerationFailed
from clover_agent.model.protocol import BlockModel, Work

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Task:
    """One sequence's part of a forward. The query is made once: it draws random numbers."""

    seq: Sequence
    work: Work
    query: Query | None
    position: int  # tokens in the state once the forward is done
    done: bool = False  # the forward went well; only what follows it may be repeated


class Runner:
    """Runs the model for sequences. Owns the model and what is kept of earlier sequences."""

    def __init__(self, model: BlockModel, options: EngineOptions) -> None:
        self._model = model
        self._options = options
        self.spec = model.spec
        self.reuse = Reuse(options.prefix_cache, model.spec)

    def start(self, seq: Sequence) -> CloverError | None:
        """Give an admitted sequence its state and open its first block. Returns what failed."""
        try:
            history = History(seq.request.prompt_ids, self.spec.vocab_size) if penalises(seq.params) else None
            state = self._model.new_state()
            self.reuse.start(seq, state)
            seq.start(state, history)
            denoise.begin(seq)
        except Exception as error:
            return _as_failure(error)
        return None

    def step(self, turns: Seq[Turn]) -> dict[str, CloverError]:
        """One forward and one denoising step for every turn. Returns the error of each sequence that failed.

        When the forward of the batch fails, every sequence is run alone, so that only the culprit fails.
        """
        tasks = [self._task(turn) for turn in turns]
        try:
            return self._attempt(tasks)
        except Exception as error:
            if len(tasks) == 1 and not self._relieve(error):
                return {tasks[0].seq.id: _as_failure(error)}
            self._relieve(error)
            log.warning("A forward over %d requests failed; running them one by one.", len(tasks), exc_info=error)
        failures: dict[str, CloverError] = {}
        for task in tasks:
            if task.done and task.query is None:
                continue
            try:
                failures |= self._attempt([task])
            except Exception as error:
                failures[task.seq.id] = _as_failure(error)
        return failures

    def _task(self, turn: Turn) -> _Task:
        work = turn.seq.work(turn.advance)
        query = turn.seq.query() if work.block else None
        return _Task(turn.seq, work, query, work.state.length + len(work.advance))

    def _attempt(self, tasks: Seq[_Task]) -> dict[str, CloverError]:
        works = [self._work(task) for task in tasks]
        hidden = self._model.forward(works)
        for task in tasks:
            if not task.done:
                task.seq.forwarded(task.work)
                task.done = True
                self.reuse.reached(task.seq)
        rows: list[int] = []
        first = 0
        for task in tasks:
            if task.query is not None:
                rows += (first + position for position in task.seq.block.masked())
                first += len(task.work.block)
        if not rows:
            return {}
        denoising = [(task.seq, task.query) for task in tasks if task.query is not None]
        proposals = propose(
            self._model.logits(hidden, rows),
            [query for _, query in denoising],
            mask_token_id=self.spec.mask_token_id,
            candidates=self._options.candidates,
        )
        return self._denoise([seq for seq, _ in denoising], proposals)

    def _relieve(self, error: Exception) -> bool:
        """Out of memory: give up the prefix cache. Whether there was something to give up."""
        exhausted = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
        return exhausted and self.reuse.give_up()

    def _work(self, task: _Task) -> Work:
        """The task's work; after a failed forward what is left of it. A state that a failed forward has moved is of
        no further use."""
        work = task.work
        expected = task.position if task.done else task.position - len(work.advance)
        if work.state.length != expected:
            raise GenerationFailed("A failed forward pass left this request's state unusable.")
        return Work(work.state, (), work.block) if task.done else work

    def _denoise(self, seqs: Seq[Sequence], proposals: Seq[Proposals]) -> dict[str, CloverError]:
        failures: dict[str, CloverError] = {}
        for seq, proposal in zip(seqs, proposals, strict=True):
            try:
                denoise.step(seq, proposal, self._options)
            except Exception as error:
                failures[seq.id] = _as_failure(error)
        return failures


def _as_failure(error: Exception) -> CloverError:
    if isinstance(error, CloverError):
        return error
    log.error("A request failed.", exc_info=error)
    failure = GenerationFailed("The model failed on this request; the server's log has the details.")
    failure.__cause__ = error
    return failure
