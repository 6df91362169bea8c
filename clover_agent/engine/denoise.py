"""One denoising step of one sequence: proposals in, final tokens and a changed block out. Knows no model or thread.

End tokens: a turn ends when the frontier reaches an end token; the rest of the block is discarded.
"""

from clover_agent.engine.options import EngineOptions
from clover_agent.engine.request import Sequence
from clover_agent.engine.sampler import Proposals
from clover_agent.engine.unmask import select
from clover_agent.engine.walk import Walk, fill_forced
from clover_agent.errors import NonFiniteLogits


def begin(seq: Sequence) -> None:
    """Open the first block. What the grammar forces is written at once; that may already be the whole answer."""
    _settle(seq)


def step(seq: Sequence, proposals: Proposals, options: EngineOptions) -> None:
    """Apply one forward pass: at least one position is unmasked, and a full block is followed by the next.

    Raises `NonFiniteLogits` if the model's logits for this sequence are unusable, `GrammarError` if the constraint
    allows nothing.
    """
    if not proposals.finite:
        raise NonFiniteLogits("The model produced non-finite logits for this request; its output is unusable.")
    if seq.constraint is None:
        _unmask(seq, proposals)
    else:
        Walk(seq, seq.constraint, proposals, options).run()
    _settle(seq)


def _unmask(seq: Sequence, proposals: Proposals) -> None:
    """The step without a grammar. Tokens ahead of the frontier stand; they are final once it reaches them."""
    block, params = seq.block, seq.params
    positions = block.masked()
    ends = [token in seq.end_ids for token in proposals.choice]
    for row in select(proposals.confidence, ends, threshold=params.threshold, fallback=params.fallback):
        block.put(positions[row], proposals.choice[row])
    while not block.full and (token := block.tokens[block.frontier]) is not None:
        if token in seq.end_ids:
            seq.finish("stop")
            return
        seq.finalise(token)


def _settle(seq: Sequence) -> None:
    """Bring the sequence to where it needs a forward pass, or to its end."""
    while seq.block.full and not (seq.finished or fill_forced(seq)):
        if seq.remaining <= 0:
            seq.finish("length")
        else:
            seq.open_block()
            fill_forced(seq)
