"""The check of what comes out: arguments against a tool's schema, text against a response format.

Independent of the grammar: jsonschema on the clean schema, with no way to fetch anything (no reference in a clean
schema leaves it, and the registry is empty), with formats asserted, and with `pattern` run by RE2 in linear time. A
pattern that RE2 cannot run (look-around but at the start, back-references) is not checked. NaN, Infinity and numbers
that overflow are refused. Of a key that comes twice the last value counts, as for every usual reader.
"""

import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from clover_agent.errors import InvalidOutput, InvalidToolCall
from clover_agent.grammar.dialect import Schema, clean
from clover_agent.grammar.patterns import UnsupportedPatternError, checker
from clover_agent.grammar.spec import arguments_schema
from clover_agent.types import ResponseFormat, Tool

_CACHED = 256


def check_call(tool: Tool, arguments: str) -> None:
    """Check the arguments of a call, JSON text. Raises `InvalidToolCall` with the place of the first violation."""
    try:
        value = _loads(arguments)
    except ValueError as error:
        raise InvalidToolCall(f"The model called {tool.name!r} with arguments that are not JSON: {error}.") from error
    schema, _ = arguments_schema(tool.parameters)
    if violation := _violation(schema, value):
        raise InvalidToolCall(f"The model called {tool.name!r} with arguments that break its schema: {violation}.")


def check_output(response_format: ResponseFormat, text: str) -> None:
    """Check the visible text of an answer. Raises `InvalidOutput` with the place of the first violation."""
    if response_format.kind == "text":
        return
    try:
        value = _loads(text)
    except ValueError as error:
        raise InvalidOutput(f"The model's answer is not JSON: {error}.") from error
    raw = {"type": "object"} if response_format.kind == "json_object" else response_format.schema
    if violation := _violation(clean({} if raw is None else raw).schema, value):
        raise InvalidOutput(f"The model's answer breaks the schema of response_format: {violation}.")


def _loads(text: str) -> Any:
    """The value of a JSON text. Raises `ValueError`."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"the number {literal} is out of range")
    return number


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


def _violation(schema: Schema, value: Any) -> str | None:
    try:
        error: ValidationError | None = next(_validator(_Content(schema)).iter_errors(value), None)
    except RecursionError:
        return "the schema refers to itself without end, or the value is nested too deeply"
    if error is None:
        return None
    message = error.message if len(error.message) <= 200 else error.message[:200] + "…"
    return f"at {error.json_path}: {message}"


class _Content:
    """A schema as a cache key: the same text, the same schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._text = repr(schema)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._text == other._text


@lru_cache(maxsize=_CACHED)
def _validator(content: _Content) -> Draft202012Validator:
    validator: Draft202012Validator = _Validator(content.schema, registry=Registry(), format_checker=_FORMATS)
    return validator


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, part in patterns.items():
            for key, value in instance.items():
                if _found(pattern, key):
                    yield from validator.descend(value, part, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, others: Schema, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    declared = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for key, value in instance.items():
        if key not in declared and not any(_found(pattern, key) for pattern in patterns):
            if others is False:
                yield ValidationError(f"{key!r} is not a property that the schema declares", path=[key])
            else:
                yield from validator.descend(value, others, path=key)


def _multiple_of(validator: Any, factor: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Exact, where floating point says that 0.3 is no multiple of 0.1."""
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(factor)):
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


def _found(pattern: str, text: str) -> bool:
    try:
        return checker(pattern)(text)
    except UnsupportedPatternError:
        return True


def _is_regex(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        checker(value)
    except UnsupportedPatternError:
        return False
    return True


_FORMATS = FormatChecker()
_FORMATS.checkers = {**Draft202012Validator.FORMAT_CHECKER.checkers, "regex": (_is_regex, ())}
_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
    },
)
