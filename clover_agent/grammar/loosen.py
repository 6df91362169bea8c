"""When the grammar's compiler refuses a schema: find the spots, loosen them, keep the rest exact.

The compiler is a black box here: a function that says why it refuses, or nothing. Knows nothing of what it is.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clover_agent.grammar.dialect import Problem, Schema

Refusal = Callable[[Schema], str | None]

MAX_TRIALS = 200
MAX_SECONDS = 0.5

# What is given up first, at a spot whose parts are all fine by themselves.
_ORDER = (
    *(
        "oneOf",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "multipleOf",
        "pattern",
        "maxLength",
        "minLength",
    ),
    *("allOf", "anyOf", "$ref", "enum", "const", "required", "additionalProperties", "prefixItems", "items"),
    *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "properties", "type"),
)
_MAPS = ("properties", "patternProperties")
_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
_SINGLES = ("additionalProperties", "items")


def loosen(schema: Schema, refusal: Refusal) -> tuple[Schema, list[Problem]]:
    """A schema that is not refused, and what was given up for it. A schema that is not refused comes back as it is."""
    if refusal(schema) is None:
        return schema, []
    if isinstance(schema, bool):
        return True, [Problem("#", "schema", "no value satisfies it")]
    return _Loosener(refusal, dict(schema.get("$defs", {}))).run(schema)


class _Loosener:
    def __init__(self, refusal: Refusal, definitions: dict[str, Schema]) -> None:
        self._refusal = refusal
        self._definitions = definitions
        self._trials = 0
        self._deadline = time.monotonic() + MAX_SECONDS
        self._problems: list[Problem] = []

    def run(self, schema: Mapping[str, Any]) -> tuple[Schema, list[Problem]]:
        given = self._definitions
        self._definitions = dict.fromkeys(given, True)  # each by itself, so that the blame falls on the right one
        self._definitions = {name: self._fix(part, f"#/$defs/{name}") for name, part in given.items()}
        fixed = self._fix({k: v for k, v in schema.items() if k != "$defs"}, "#")
        return self._whole(fixed), self._problems

    def _whole(self, schema: Schema) -> Schema:
        return {**schema, "$defs": self._definitions} if isinstance(schema, dict) and self._definitions else schema

    def _why(self, schema: Schema) -> str | None:
        """Why the compiler refuses a part. Once the patience is used up every part is taken for refused."""
        self._trials += 1
        return "too many parts are refused" if self._spent else self._refusal(self._whole(schema))

    @property
    def _spent(self) -> bool:
        return self._trials > MAX_TRIALS or time.monotonic() > self._deadline

    def _fix(self, schema: Schema, path: str) -> Schema:
        reason = self._why(schema)
        if reason is None:
            return schema
        if isinstance(schema, bool):
            return schema  # `false`: whoever holds it knows what it means
        if not self._spent:
            parts = dict(_fixed_parts(schema, path, self._fix))
            if parts != {keyword: schema[keyword] for keyword in parts}:
                schema = {**schema, **parts}
                reason = self._why(schema)
        return schema if reason is None else self._give_up(schema, path, reason)

    def _give_up(self, schema: dict[str, Any], path: str, reason: str) -> Schema:
        """The keywords of one spot: the first that alone makes the difference, else one after the other."""
        present = [keyword for keyword in _ORDER if keyword in schema]
        for keyword in present:
            smaller = _without(schema, keyword)
            if self._why(smaller) is None:
                self._problems.append(Problem(path, keyword, reason))
                return smaller
        for keyword in present:
            self._problems.append(Problem(path, keyword, reason))
            schema = _without(schema, keyword)
            if self._why(schema) is None:
                return schema
        return True


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """The schema without a keyword; of `oneOf` the options stay, any number of which may hold."""
    rest = {k: v for k, v in schema.items() if k != keyword}
    if keyword != "oneOf":
        return rest
    options = {"anyOf": schema["oneOf"]}
    return {**rest, "allOf": [*rest.get("allOf", ()), options]} if "anyOf" in rest else {**rest, **options}


def _fixed_parts(
    schema: Mapping[str, Any], path: str, fix: Callable[[Schema, str], Schema]
) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        where = f"{path}/{keyword}"
        if keyword in _MAPS:
            yield keyword, {name: fix(part, f"{where}/{name}") for name, part in value.items()}
        elif keyword in _LISTS:
            yield keyword, [fix(part, f"{where}/{n}") for n, part in enumerate(value)]
        elif keyword in _SINGLES:
            yield keyword, fix(value, where)
