"""From what the probes found to the path that is taken: a pure function."""

from dataclasses import dataclass
from typing import Literal

Path = Literal["cached", "uncached", "generate", "refuse"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the probes found, True where the contract holds.

    finite           no NaN or infinity
    mask_known       there is a mask token
    answers          the forward runs as a block model's must, and takes blocks of the size asked for
    bidirectional    inside a block, in one of the ways that a forward can be asked for it
    causal_prefix    what is denoised does not change the rows before it
    nothing_leaks    what follows a block does not change it
    cache_exact      with the cache as without it, and snapshots restore exactly
    can_generate     the checkpoint has a generate()
    """

    finite: bool
    mask_known: bool
    answers: bool
    bidirectional: bool
    causal_prefix: bool
    nothing_leaks: bool
    cache_exact: bool
    can_generate: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    path: Path
    reason: str


def choose(seen: Seen) -> Verdict:
    """The fastest path that gives right answers; `generate` where the model cannot be denoised from outside."""
    if not seen.finite:
        return Verdict("refuse", "its logits are not finite")
    missing = next(
        (
            reason
            for holds, reason in (
                (seen.mask_known, "its mask token is not known"),
                (seen.answers, "its forward cannot be called as a block model's"),
                (seen.bidirectional, "its blocks do not see themselves as a whole"),
            )
            if not holds
        ),
        None,
    )
    if missing is not None:
        return Verdict("generate" if seen.can_generate else "refuse", missing)
    if not seen.causal_prefix:
        return Verdict("uncached", "what is denoised changes what is before it")
    if not seen.nothing_leaks:
        return Verdict("uncached", "what follows a block changes it")
    if not seen.cache_exact:
        return Verdict("uncached", "its cache does not give what the whole sequence gives")
    return Verdict("cached", "its cache gives what the whole sequence gives")
