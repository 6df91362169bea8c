"""What a check says: passed, failed with something to do about it, or skipped. Whoever checks anything reports so."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. `detail` is what was seen, `advice` what to do about it."""

    stage: str
    status: Status
    detail: str = ""
    advice: str = ""


class Trouble(Exception):
    """A check failed: what was seen, and what to do about it."""

    def __init__(self, detail: str, advice: str = "") -> None:
        super().__init__(detail)
        self.advice = advice


class Skip(Exception):
    """A check cannot be made here; the text says why."""


def require(condition: object, detail: str, advice: str = "") -> None:
    """Raises `Trouble` unless the condition holds."""
    if not condition:
        raise Trouble(detail, advice)


def as_dicts(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [asdict(result) for result in results]


def exit_code(results: Sequence[Result]) -> int:
    """1 if anything failed."""
    return int(any(result.status == "fail" for result in results))
