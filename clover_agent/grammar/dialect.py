"""Any JSON Schema as one clean dialect: 2020-12, self-contained, every keyword well-formed.

Agents send schemas of every draft, with keywords that are misspelt or broken, and with references. What comes out has
only keywords that assert something, with values of the right kind; every `$ref` points to `#/$defs/N`. What could not
be kept is listed as a `Problem` with its place. Nothing is ever fetched. Knows nothing of what a grammar can hold.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from clover_agent.errors import InvalidSchema

Schema = bool | dict[str, Any]

MAX_BYTES = 512 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 60

TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
_SCHEMAS = frozenset(
    {"not", "if", "then", "else", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a schema says and that is not kept: where, which keyword, why."""

    path: str
    keyword: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.keyword}` at {self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Clean:
    """A schema in the clean dialect, and what was lost on the way."""

    schema: Schema
    problems: tuple[Problem, ...]


def clean(raw: Any) -> Clean:
    """Bring a schema to the clean dialect. Raises `InvalidSchema` only where it is too large to be looked at."""
    try:
        size = len(json.dumps(raw, ensure_ascii=False))
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidSchema(f"This JSON Schema cannot be read as JSON: {error}.") from error
    if size > MAX_BYTES:
        raise InvalidSchema(f"This JSON Schema has {size} characters; the most that is accepted is {MAX_BYTES}.")
    return _Cleaner(raw).run()


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where the cleaner stands."""

    raw: Mapping[str, Any]
    path: str
    depth: int


class _Cleaner:
    def __init__(self, root: Any) -> None:
        self._root = root
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        self._ref_stands_alone = isinstance(draft, str) and any(old in draft for old in _OLD_DRAFTS)
        self._problems: list[Problem] = []
        self._names: dict[int, str] = {}  # id of a referenced raw schema -> its name in $defs
        self._pending: list[tuple[str, Any, str]] = []
        self._anchors: dict[str, Any] | None = None
        self._nodes = 0

    def run(self) -> Clean:
        schema = self._node(self._root, "#", 0)
        definitions: dict[str, Schema] = {}
        while self._pending:
            name, raw, path = self._pending.pop()
            definitions[name] = self._node(raw, path, 0)
        if definitions and isinstance(schema, dict):
            schema = {**schema, "$defs": definitions}
        return Clean(schema, tuple(self._problems))

    def _node(self, raw: Any, path: str, depth: int) -> Schema:
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, Mapping):
            self._problem(path, "schema", f"a schema is an object or a boolean, not {type(raw).__name__}")
            return True
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InvalidSchema(f"This JSON Schema has more than {MAX_NODES} parts.")
        if depth > MAX_DEPTH:
            self._problem(path, "schema", f"nested deeper than {MAX_DEPTH} levels")
            return True
        out: dict[str, Any] = {}
        if "$ref" in raw and self._ref_stands_alone:
            self._reference(out, "$ref", raw["$ref"], _Spot(raw, path, depth))
            return out or True
        spot = _Spot(raw, path, depth)
        for keyword in raw:
            self._keyword(out, keyword, spot)
        return out or True

    def _keyword(self, out: dict[str, Any], keyword: str, spot: "_Spot") -> None:
        value = spot.raw[keyword]
        if keyword in _SCHEMAS:
            out[keyword] = self._node(value, f"{spot.path}/{keyword}", spot.depth + 1)
        elif keyword in _LISTS:
            self._list(out, keyword, value, spot)
        elif keyword in _MAPS:
            self._map(out, keyword, value, spot)
        elif keyword in _COUNTS:
            self._keep(out, keyword, _count(value), spot, "must be a whole number, 0 or more")
        elif keyword in _VALUES:
            read, kind = _VALUES[keyword]
            self._keep(out, keyword, read(value), spot, f"must be {kind}")
        elif rule := _RULES.get(keyword):
            rule(self, out, keyword, value, spot)

    def _keep(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot", reason: str) -> None:
        if value is None:
            self._problem(spot.path, keyword, reason)
        else:
            out[keyword] = value[0] if isinstance(value, tuple) else value

    def _problem(self, path: str, keyword: str, reason: str) -> None:
        self._problems.append(Problem(path, keyword, reason))

    def _list(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        if not isinstance(value, list) or not value:
            self._problem(spot.path, keyword, "must be a list of schemas, not empty")
            return
        out[keyword] = [self._node(item, f"{spot.path}/{keyword}/{n}", spot.depth + 1) for n, item in enumerate(value)]

    def _map(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        if not isinstance(value, Mapping):
            self._problem(spot.path, keyword, "must be an object whose values are schemas")
            return
        out[keyword] = {
            str(name): self._node(item, f"{spot.path}/{keyword}/{name}", spot.depth + 1) for name, item in value.items()
        }

    def _items(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        """Before 2020-12 a list under `items` meant `prefixItems`, and `additionalItems` the rest."""
        if not isinstance(value, list):
            out["items"] = self._node(value, f"{spot.path}/items", spot.depth + 1)
            return
        if value:
            self._list(out, "items", value, spot)
            out["prefixItems"] = out.pop("items")
        if "additionalItems" in spot.raw:
            out["items"] = self._node(spot.raw["additionalItems"], f"{spot.path}/additionalItems", spot.depth + 1)

    def _dependencies(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        """Before 2019-09 one keyword for both kinds of dependency."""
        if not isinstance(value, Mapping):
            self._problem(spot.path, keyword, "must be an object")
            return
        names = {name: item for name, item in value.items() if isinstance(item, list)}
        schemas = {name: item for name, item in value.items() if name not in names}
        if names:
            self._keep(out, "dependentRequired", _name_lists(names), spot, "must map names to lists of names")
        if schemas:
            self._map(out, "dependentSchemas", schemas, spot)

    def _bound(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        """Draft 4 has `exclusiveMinimum: true` beside `minimum`."""
        if isinstance(value, bool) and keyword.startswith("exclusive"):
            return
        exclusive = "exclusive" + keyword[0].upper() + keyword[1:]
        name = exclusive if spot.raw.get(exclusive) is True else keyword
        self._keep(out, name, _number(value), spot, "must be a number")

    def _dynamic(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        self._problem(spot.path, keyword, "dynamic references are not supported")

    def _reference(self, out: dict[str, Any], keyword: str, value: Any, spot: "_Spot") -> None:
        target, where = self._resolve(value)
        seen: set[int] = set()
        while isinstance(target, Mapping) and set(target) == {"$ref"} and id(target) not in seen:
            seen.add(id(target))
            target, where = self._resolve(target["$ref"])
        if target is None or id(target) in seen:
            reason = f"{value!r} is not found in this schema (other documents are never fetched)"
            self._problem(spot.path, keyword, reason)
            return
        if id(target) not in self._names:
            name = str(len(self._names))
            self._names[id(target)] = name
            self._pending.append((name, target, where))
        out["$ref"] = f"#/$defs/{self._names[id(target)]}"

    def _resolve(self, reference: Any) -> tuple[Any, str]:
        if not isinstance(reference, str):
            return None, ""
        if reference == "#":
            return self._root, "#"
        if reference.startswith("#/"):
            return self._pointer(unquote(reference[2:])), reference
        if self._anchors is None:
            self._anchors = {}
            _collect_anchors(self._root, self._anchors, 0)
        return self._anchors.get(reference), reference

    def _pointer(self, pointer: str) -> Any:
        target = self._root
        for part in pointer.split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping):
                target = target.get(key)
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                return None
        return target if isinstance(target, Mapping | bool) else None


def _collect_anchors(node: Any, found: dict[str, Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(node, Mapping):
        for keyword, prefix in (("$anchor", "#"), ("$id", ""), ("id", "")):
            if isinstance(node.get(keyword), str):
                found.setdefault(prefix + node[keyword], node)
        for value in node.values():
            _collect_anchors(value, found, depth + 1)
    elif isinstance(node, list):
        for value in node:
            _collect_anchors(value, found, depth + 1)


def _number(value: Any) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _positive(value: Any) -> float | int | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def _type(value: Any) -> str | list[str] | None:
    if isinstance(value, str):
        return value if value in TYPES else None
    if isinstance(value, list) and value and all(isinstance(t, str) and t in TYPES for t in value):
        return list(dict.fromkeys(value))
    return None


def _names(value: Any) -> list[str] | None:
    return list(dict.fromkeys(value)) if isinstance(value, list) and all(isinstance(n, str) for n in value) else None


def _name_lists(value: Any) -> dict[str, list[str]] | None:
    if not isinstance(value, Mapping):
        return None
    lists = {str(name): _names(names) for name, names in value.items()}
    return None if None in lists.values() else {name: names or [] for name, names in lists.items()}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# Keywords whose value is plain data: keyword -> (its reader, None for a malformed value; what it must be).
# `const` comes wrapped in a tuple, for null is a value.
_VALUES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "type": (_type, "one of the seven types or a list of them"),
    "enum": (lambda value: value if isinstance(value, list) and value else None, "a list of values, not empty"),
    "const": (lambda value: (value,), "a value"),
    "required": (_names, "a list of names"),
    "dependentRequired": (_name_lists, "an object of lists of names"),
    "pattern": (_string, "a string"),
    "format": (_string, "a string"),
    "uniqueItems": (lambda value: value if isinstance(value, bool) else None, "true or false"),
    "multipleOf": (_positive, "a number above 0"),
}

_RULES: dict[str, Callable[[_Cleaner, dict[str, Any], str, Any, _Spot], None]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _Cleaner._bound),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), _Cleaner._dynamic),
    "items": _Cleaner._items,
    "dependencies": _Cleaner._dependencies,
    "$ref": _Cleaner._reference,
}
