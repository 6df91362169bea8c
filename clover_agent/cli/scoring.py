"""How right a model's reply to a record is: pure functions, from record and reply to figures with intervals.

A record is in the shared tool-calling format (tools, messages, the right `calls` or the right `answer`). Knows nothing
of HTTP and of the model.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

Record = Mapping[str, Any]
Z95 = 1.959964
LONGEST_VALUE = 60  # characters; longer strings of a result are not expected word for word in the answer


@dataclass(frozen=True, slots=True)
class Reply:
    """What an endpoint said: calls as (name, arguments text), the visible text, and `usage.diffusion` if it has one."""

    calls: tuple[tuple[str, str], ...] = ()
    content: str = ""
    finish: str = ""
    error: str | None = None
    completion_tokens: int = 0
    denoising_steps: int = 0
    forced_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """One reply judged; None where the question does not arise.

    name, exact        the right tools were called; with exactly the right arguments
    right, expected    arguments that are right, of those expected
    valid              every call is JSON, names an offered tool and satisfies its schema
    refused            no call was made, and some text came
    answered           the text holds every value of the result that the reference answer holds
    """

    kind: str
    source: str
    name: bool | None = None
    exact: bool | None = None
    right: int = 0
    expected: int = 0
    valid: bool | None = None
    refused: bool = False
    answered: bool | None = None
    unfinished: bool = False
    failed: bool = False


def kind_of(record: Record) -> str:
    """single, pair or many by the number of calls; answer after a result; none where no tool fits."""
    if record.get("calls"):
        return {1: "single", 2: "pair"}.get(len(record["calls"]), "many")
    if record["messages"][-1]["role"] == "tool":
        return "answer"
    return str(record.get("kind", "none"))


def score(record: Record, reply: Reply) -> Score:
    """Judge one reply."""
    kind = kind_of(record)
    called = [(name, _parsed(text)) for name, text in reply.calls]
    expected = [(call["name"], dict(call["arguments"])) for call in record.get("calls") or ()]
    right, total = argument_matches(expected, called)
    return Score(
        kind=kind,
        source=str(record["source"]),
        name=Counter(n for n, _ in called) == Counter(n for n, _ in expected) if expected else None,
        exact=same_calls(expected, called) if expected else None,
        right=right,
        expected=total,
        valid=all(_is_valid(record, name, arguments) for name, arguments in called) if called or expected else None,
        refused=not called and bool(reply.content.strip()) and reply.error is None,
        answered=contains_values(record, reply.content) if kind == "answer" else None,
        unfinished=reply.finish == "length",
        failed=reply.error is not None,
    )


def same_calls(expected: Sequence[tuple[str, Any]], called: Sequence[tuple[str, Any]]) -> bool:
    """The same calls in any order; JSON equality, where 1 and 1.0 are the same number and true is not 1."""
    left = sorted(_canonical(call) for call in expected)
    return left == sorted(_canonical(call) for call in called)


def argument_matches(expected: Sequence[tuple[str, Any]], called: Sequence[tuple[str, Any]]) -> tuple[int, int]:
    """(arguments that are right, arguments expected); each expected call is compared with one call of its name."""
    left = [(name, arguments) for name, arguments in called if isinstance(arguments, Mapping)]
    right = total = 0
    for name, arguments in expected:
        total += len(arguments)
        same = [candidate for candidate in left if candidate[0] == name]
        if not same:
            continue
        counts = [sum(_equal(c[1].get(key), value) for key, value in arguments.items()) for c in same]
        best = max(range(len(same)), key=counts.__getitem__)
        right += counts[best]
        left.remove(same[best])
    return right, total


def contains_values(record: Record, content: str) -> bool | None:
    """Whether the text holds the values that stand both in the last results and in the reference answer.

    None where there is no such value to look for.
    """
    reference = str(record.get("answer") or "").casefold()
    values = {v.casefold() for message in _last_results(record) for v in _values(str(message["content"]))}
    wanted = [value for value in values if value in reference]
    return all(value in content.casefold() for value in wanted) if wanted else None


def wilson(successes: int, count: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share; (0, 1) for no observations."""
    if not count:
        return 0.0, 1.0
    share, z2 = successes / count, Z95 * Z95
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def figure(flags: Iterable[bool | None]) -> dict[str, Any] | None:
    """{"share", "n", "low", "high"} of the flags that are not None; None if there is none."""
    known = [flag for flag in flags if flag is not None]
    return share_figure(sum(known), len(known)) if known else None


def share_figure(successes: int, count: int) -> dict[str, Any]:
    low, high = wilson(successes, count)
    share = successes / count if count else 0.0
    return {"share": round(share, 4), "n": count, "low": round(low, 4), "high": round(high, 4)}


def summarise(scores: Sequence[Score]) -> dict[str, Any]:
    """All figures of a group of replies; those that do not arise are left out."""
    opening = [s for s in scores if s.kind != "answer"]
    should_refuse = [not s.expected and s.name is None for s in opening]
    refusals = [right for s, right in zip(opening, should_refuse, strict=True) if s.refused]
    arguments = sum(s.expected for s in scores)
    figures = {
        "tool_name": figure(s.name for s in scores),
        "exact_call": figure(s.exact for s in scores),
        "arguments": share_figure(sum(s.right for s in scores), arguments) if arguments else None,
        "two_calls_exact": figure(s.exact for s in scores if s.kind == "pair"),
        "valid_calls": figure(s.valid for s in scores),
        "refusal_recall": figure(s.refused for s, right in zip(opening, should_refuse, strict=True) if right),
        "refusal_precision": figure(refusals) if any(should_refuse) else None,
        "answer_has_values": figure(s.answered for s in scores),
        "unfinished": figure(s.unfinished for s in scores),
        "errors": figure(s.failed for s in scores),
    }
    return {"records": len(scores), **{name: found for name, found in figures.items() if found is not None}}


def tokens_per_forward(replies: Sequence[Reply]) -> float | None:
    """New tokens per denoising step over all replies that report steps."""
    counted = [reply for reply in replies if reply.denoising_steps]
    steps = sum(reply.denoising_steps for reply in counted)
    return round(sum(reply.completion_tokens for reply in counted) / steps, 3) if steps else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _canonical(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _equal(left: Any, right: Any) -> bool:
    return _canonical(left) == _canonical(right)


def _is_valid(record: Record, name: str, arguments: Any) -> bool:
    for tool in record["tools"]:
        if tool["function"]["name"] == name and isinstance(arguments, Mapping):
            schema = tool["function"].get("parameters") or {}
            return jsonschema.Draft202012Validator(schema).is_valid(arguments)
    return False


def _last_results(record: Record) -> list[Mapping[str, Any]]:
    results: list[Mapping[str, Any]] = []
    for message in reversed(record["messages"]):
        if message["role"] != "tool":
            break
        results.append(message)
    return results


def _values(text: str) -> list[str]:
    value = _parsed(text)
    return list(_leaves(value if isinstance(value, Mapping | list) else text))


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value).strip()
        if text and len(text) <= LONGEST_VALUE:
            yield text
