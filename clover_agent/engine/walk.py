"""One denoising step of a block under a constraint: walk, look-ahead, progress.

The walk starts at the frontier and is the only thing that finalises tokens; everything unmasked ahead of the frontier
is tentative until the walk reaches it. Knows the `Constraint` protocol only, and calls `consume` with nothing that
`valid_prefix` (or `forced`) has not vouched for.

A step makes progress: it finalises a token or leaves a new tentative one. A position that was masked again
`max_strikes` times is unmasked at the frontier only. So a block of n positions takes at most n * (1 + max_strikes)
steps.
"""

from clover_agent.engine.closeout import watch_budget
from clover_agent.engine.legal import ANY, Spot, Standard, ends_turn, is_legal
from clover_agent.engine.options import EngineOptions, Strategy
from clover_agent.engine.request import Sequence
from clover_agent.engine.sampler import Proposals
from clover_agent.engine.unmask import select
from clover_agent.types import Constraint, Fallback


def fill_forced(seq: Sequence) -> bool:
    """Write what the grammar forces at the frontier, without a forward pass; finish where nothing else can follow.

    What does not fit into the block stays forced and comes first in the next one. Returns whether it finished.
    """
    constraint, block = seq.constraint, seq.block
    if constraint is None:
        return False
    while not constraint.complete:
        ids = [] if block.full or constraint.free else constraint.forced()[: block.limit - block.frontier]
        if not ids:
            return False
        constraint.consume(ids)
        for token in ids:
            seq.finalise(token, forced=True)
    seq.finish("stop")
    return True


class Walk:
    """A step of `seq`, whose masked positions have `proposals`. Made for one step, run once."""

    def __init__(self, seq: Sequence, constraint: Constraint, proposals: Proposals, options: EngineOptions) -> None:
        self._seq = seq
        self._constraint = constraint
        self._proposals = proposals
        self._options = options
        self._block = seq.block
        self._spots = {p: Spot(seq, proposals, row, p) for row, p in enumerate(seq.block.masked())}
        self._placed: list[int] = []
        self._free = constraint.free
        self._standard = Standard(seq.params.threshold, options.legal_floor)

    def run(self) -> None:
        before = len(self._seq.output)
        self._place(self._seq.params.fallback)
        if self._advance():
            return
        self._look_ahead()
        stands = any(i >= self._block.frontier and self._block.tokens[i] is not None for i in self._placed)
        if len(self._seq.output) == before and not stands:
            self._fall_back()

    def _place(self, fallback: Fallback | None = None) -> None:
        """Unmask, tentatively, what may stand ahead of the frontier: in free text the picks of the unconstrained
        sampler, in grammar-owned text confident tokens of the unedited model, and only if the strategy allows."""
        block, proposals = self._block, self._proposals
        positions = [position for position in block.masked() if position in self._spots]
        rows = [self._spots[position].row for position in positions]
        if self._free:
            tokens = [proposals.choice[row] for row in rows]
            confidence = [proposals.confidence[row] for row in rows]
        elif self._options.strategy is Strategy.ANY_ORDER:
            tokens = [proposals.ids[row][0] for row in rows]
            confidence = [proposals.probs[row][0] for row in rows]
            fallback = None
        else:
            return
        for i, position in enumerate(positions):
            if position == block.frontier:
                confidence[i] = confidence[i] if self._free else -1.0  # the walk itself judges the frontier
            elif block.strikes[position] >= self._options.max_strikes:
                confidence[i] = -1.0
        ends = [token in self._seq.end_ids for token in tokens]
        for i in select(confidence, ends, threshold=self._seq.params.threshold, fallback=fallback):
            block.put(positions[i], tokens[i])
            self._placed.append(positions[i])

    def _advance(self) -> bool:
        """The walk. Returns whether it finished the request."""
        block, seq = self._block, self._seq
        while True:
            if fill_forced(seq):
                return True
            if block.full:
                return False
            self._notice_border()
            if watch_budget(seq, self._options):
                return True
            position = block.frontier
            token = block.tokens[position]
            if token is None:
                token = self._confident(position)
                if token is None:
                    return False
            elif not is_legal(seq, self._constraint, token, position):
                block.remask(position)
                continue
            if self._finalise(token):
                return True

    def _notice_border(self) -> None:
        """Where free text turns into grammar-owned text, tokens ahead were chosen under the wrong rules: mask them
        again. Either way, place what the new rules allow."""
        free = self._constraint.free
        if free == self._free:
            return
        self._free = free
        if not free:
            self._block.remask_from(self._block.frontier)
        self._place()

    def _confident(self, position: int) -> int | None:
        """The legal token at a masked frontier that grammar owns, if its renormalised confidence suffices."""
        spot = self._spots.get(position)
        if self._free or spot is None:
            return None
        best = spot.best(self._constraint, self._standard)
        return best.token if best is not None and best.confident else None

    def _finalise(self, token: int) -> bool:
        if ends_turn(self._seq, self._constraint, token):
            self._block.remask_from(self._block.frontier)
            self._seq.finish("stop")
            return True
        self._constraint.consume([token])
        self._seq.finalise(token)
        return False

    def _look_ahead(self) -> None:
        """Check tentative tokens on a fork that fills the holes between them with what is likely there.

        A token that the fork does not accept is masked again; a hole that nothing legal is known for takes everything
        right of it along. In free text a hole may hold anything and is skipped.
        """
        tentative = self._block.tentative()
        if not tentative:
            return
        fork = self._constraint.fork()
        for position in range(self._block.frontier, tentative[-1] + 1):
            if not fork.free and self._options.strategy is Strategy.PREFIX:
                self._block.remask_from(position)
                return
            token = self._block.tokens[position]
            if token is not None and not is_legal(self._seq, fork, token, position):
                self._block.remask(position)
                token = None
            if token is None:
                if fork.free:
                    continue
                token = self._guess(fork, position)
            if token is None or token in self._seq.end_ids:
                self._block.remask_from(position + 1)
                return
            fork.consume([token])

    def _guess(self, fork: Constraint, position: int) -> int | None:
        if forced := fork.forced():
            return forced[0]
        spot = self._spots.get(position)
        best = spot.best(fork, ANY) if spot is not None else None
        return None if best is None else best.token

    def _fall_back(self) -> None:
        """Nothing was confident: finalise the best legal token at the frontier."""
        position = self._block.frontier
        spot = self._spots.get(position)
        if spot is None:  # a tentative token was just taken back and has no proposal yet; its strike bounds this
            return
        token: int | None = self._proposals.choice[spot.row] if self._constraint.free else None
        if token is None or not is_legal(self._seq, self._constraint, token, position):
            best = spot.best(self._constraint, ANY)
            token = best.token if best is not None else spot.last_resort(self._constraint)
        if not self._finalise(token):
            self._spots.clear()  # one token it is: the walk goes on over what was decided before, and what is forced
            self._advance()
