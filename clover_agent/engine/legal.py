"""The legal token at one position that a grammar owns: probing candidates, renormalised confidence, the dense row.

Knows the `Constraint` protocol, not what is behind it; knows no blocks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clover_agent.engine.processors import samples
from clover_agent.engine.request import Sequence
from clover_agent.engine.sampler import Proposals, choose_legal, draw
from clover_agent.errors import GrammarError
from clover_agent.types import Constraint


@dataclass(frozen=True, slots=True)
class Standard:
    """What makes a candidate confident: its probability among the legal tokens, where what was not probed counts as
    legal, reaches `threshold`, and the legal candidates together have at least `floor` of the unmodified softmax."""

    threshold: float
    floor: float

    def met(self, probability: float, legal: float, illegal: float) -> bool:
        return probability >= self.threshold * (1 - illegal) and legal >= self.floor

    def out_of_reach(self, probability: float, legal: float, unknown: float) -> bool:
        """Even if nothing of the `unknown` probability turned out legal (or, for the floor, all of it)."""
        return probability < self.threshold * legal or legal + unknown < self.floor


ANY = Standard(threshold=0.0, floor=0.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal token and whether it meets the standard."""

    token: int
    confident: bool


def ends_turn(seq: Sequence, constraint: Constraint, token: int) -> bool:
    """Whether `token` would end the turn here: an end token where the grammar accepts. Elsewhere a stop token of the
    request is content like any other, and the model's own end tokens are illegal."""
    return token in seq.end_ids and constraint.accepting()


def is_legal(seq: Sequence, constraint: Constraint, token: int, position: int) -> bool:
    """Whether `token` may follow what `constraint` has consumed, at a position of the block."""
    if ends_turn(seq, constraint, token):
        return seq.may_end(position)
    return token not in seq.spec.end_token_ids and constraint.valid_prefix([token]) == 1


@dataclass(frozen=True, slots=True)
class Spot:
    """A masked position of the block and the row of proposals that belongs to it."""

    seq: Sequence
    proposals: Proposals
    row: int
    position: int

    def best(self, constraint: Constraint, standard: Standard) -> Candidate | None:
        """The best legal token among the candidates (drawn, if the request samples), None if none is legal.

        Probes one candidate after another, by falling logit, until the verdict cannot change any more.
        """
        if samples(self.seq.params):
            return self._drawn(constraint, standard)
        found: int | None = None
        probability = legal = illegal = 0.0
        for token, p in zip(self.proposals.ids[self.row], self.proposals.probs[self.row], strict=True):
            if is_legal(self.seq, constraint, token, self.position):
                legal += p
                if found is None:
                    found, probability = token, p
            else:
                illegal += p
            if found is not None:
                if standard.met(probability, legal, illegal):
                    return Candidate(found, confident=True)
                if standard.out_of_reach(probability, legal, 1 - legal - illegal):
                    break
        return None if found is None else Candidate(found, confident=False)

    def _drawn(self, constraint: Constraint, standard: Standard) -> Candidate | None:
        proposals, row = self.proposals, self.row
        ids, probs, scores = proposals.ids[row], proposals.probs[row], proposals.scores[row]
        legal = [i for i, token in enumerate(ids) if is_legal(self.seq, constraint, token, self.position)]
        if not legal:
            return None
        picked = legal[draw([scores[i] for i in legal], self.seq.params, proposals.uniforms[row])]
        mass = sum(probs[i] for i in legal)
        return Candidate(ids[picked], standard.met(probs[picked], mass, sum(probs) - mass))

    def last_resort(self, constraint: Constraint) -> int:
        """The best legal token (or drawn one) of the whole dense row. Raises `GrammarError` if there is none."""
        seq, proposals = self.seq, self.proposals
        scores = proposals.row(self.row)
        legal = unpack(constraint.mask(), len(scores))
        legal[[*seq.spec.end_token_ids, seq.spec.mask_token_id]] = False
        if constraint.accepting():
            legal[[*seq.end_ids]] = False
            if seq.may_end(self.position) or not legal.any():
                legal[[*seq.end_ids]] = True
        uniform = proposals.uniforms[self.row] if proposals.uniforms else None
        token = choose_legal(scores, legal, seq.params, uniform)
        if token is None:
            raise GrammarError("The grammar allows no token here; this is a defect of the grammar, not of the request.")
        return token


def unpack(mask: npt.NDArray[np.uint32], vocab_size: int) -> npt.NDArray[np.bool_]:
    """Packed bits to bool [vocab_size]; ids that the mask does not cover are illegal."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=min(vocab_size, 32 * len(mask)))
    legal = np.zeros(vocab_size, dtype=np.bool_)
    legal[: len(bits)] = bits
    return legal
