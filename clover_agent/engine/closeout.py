"""Watches the token budget of a constrained request and closes its output while that still fits.

Looking costs the constraint a search, so a look that finds much to spare lets half of it be spent before the next.
What may be closed is the constraint's decision; where it refuses (a value of a tool call is open) the request goes
on and, if nothing changes, ends with "length" as it stands.
"""

from clover_agent.engine.options import EngineOptions
from clover_agent.engine.request import Sequence


def watch_budget(seq: Sequence, options: EngineOptions) -> bool:
    """Look, if it is time to: the frontier has reached `seq.check_at`. Returns whether it finished the request."""
    constraint = seq.constraint
    length = len(seq.output)
    if constraint is None or length < seq.check_at:
        return False
    if seq.remaining > options.close_reserve:
        seq.check_at = seq.budget - options.close_reserve
        return False
    if constraint.accepting():
        seq.check_at = length + 1
        return False
    ids = constraint.close(seq.remaining)
    if ids is None:
        seq.check_at = length + 1 + seq.remaining // 8
        return False
    spare = seq.remaining - len(ids)
    if spare > options.close_margin:
        seq.check_at = length + max(1, spare // 2)
        return False
    constraint.consume(ids)
    seq.close(ids)
    return True
