"""JSON as the standard has it: no NaN or Infinity, no number that overflows to infinity, no duplicate keys.

Python's `json` lets all of these pass. Text is cut where a value ends, so that a value can be forwarded as written.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

BLANK = " \t\n\r"


def loads(text: str) -> Any:
    """The value of a whole JSON text. Raises `ValueError` that says what is wrong."""
    start = _skip(text, 0)
    value, end = value_at(text, start)
    if _skip(text, end) != len(text):
        raise ValueError(f"there is text after the JSON value, at character {end}")
    return value


def members(text: str) -> Iterator[tuple[str, str]]:
    """The members of a JSON object as (key, the value's own text). Raises `ValueError`, also for duplicate keys."""
    seen: set[str] = set()
    at = _expect(text, _skip(text, 0), "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            key, end = value_at(text, at)
            if not isinstance(key, str) or key in seen:
                raise ValueError(f"{key!r} is not a key of its own" if isinstance(key, str) else "a key is no string")
            seen.add(key)
            start = _expect(text, _skip(text, end), ":")
            _, end = value_at(text, start)
            yield key, text[start:end]
            at = _skip(text, end)
            if text[at : at + 1] != ",":
                at = _expect(text, at, "}")
                break
            at = _skip(text, at + 1)
    if _skip(text, at) != len(text):
        raise ValueError(f"there is text after the object, at character {at}")


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and where it ends."""
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANK:
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise ValueError(f"{char!r} is missing at character {at}")
    return _skip(text, at + 1)


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"the number {literal} is out of range")
    return number


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
