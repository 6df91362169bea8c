"""Which JSON types a schema admits, as far as it says so: enough to tell text from JSON in an XML parameter.

Not a validator: whether a value satisfies its schema is checked elsewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ANY = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
MOST_REFERENCES = 32  # followed in a row before a schema counts as saying nothing


def admitted_types(schema: Any, root: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types that `schema` admits; all of them where it does not say. `root` resolves `#/…` references."""
    if not isinstance(schema, Mapping) or depth > MOST_REFERENCES:
        return ANY
    types = ANY
    if "type" in schema:
        types &= _declared(schema["type"])
    if "enum" in schema and isinstance(schema["enum"], list):
        types &= _union(_wide(type_of(value)) for value in schema["enum"])
    if "const" in schema:
        types &= _wide(type_of(schema["const"]))
    if isinstance(schema.get("$ref"), str):
        types &= admitted_types(_resolve(schema["$ref"], root), root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            types &= _union(admitted_types(option, root, depth + 1) for option in schema[keyword])
    for part in schema.get("allOf") or ():
        types &= admitted_types(part, root, depth + 1)
    if schema.get("nullable") is True:
        types |= {"null"}
    return types or ANY


def property_schema(schema: Any, key: str, root: Any, depth: int = 0) -> Any:
    """The schema of one property of an object schema; None where nothing is said about it."""
    if not isinstance(schema, Mapping) or depth > MOST_REFERENCES:
        return None
    found = []
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        found.append(properties[key])
    elif isinstance(schema.get("additionalProperties"), Mapping):
        found.append(schema["additionalProperties"])
    parts = [part for keyword in ("allOf", "anyOf", "oneOf") for part in schema.get(keyword) or ()]
    if isinstance(schema.get("$ref"), str):
        parts.append(_resolve(schema["$ref"], root))
    inner = (property_schema(part, key, root, depth + 1) for part in parts)
    found += [option for option in inner if option is not None]
    return {"anyOf": found} if len(found) > 1 else next(iter(found), None)


def type_of(value: Any) -> str:
    """The JSON type of a value; a whole number is an "integer", however it is written."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", list: "array", dict: "object"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "null")


def _declared(declared: Any) -> frozenset[str]:
    names = declared if isinstance(declared, list) else [declared]
    return _union(_wide(name) for name in names if isinstance(name, str))


def _wide(name: str) -> frozenset[str]:
    return frozenset({"number", "integer"}) if name == "number" else frozenset({name})


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _resolve(reference: str, root: Any) -> Any:
    """What a `#/…` pointer points to; None if nothing, or if it leaves the schema."""
    start, *escaped = reference.split("/")
    node = root if start == "#" else None
    for step in (part.replace("~1", "/").replace("~0", "~") for part in escaped):
        if isinstance(node, Mapping):
            node = node.get(step)
        elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    return node
