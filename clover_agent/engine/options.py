"""What the operator of an engine may choose. Facts of a checkpoint are in `ModelSpec`, wishes in `SamplingParams`."""

from dataclasses import dataclass
from enum import Enum


class Strategy(Enum):
    """Where a grammar-owned block may be unmasked.

    PREFIX      only at the frontier
    ANY_ORDER   also ahead of it: confident tokens stay tentative until the frontier reaches them
    """

    PREFIX = "prefix"
    ANY_ORDER = "any_order"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits and strategy of one engine.

    max_num_seqs     requests that share the forwards
    max_waiting      requests that may queue for a slot; one more is refused with `Overloaded`
    prefill_tokens   most prompt tokens in one forward, all requests together (at least a block's)
    prefill_beside   the same for a forward that denoises blocks too: what a prompt may hold up streams by
    state_memory     bytes that the states of running requests may grow to, all together; None = no limit
    prefix_cache     bytes of snapshots that are kept for later prompts; 0 = none
    outbox_size      steps that a slow reader may leave unread before its request is paused
    candidates       most probable tokens per position that are tried against a grammar before a dense row is fetched
    strategy         see `Strategy`
    legal_floor      probability that the legal candidates must have together before their confidence is trusted
    max_strikes      times a position may be masked again; then it is unmasked at the frontier only
    close_reserve    remaining budget (tokens) from which on the engine watches whether the output can still be closed
    close_margin     spare tokens at which it closes
    """

    max_num_seqs: int = 8
    max_waiting: int = 64
    prefill_tokens: int = 2048
    prefill_beside: int = 512
    state_memory: int | None = None
    prefix_cache: int = 0
    outbox_size: int = 64
    candidates: int = 16
    strategy: Strategy = Strategy.PREFIX
    legal_floor: float = 0.3
    max_strikes: int = 2
    close_reserve: int = 160
    close_margin: int = 4
