"""The reference under a grammar: greedy, by the prefix strategy, every legal token known from a full mask."""

from clover_agent.model.protocol import BlockModel
from clover_agent.types import Constraint, SamplingParams
from tests.reference import Reference

FLOOR = 0.3


class ConstrainedReference(Reference):
    """The constraint must have no free places."""

    def __init__(
        self, model: BlockModel, prompt: tuple[int, ...], params: SamplingParams, constraint: Constraint
    ) -> None:
        super().__init__(model, prompt, params)
        self.constraint = constraint

    def fill(self, live: int) -> int | None:
        shown = list(self.block)  # what the latest forward pass saw
        walking = False  # something is already final by that pass
        at = 0
        while not self.constraint.complete:
            if at == live:
                return None
            if forced := self.constraint.forced():
                token = forced[0]
            else:
                shown = shown if walking else list(self.block)
                token, confident = self.best_legal(shown, at)
                if walking and not confident:
                    walking = False
                    continue
                walking = confident
            if token in self.ends:
                return at
            self.constraint.consume([token])
            self.block[at] = token
            at += 1
        return at

    def best_legal(self, shown: list[int | None], at: int) -> tuple[int, bool]:
        probs = self.logits(shown, at).softmax(-1)
        bits = self.constraint.mask()
        legal = [t for t in range(len(probs)) if bits[t // 32] >> (t % 32) & 1]
        token, mass = max(legal, key=lambda t: float(probs[t])), float(probs[legal].sum())
        return token, float(probs[token]) >= self.params.threshold * mass and mass >= FLOOR
