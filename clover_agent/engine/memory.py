"""Divides what memory is left beside the weights between the states of running requests and the prefix cache.

Arithmetic only; whoever loads the model knows how much there is.
"""

from dataclasses import dataclass

from clover_agent.errors import LoadFailed
from clover_agent.model.protocol import ModelSpec


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """states: bytes that running requests may grow to, None where the model's states are of no account; prefix_cache:
    bytes of snapshots; max_context: tokens of the longest request that fits alone."""

    states: int | None
    prefix_cache: int
    max_context: int


def plan_memory(free: int, spec: ModelSpec, *, prefix_cache: int | None, most_cache: int | None = None) -> MemoryPlan:
    """Plan for `free` bytes. `prefix_cache` is the operator's wish; without one the cache gets half of what is left
    beside one request of the longest context, at most `most_cache`.

    Raises `LoadFailed` where not even a short request would fit.
    """
    if not spec.token_bytes:
        cache = min(x for x in (prefix_cache, most_cache, max(0, free) // 2) if x is not None)
        return MemoryPlan(None, cache, spec.max_context)
    longest = spec.state_bytes + spec.token_bytes * (spec.max_context + spec.block_size)
    if prefix_cache is None:
        prefix_cache = max(0, free - longest) // 2
        prefix_cache = prefix_cache if most_cache is None else min(prefix_cache, most_cache)
    states = free - prefix_cache
    tokens = (states - spec.state_bytes) // spec.token_bytes - spec.block_size
    if tokens < spec.block_size:
        needed = spec.state_bytes + spec.token_bytes * 2 * spec.block_size + prefix_cache - free
        raise LoadFailed(
            f"There is not enough memory beside the weights: at least {needed / 2**20:.0f} MiB more are needed. Raise "
            "--max-memory or --gpu-memory-utilization, or lower --prefix-cache-bytes."
        )
    return MemoryPlan(states, prefix_cache, min(spec.max_context, tokens))
