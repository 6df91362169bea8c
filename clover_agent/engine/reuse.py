"""What sequences take from the prefix cache and what they leave in it. Knows no chat: lengths of prompts only.

A request names the lengths of its prompt whose states are worth keeping; prefill stops there for a snapshot. What an
answer committed is kept at its end, if a later prompt that spells the same tokens would lead to the same state.
"""

import logging
from collections.abc import Iterable

from clover_agent.engine.prefix_cache import Entry, PrefixCache
from clover_agent.engine.request import Sequence, Status
from clover_agent.model.protocol import ModelSpec, State

log = logging.getLogger(__name__)

SHORTEST = 48  # tokens that are worth a forward of their own and a snapshot


class Reuse:
    """The prefix cache, as the engine uses it. Every sequence goes through `start`, then `end`."""

    def __init__(self, limit: int, spec: ModelSpec) -> None:
        self.cache = PrefixCache(limit)
        self._limit = limit
        self._spec = spec

    def start(self, seq: Sequence, state: State) -> None:
        """Before `seq` starts on a fresh state: mark where states are to be kept, and give it the longest head of the
        prompt that there is."""
        if not self.cache.enabled:
            return
        lengths = {self._cut(length) for length in seq.request.keep_at}
        ids = seq.request.prompt_ids
        seq.marks = self.cache.keys(ids, [length for length in lengths if length >= SHORTEST])
        if (entry := self.cache.match(ids)) is not None:
            state.restore(entry.snapshot)
            self._hold(seq, entry)

    def catch_up(self, seqs: Iterable[Sequence]) -> None:
        """Prompts whose next marks another sequence has reached meanwhile take over its state."""
        for seq in seqs:
            if seq.status is not Status.PREFILL:
                continue
            for key in reversed(seq.marks_ahead):
                if (entry := self.cache.get(key)) is not None:
                    seq.restore(entry.snapshot)
                    self._hold(seq, entry)
                    break

    def reached(self, seq: Sequence) -> None:
        """A forward has advanced the state: keep it if this is a mark."""
        if seq.state is not None and (key := seq.marks.get(seq.state.length)) is not None:
            self._keep(seq, key)

    def end(self, seq: Sequence) -> None:
        """The sequence ends, well or not: keep what its answer committed, let go of the entry that it ran on."""
        try:
            if self.cache.enabled and seq.finished and seq.state is not None and self._spec.causal_commit:
                length, prompt = seq.state.length, seq.request.prompt_ids
                if length > len(prompt) and length >= SHORTEST:
                    self._keep(seq, self.cache.keys([*prompt, *seq.output], [length])[length])
        except Exception:  # the answer is out: what cannot be kept of it is no failure of the request
            log.warning("The end of an answer could not be kept for later prompts.", exc_info=True)
        finally:
            self._hold(seq, None)

    def give_up(self) -> bool:
        """Free all that nobody runs on. Whether there was something."""
        before = self.cache.stats().entries
        self.cache.clear()
        return self.cache.stats().entries < before

    def check_idle(self) -> None:
        """Nothing runs: nothing may be held. A damaged cache is replaced by an empty one."""
        try:
            self.cache.check_integrity(idle=True)
        except RuntimeError:
            log.exception("The prefix cache is emptied.")
            self.cache = PrefixCache(self._limit)

    def _cut(self, length: int) -> int:
        """Where a prompt may be cut: anywhere, or between the blocks that a commit sees whole."""
        return length if self._spec.causal_commit else length - length % self._spec.block_size

    def _keep(self, seq: Sequence, key: bytes) -> None:
        if seq.state is None:
            return
        entry = self.cache.insert(key, seq.state, seq.held, keep=seq.marks.values())
        if entry is not None:
            self._hold(seq, entry)

    def _hold(self, seq: Sequence, entry: Entry | None) -> None:
        if entry is not None:
            self.cache.hold(entry)
        if seq.held is not None:
            self.cache.release(seq.held)
        seq.held = entry
