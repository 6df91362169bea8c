"""Two settings that answered the same records, compared record by record: McNemar's test and ratios of costs.

Knows nothing of what was answered.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pairs:
    """Of `n` records: how many only the first setting got right, how many only the second, and the exact two-sided
    p-value of McNemar's test (the binomial test of these two numbers)."""

    n: int
    first_only: int
    second_only: int
    p: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> Pairs:
    """Raises `ValueError` if the sequences differ in length."""
    outcomes = list(zip(first, second, strict=True))
    first_only = sum(a and not b for a, b in outcomes)
    second_only = sum(b and not a for a, b in outcomes)
    differing, fewer = first_only + second_only, min(first_only, second_only)
    tail = sum(math.comb(differing, k) for k in range(fewer + 1)) / 2**differing
    return Pairs(len(outcomes), first_only, second_only, min(1.0, 2 * tail))


def ratio(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Sum of the first costs over the sum of the second, and its standard error (delta method over the pairs); NaN
    where there is no pair, or for the error only one."""
    n, total = len(second), sum(second)
    if not total:
        return math.nan, math.nan
    share = sum(first) / total
    rest = sum((a - share * b) ** 2 for a, b in zip(first, second, strict=True))
    return share, math.sqrt(n / (n - 1) * rest) / total if n > 1 else math.nan
