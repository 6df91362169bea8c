"""A constraint that keeps account of its own time: processor time of the engine's thread, not what others took."""

import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from clover_agent.types import Constraint

T = TypeVar("T")


class Account:
    """Seconds spent in one request's constraint since the last `settle`."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.steps: list[float] = []

    def settle(self) -> None:
        """A forward pass begins: what was spent belongs to the step that has just ended."""
        if self.spent:
            self.steps.append(self.spent)
            self.spent = 0.0

    def charge(self, call: Callable[[], T]) -> T:
        begun = time.thread_time()
        try:
            return call()
        finally:
            self.spent += time.thread_time() - begun


class TimedConstraint:
    """Passes everything on to `inner` and charges `account` for it; forks share the account."""

    def __init__(self, inner: Constraint, account: Account) -> None:
        self.inner = inner
        self.account = account

    @property
    def free(self) -> bool:
        return self.account.charge(lambda: self.inner.free)

    @property
    def complete(self) -> bool:
        return self.account.charge(lambda: self.inner.complete)

    def forced(self) -> list[int]:
        return self.account.charge(self.inner.forced)

    def valid_prefix(self, ids: Sequence[int]) -> int:
        return self.account.charge(lambda: self.inner.valid_prefix(ids))

    def consume(self, ids: Sequence[int]) -> None:
        self.account.charge(lambda: self.inner.consume(ids))

    def fork(self) -> Self:
        return type(self)(self.account.charge(self.inner.fork), self.account)

    def mask(self) -> npt.NDArray[np.uint32]:
        return self.account.charge(self.inner.mask)

    def accepting(self) -> bool:
        return self.account.charge(self.inner.accepting)

    def close(self, budget: int) -> list[int] | None:
        return self.account.charge(lambda: self.inner.close(budget))
