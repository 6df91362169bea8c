"""Which strings satisfy a schema, as a union of simple languages, and which other kinds of value do.

That is what a format needs that writes strings as raw text, not as JSON. Works on lowered schemas. Knows nothing of
Lark or of tool formats.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clover_agent.grammar.dialect import Schema
from clover_agent.grammar.patterns import compiled

MAX_FORMS = 64
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class StringForm:
    """The strings of `literals` (None: all strings) that match every pattern and have the length.

    patterns   searched for anywhere, as JSON Schema does
    most       None: no upper bound
    """

    literals: tuple[str, ...] | None = None
    patterns: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None

    @property
    def unbound(self) -> bool:
        return self == StringForm()

    def __and__(self, other: "StringForm") -> "StringForm":
        literals = self.literals if other.literals is None else other.literals
        if self.literals is not None and other.literals is not None:
            literals = tuple(text for text in self.literals if text in other.literals)
        most = min((m for m in (self.most, other.most) if m is not None), default=None)
        patterns = tuple(dict.fromkeys(self.patterns + other.patterns))
        return StringForm(literals, patterns, max(self.least, other.least), most)

    def admitted(self) -> tuple[str, ...]:
        """The literals that satisfy the rest."""
        most = float("inf") if self.most is None else self.most
        return tuple(
            text
            for text in self.literals or ()
            if self.least <= len(text) <= most and all(compiled(pattern).search(text) for pattern in self.patterns)
        )


def string_forms(schema: Schema, definitions: Mapping[str, Schema], depth: int = 0) -> list[StringForm]:
    """The forms whose union is the strings that satisfy `schema`; empty if there are none."""
    if isinstance(schema, bool) or depth > MAX_DEPTH:
        return [StringForm()] if schema is not False else []
    types = schema.get("type", "string")
    if "string" not in ([types] if isinstance(types, str) else types):
        return []
    forms = [_own(schema)]
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        forms = _both(forms, string_forms(target, definitions, depth + 1))
    for part in schema.get("allOf", ()):
        forms = _both(forms, string_forms(part, definitions, depth + 1))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            options = (string_forms(option, definitions, depth + 1) for option in schema[keyword])
            forms = _both(forms, [form for option in options for form in option])
    return forms


def _own(schema: Mapping[str, Any]) -> StringForm:
    form = StringForm(None, (schema["pattern"],) if "pattern" in schema else ())
    form &= StringForm(None, (), schema.get("minLength", 0), schema.get("maxLength"))
    if "enum" in schema:
        form &= StringForm(tuple(dict.fromkeys(v for v in schema["enum"] if isinstance(v, str))))
    if "const" in schema:
        form &= StringForm((schema["const"],) if isinstance(schema["const"], str) else ())
    return form


def _both(left: Iterable[StringForm], right: list[StringForm]) -> list[StringForm]:
    return list(dict.fromkeys(a & b for a in left for b in right))[:MAX_FORMS]


def admits(schema: Schema, kind: str, definitions: Mapping[str, Schema], depth: int = 0) -> bool | None:
    """Whether `schema` admits the values of a JSON type: all of them, none, or (None) some."""
    if isinstance(schema, bool) or depth > MAX_DEPTH:
        return schema is not False
    types = schema.get("type", kind)
    types = [types] if isinstance(types, str) else types
    if kind not in types and not (kind == "integer" and "number" in types):
        return None if kind == "number" and "integer" in types else False
    verdicts = [None if schema.keys() & _NARROWING[kind] else True]
    if "enum" in schema or "const" in schema:
        values = [v for v in schema.get("enum", [schema.get("const")]) if _KIND_OF.get(type(v)) == kind]
        verdicts.append(kind == "null" or None if values else False)
    if "$ref" in schema:
        verdicts.append(admits(definitions[schema["$ref"].rsplit("/", 1)[1]], kind, definitions, depth + 1))
    verdicts += [admits(part, kind, definitions, depth + 1) for part in schema.get("allOf", ())]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            options = {admits(option, kind, definitions, depth + 1) for option in schema[keyword]}
            verdicts.append(True if True in options else None if None in options else False)
    return False if False in verdicts else None if None in verdicts else True


_NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_NARROWING = {
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "boolean": frozenset[str](),
    "null": frozenset[str](),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "patternProperties", "minProperties"}),
}
_KIND_OF = {int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array", dict: "object"}
