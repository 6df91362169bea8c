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
        free = self._options.max_num_seqs - len(self.running)
        admitted = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
        self.running += admitted
        return admitted

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
        admissible = bool(self.waiting) and len(self.running) < self._options.max_num_seqs
        return not admissible and all(seq.id in paused for seq in self.running)

    def batch(self, paused: Container[str]) -> list[Turn]:
        """The next forward: one step of every sequence that denoises, and prompt chunks up to the budget, the oldest
        first. Sequences whose id is in `paused` sit out.

        A chunk that does not end the prompt ends at a multiple of the block size, so that models whose commit sees
        whole blocks are given whole blocks.
        """
        budget = self._options.prefill_tokens
        turns: list[Turn] = []
        for seq in self.running:
            if seq.id in paused:
                continue
            if seq.status is Status.DENOISING:
                turns.append(Turn(seq, seq.params.block_size or seq.spec.block_size))
                continue
            chunk = _chunk(seq, budget, first=budget == self._options.prefill_tokens)
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
