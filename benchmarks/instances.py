"""JSON Schemas with instances, as the constrained benchmark reads, writes and judges them.

The judge is plain jsonschema on the schema as it came, with decimal numbers, its own formats and Python's regular
expressions: nothing of the package's own validation. In two places it follows JSON Schema 2020-12 whatever draft the
schema names: a number without a fraction is an integer (`-0.0`), and `\\s` in a pattern is white space of ECMA-262
(that of Python has U+001C to U+001F and U+0085 too and lacks U+FEFF). References are never fetched.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, TypeChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry

MAX_DEPTH = 40

# WhiteSpace and LineTerminator of ECMA-262, 12.2 and 12.3.
_SPACE = r"\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NOT_SPACE = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_ESCAPE_OR_BRACKET = re.compile(r"\\.|[\[\]]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, and instances with the word whether they are valid."""

    name: str
    schema: Any
    tests: tuple[tuple[bool, Any], ...]


def read_cases(path: Path) -> list[Case]:
    """Lines of `{"name", "schema", "tests": [{"valid", "data"}]}`, gzipped or not."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in content.splitlines() if line.strip()]
    return [
        Case(row["name"], row["schema"], tuple((test["valid"], test["data"]) for test in row["tests"])) for row in rows
    ]


def in_schema_order(data: Any, schema: Any, root: Any) -> Any:
    """The instance with the keys of its objects in the order in which the schema declares them."""
    return _ordered(data, [schema], root, 0)


def _ordered(data: Any, schemas: list[Any], root: Any, depth: int) -> Any:
    found = [part for schema in schemas for part in _all_parts(schema, root, 0)]
    if isinstance(data, list):
        items = [schema["items"] for schema in found if isinstance(schema.get("items"), Mapping)]
        rows = [_positional(schema) for schema in found]
        return [_ordered(v, items + [row[n] for row in rows if n < len(row)], root, depth) for n, v in enumerate(data)]
    if not isinstance(data, dict) or depth > MAX_DEPTH:
        return data
    order: dict[str, list[Any]] = {}
    for schema in found:
        for key, part in (schema.get("properties") or {}).items():
            order.setdefault(key, []).append(part)
    for schema in found:
        for key in schema.get("required") or ():
            order.setdefault(key, [])
    others = [schema["additionalProperties"] for schema in found if "additionalProperties" in schema]
    keys = [key for key in order if key in data] + [key for key in data if key not in order]
    return {key: _ordered(data[key], order.get(key) or others, root, depth + 1) for key in keys}


def _positional(schema: Mapping[str, Any]) -> list[Any]:
    rows = schema.get("prefixItems", schema.get("items"))
    return rows if isinstance(rows, list) else []


def _all_parts(schema: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """A schema and what applies to the same value, in the order of its keywords."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    own = False
    for keyword, value in schema.items():
        if keyword in ("properties", "required") and not own:
            own = True
            yield schema
        elif keyword == "$ref" and isinstance(value, str):
            yield from _all_parts(_resolve(value, root), root, depth + 1)
        elif keyword in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
            for part in value:
                yield from _all_parts(part, root, depth + 1)
    if not own:
        yield schema


def _resolve(reference: str, root: Any) -> Any:
    start, *steps = reference.split("/")
    node = root if start == "#" else None
    for step in (part.replace("~1", "/").replace("~0", "~") for part in steps):
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            node = node.get(step) if isinstance(node, Mapping) else None
    return node


class Judge:
    """Says whether JSON text satisfies a schema; None where the schema cannot be judged (it is broken, or refers to
    another document)."""

    def __init__(self, schema: Any) -> None:
        decimal = json.loads(json.dumps(schema), parse_float=Decimal)
        kind = validator_for(decimal)
        checker: FormatChecker = kind.FORMAT_CHECKER
        types = kind.TYPE_CHECKER.redefine("integer", _is_integer)
        judging = extend(kind, {"pattern": _pattern, "patternProperties": _pattern_properties}, type_checker=types)  # type: ignore[no-untyped-call]
        self._validator: Validator = judging(decimal, registry=Registry(), format_checker=checker)

    def satisfied(self, text: str) -> bool | None:
        try:
            value = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
        except ValueError:
            return False
        try:
            return self._validator.is_valid(value)
        except Exception:
            return None  # jsonschema raises anything on a broken schema


def ecma_spaces(pattern: str) -> str:
    """The pattern with `\\s` and `\\S` spelled out, so that Python reads them as ECMA-262 does."""
    in_class = False

    def spelled(match: re.Match[str]) -> str:
        nonlocal in_class
        text = match[0]
        if text in "[]":
            in_class = text == "["
        if text not in (r"\s", r"\S"):
            return text
        body = _SPACE if text == r"\s" else _NOT_SPACE
        return body if in_class else f"[{body}]"

    return _ESCAPE_OR_BRACKET.sub(spelled, pattern)


def _is_integer(checker: TypeChecker, value: object) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not re.search(ecma_spaces(pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, parts: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    spelled = {ecma_spaces(pattern): part for pattern, part in parts.items()}
    yield from Draft202012Validator.VALIDATORS["patternProperties"](validator, spelled, instance, schema)


def _no_constant(literal: str) -> None:
    raise ValueError(literal)
