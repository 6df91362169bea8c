"""A clean schema in the terms that the grammar can hold, exactly where possible, loosened at that spot where not.

Every loosening is listed as a `Problem`: there the grammar admits more than the schema. Knows nothing of formats or
tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clover_agent.grammar.dialect import Problem, Schema
from clover_agent.grammar.patterns import UnsupportedPatternError, compiled, translate
from clover_agent.grammar.string_formats import MAX_LENGTHS, PATTERNS, UNHELD

MAX_ITEMS = 512
MAX_LENGTH = 65_536
MAX_BOUND = 10**18
MAX_INLINED = 64

_APPLICATORS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})


def lower(schema: Schema) -> tuple[Schema, list[Problem]]:
    """The schema for the grammar, self-contained, and where it is looser."""
    if isinstance(schema, bool):
        return schema, []
    lowerer = _Lowerer(schema.get("$defs", {}))
    lowered = lowerer.node(schema, "#")
    return lowerer.with_definitions(lowered), lowerer.problems


def required_names(schema: Any) -> Iterator[str]:
    """The names that any object in a schema must have, outer ones first."""
    if isinstance(schema, dict):
        yield from schema["required"] if isinstance(schema.get("required"), list) else ()
        for part in schema.values():
            yield from required_names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from required_names(part)


@dataclass(slots=True)
class _Spot:
    """A schema on its way down: where it stands, what it says, what has been kept of it so far."""

    schema: Mapping[str, Any]
    path: str
    out: dict[str, Any] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Nothing else speaks of the same object, as far as this schema tells."""
        return not _APPLICATORS & self.schema.keys()


class _Lowerer:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._wanted: dict[str, None] = {}  # names of the definitions that are referred to, in order
        self._inlined: list[str] = []  # definitions that are being written in place, outermost first
        self._inlined_in_all = 0
        self.problems: list[Problem] = []

    def with_definitions(self, lowered: Schema) -> Schema:
        """`lowered` with every definition that is reached from it."""
        done: dict[str, Schema] = {}
        while missing := [name for name in self._wanted if name not in done]:
            for name in missing:
                done[name] = self.node(self._definitions[name], f"#/$defs/{name}")
        return {**lowered, "$defs": done} if done and isinstance(lowered, dict) else lowered

    def node(self, schema: Schema, path: str) -> Schema:
        if isinstance(schema, bool):
            return schema
        if schema.get("not") in (True, {}):
            return False
        spot = _Spot(schema, path)
        for keyword, value in schema.items():
            if rule := _RULES.get(keyword):
                rule(self, spot, keyword, value)
        return spot.out or True

    def _lose(self, spot: _Spot, keyword: str, reason: str = "the grammar cannot hold this keyword") -> None:
        self.problems.append(Problem(spot.path, keyword, reason))

    def _and(self, spot: _Spot, schema: dict[str, Any]) -> None:
        """Hold one more schema beside what the keywords say."""
        if schema.keys() & (spot.out.keys() | spot.schema.keys()):
            spot.out["allOf"] = [*spot.out.get("allOf", ()), schema]
        else:
            spot.out |= schema

    # ---- keywords that hold schemas

    def _reference(self, spot: _Spot, keyword: str, value: str) -> None:
        self._wanted[value.rsplit("/", 1)[1]] = None
        spot.out[keyword] = value

    def _schema(self, spot: _Spot, keyword: str, value: Schema) -> None:
        spot.out[keyword] = self.node(value, f"{spot.path}/{keyword}")

    def _named(self, spot: _Spot, keyword: str, value: Mapping[str, Schema]) -> None:
        spot.out[keyword] = {n: self.node(s, f"{spot.path}/{keyword}/{n}") for n, s in value.items()}

    def _named_by_pattern(self, spot: _Spot, keyword: str, value: Mapping[str, Schema]) -> None:
        try:
            names = {pattern: translate(pattern) for pattern in value if compiled(pattern)}
        except UnsupportedPatternError as error:
            self._lose(spot, keyword, f"a pattern that the grammar cannot hold ({error})")
            spot.out["additionalProperties"] = True
            return
        inner = {names[p]: self.node(s, f"{spot.path}/{keyword}/{p}") for p, s in value.items()}
        spot.out[keyword] = inner

    def _others(self, spot: _Spot, keyword: str, value: Schema) -> None:
        if "additionalProperties" not in spot.out:  # a lost patternProperties has opened it
            self._schema(spot, keyword, value)

    def _listed(self, spot: _Spot, keyword: str, value: list[Schema]) -> None:
        spot.out[keyword] = [self.node(s, f"{spot.path}/{keyword}/{n}") for n, s in enumerate(value)]

    def _exclusive(self, spot: _Spot, keyword: str, value: list[Schema]) -> None:
        """The grammar sees that options exclude each other only where they are written in place."""
        spot.out[keyword] = [self._in_place(s, f"{spot.path}/{keyword}/{n}") for n, s in enumerate(value)]

    def _in_place(self, schema: Schema, path: str) -> Schema:
        name = schema["$ref"].rsplit("/", 1)[1] if isinstance(schema, dict) and schema.keys() == {"$ref"} else None
        if name is None or name in self._inlined or self._inlined_in_all >= MAX_INLINED:
            return self.node(schema, path)
        self._inlined_in_all += 1
        self._inlined.append(name)
        try:
            return self.node(self._definitions[name], f"#/$defs/{name}")
        finally:
            self._inlined.pop()

    def _all(self, spot: _Spot, keyword: str, value: list[Schema]) -> None:
        parts = [self.node(s, f"{spot.path}/{keyword}/{n}") for n, s in enumerate(value)]
        spot.out["allOf"] = [*spot.out.get("allOf", ()), *parts]

    def _names(self, spot: _Spot, keyword: str, value: Schema) -> None:
        """`propertyNames` with a pattern says the same as `patternProperties`, where no other names are spoken of."""
        if value is True or value == {"type": "string"}:
            return
        others = {"properties", "patternProperties", "unevaluatedProperties"} & spot.schema.keys()
        if isinstance(value, dict) and value.keys() <= {"type", "pattern"} and not others:
            try:
                names = translate(value["pattern"]) if compiled(value["pattern"]) else ""
            except UnsupportedPatternError as error:
                self._lose(spot, keyword, str(error))
                return
            inner = self.node(spot.schema.get("additionalProperties", True), f"{spot.path}/{keyword}")
            spot.out |= {"patternProperties": {names: inner}, "additionalProperties": False}
            return
        self._lose(spot, keyword)

    def _unevaluated(self, spot: _Spot, keyword: str, value: Schema) -> None:
        if value is True:
            return
        plain = "additionalProperties" if keyword == "unevaluatedProperties" else "items"
        if spot.alone and value is False:
            if plain not in spot.schema:
                spot.out[plain] = False
            return
        self._lose(spot, keyword)

    def _conditional(self, spot: _Spot, keyword: str, value: Schema) -> None:
        if isinstance(value, bool):
            branch = "then" if value else "else"
            if branch in spot.schema:
                self._all(spot, "allOf", [spot.schema[branch]])
        elif "then" in spot.schema or "else" in spot.schema:
            self._lose(spot, keyword)

    def _not(self, spot: _Spot, keyword: str, value: Schema) -> None:
        if value is not False:
            self._lose(spot, keyword)

    # ---- keywords that hold values

    def _keep(self, spot: _Spot, keyword: str, value: Any) -> None:
        spot.out[keyword] = value

    def _pattern(self, spot: _Spot, keyword: str, value: str) -> None:
        try:
            compiled(value)
            self._and(spot, {"pattern": translate(value)}) if "pattern" in spot.out else spot.out.update(
                pattern=translate(value)
            )
        except UnsupportedPatternError as error:
            self._lose(spot, keyword, f"this pattern is not supported ({error})")

    def _format(self, spot: _Spot, keyword: str, value: str) -> None:
        if value in UNHELD:
            self._lose(spot, keyword, f"the format {value!r} cannot be held")
        elif value in PATTERNS:
            extra: dict[str, Any] = {"pattern": PATTERNS[value]}
            if value in MAX_LENGTHS:
                extra["maxLength"] = MAX_LENGTHS[value]
            self._and(spot, extra)

    def _length(self, spot: _Spot, keyword: str, value: int) -> None:
        if value <= MAX_LENGTH:
            spot.out[keyword] = value
        else:
            self._lose(spot, keyword, f"longer than {MAX_LENGTH} characters")

    def _items_count(self, spot: _Spot, keyword: str, value: int) -> None:
        if value <= MAX_ITEMS:
            spot.out[keyword] = value
        else:
            self._lose(spot, keyword, f"more than {MAX_ITEMS} items")

    def _bound(self, spot: _Spot, keyword: str, value: float) -> None:
        if abs(value) <= MAX_BOUND:
            spot.out[keyword] = value
        else:
            self._lose(spot, keyword, "beyond ±10^18")

    def _least_properties(self, spot: _Spot, keyword: str, value: int) -> None:
        """Keys that are not declared may come twice in the grammar, so it can count to one only."""
        if value <= len(spot.schema.get("required", ())):
            return
        if value == 1:
            spot.out[keyword] = value
        else:
            self._lose(spot, keyword)

    def _most_properties(self, spot: _Spot, keyword: str, value: int) -> None:
        declared = spot.schema.get("properties", {})
        bounded = spot.schema.get("additionalProperties") is False and "patternProperties" not in spot.schema
        if not (bounded and len(declared) <= value):
            spot.out[keyword] = value

    def _unique(self, spot: _Spot, keyword: str, value: bool) -> None:
        if value and spot.schema.get("maxItems", 2) > 1:
            self._lose(spot, keyword)

    def _contains(self, spot: _Spot, keyword: str, value: Schema) -> None:
        if spot.schema.get("minContains", 1) > 0 or "maxContains" in spot.schema:
            self._lose(spot, keyword)

    def _dependent(self, spot: _Spot, keyword: str, value: Mapping[str, Any]) -> None:
        if value:
            self._lose(spot, keyword)


_RULES: dict[str, Callable[[_Lowerer, _Spot, str, Any], None]] = {
    **dict.fromkeys(("type", "enum", "const", "required", "multipleOf"), _Lowerer._keep),
    **dict.fromkeys(("minLength", "maxLength"), _Lowerer._length),
    **dict.fromkeys(("minItems", "maxItems"), _Lowerer._items_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _Lowerer._bound),
    **dict.fromkeys(("prefixItems", "anyOf"), _Lowerer._listed),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), _Lowerer._unevaluated),
    **dict.fromkeys(("dependentRequired", "dependentSchemas"), _Lowerer._dependent),
    "$ref": _Lowerer._reference,
    "properties": _Lowerer._named,
    "patternProperties": _Lowerer._named_by_pattern,
    "additionalProperties": _Lowerer._others,
    "items": _Lowerer._schema,
    "oneOf": _Lowerer._exclusive,
    "allOf": _Lowerer._all,
    "propertyNames": _Lowerer._names,
    "if": _Lowerer._conditional,
    "not": _Lowerer._not,
    "pattern": _Lowerer._pattern,
    "format": _Lowerer._format,
    "minProperties": _Lowerer._least_properties,
    "maxProperties": _Lowerer._most_properties,
    "uniqueItems": _Lowerer._unique,
    "contains": _Lowerer._contains,
}
