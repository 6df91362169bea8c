"""Who runs next: admission, prompt chunks between denoising steps, deadlines, cancel. No tensors, no threads."""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass

from clover_agent.engine.options import EngineOptions
from clover_agent.engine.request import Sequence, Status
from clover_agent.errors import Overloaded


@dataclass(frozen=True, slots=True)
class Turn:
    """A sequence's share of the next forward: at most `advance` of its pending tokens, and its block if that is all."""

    seq: Sequence
    advance: int


class Scheduler:
    """First come, first served. `waiting` and `running` hold each live sequence exactly once."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, seq: Sequence) -> None:
        """Queue a sequence. Raises `Overloaded` if the queue is full."""
        if len(self.waiting) + len(self.running) >= self._options.max_num_seqs + self._options.max_waiting:
            raise Overloaded("The engine's queue is full; try again in a moment.", retry_after_s=1)
        self.waiting.append(seq)

    def admit(self) -> list[Sequence]:
        """Move sequences from the queue into free slots and return them; the caller starts them."""
        admitted = []
        while self._admissible():
            admitted.append(self.waiting.popleft())
            self.running.append(admitted[-1])
        return admitted

    def _admissible(self) -> bool:
        """Whether the request that has waited longest can have a place: a slot, and memory for all that it may grow
        to. One that runs alone always can."""
        if not self.waiting or len(self.running) >= self._options.max_num_seqs:
            return False
        limit = self._options.state_memory
        return limit is None or not self.running or self.reserved + self.waiting[0].state_bytes <= limit

    @property
    def reserved(self) -> int:
        """Bytes that the states of the running sequences may grow to."""
        return sum(seq.state_bytes for seq in self.running)

    def remove(self, seq: Sequence) -> None:
        """Free the place of a sequence that has ended, was cancelled or has failed."""
        if seq in self.running:
            self.running.remove(seq)
        elif seq in self.waiting:
            self.waiting.remove(seq)

    def expired(self, now: float) -> list[Sequence]:
        """Sequences whose deadline has passed, waiting ones included."""
        return [s for s in (*self.running, *self.waiting) if s.deadline is not None and s.deadline <= now]

    def next_deadline(self) -> float | None:
        return min((s.deadline for s in (*self.running, *self.waiting) if s.deadline is not None), default=None)

    def stalled(self, paused: Container[str]) -> bool:
        """Nothing can run: no sequence that holds a slot may, and none that waits can have one."""
        return not self._admissible() and all(seq.id in paused for seq in self.running)

    def batch(self, paused: Container[str]) -> list[Turn]:
        """The next forward: one step of every sequence that denoises, and prompt chunks up to the budget, the oldest
        first. Sequences whose id is in `paused` sit out.

        A chunk ends at a mark, at the end of the prompt, or at a multiple of the block size, so that models whose
        commit sees whole blocks are given whole blocks. Where an older prompt is on its way to the same mark, a prompt
        waits: it will find the state in the prefix cache.
        """
        active = [seq for seq in self.running if seq.id not in paused]
        turns = [Turn(s, s.params.block_size or s.spec.block_size) for s in active if s.status is Status.DENOISING]
        budget = whole = self._options.prefill_beside if turns else self._options.prefill_tokens
        coming: set[bytes] = set()
        for seq in active:
            if seq.status is not Status.PREFILL or not coming.isdisjoint(seq.marks_ahead):
                continue
            coming.update(seq.marks_ahead)
            chunk = min(_chunk(seq, budget, first=budget == whole), len(seq.pending[0]))
            if chunk > 0:
                turns.append(Turn(seq, chunk))
                budget -= chunk
        return turns


def _chunk(seq: Sequence, budget: int, *, first: bool) -> int:
    """Prompt tokens of `seq` that fit into the budget. Only the end of the prompt may end inside a block; the first
    prompt of a forward gets a block even where the budget is smaller, so that prefill never stands still."""
    todo, size = seq.prompt_left, seq.spec.block_size
    if todo <= budget:
        return todo
    done = len(seq.request.prompt_ids) - todo
    end = (done + budget) // size * size
    if end <= done and first:
        end = (done // size + 1) * size
    return min(max(0, end - done), todo)
