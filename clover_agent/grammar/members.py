"""An arguments object taken apart into its members, for formats that write one member after another.

Works on lowered schemas. What a list of members cannot say is left out and noted. Knows no format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clover_agent.formats.grammar_parts import Parameter, Parameters
from clover_agent.grammar.dialect import Problem, Schema

MAX_DEPTH = 16
_NOTED = ("minProperties", "maxProperties", "patternProperties", "enum", "const")


@dataclass(slots=True)
class _Members:
    declared: dict[str, Schema] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    others: Schema = True


def take_apart(schema: Schema, definitions: Mapping[str, Schema], problems: list[Problem]) -> Parameters:
    """The members of an object that satisfies `schema`, in the order in which they are to be written."""
    members = _members(schema, definitions, problems, "#", 0)
    for name in members.required:
        members.declared.setdefault(name, members.others)
    declared = (Parameter(name, part, name in members.required) for name, part in members.declared.items())
    return Parameters(tuple(declared), members.others)


def _members(
    schema: Schema, definitions: Mapping[str, Schema], problems: list[Problem], path: str, depth: int
) -> _Members:
    if isinstance(schema, bool) or depth > MAX_DEPTH:
        return _Members()
    for keyword in _NOTED:
        if keyword in schema:
            problems.append(Problem(path, keyword, "this tool format cannot hold it for the arguments as a whole"))
    pattern_only = "patternProperties" in schema and schema.get("additionalProperties") is False
    own = _Members(
        dict(schema.get("properties", {})),
        list(schema.get("required", ())),
        True if pattern_only else schema.get("additionalProperties", True),
    )
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        own = _both(own, _members(target, definitions, problems, schema["$ref"], depth + 1))
    for n, part in enumerate(schema.get("allOf", ())):
        own = _both(own, _members(part, definitions, problems, f"{path}/allOf/{n}", depth + 1))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            problems.append(Problem(path, keyword, "this tool format writes the parameters of all options"))
            options = [_members(option, definitions, problems, path, depth + 1) for option in schema[keyword]]
            own = _both(own, _either(options))
    return own


def _both(left: _Members, right: _Members) -> _Members:
    """Members of an object that satisfies both."""
    declared = {name: _all_of(part, right.declared.get(name, right.others)) for name, part in left.declared.items()}
    for name, part in right.declared.items():
        if name not in left.declared:
            declared[name] = _all_of(left.others, part)
    return _Members(declared, list(dict.fromkeys(left.required + right.required)), _all_of(left.others, right.others))


def _either(options: list[_Members]) -> _Members:
    """Members of an object that satisfies one of the options, loosely: any mixture of them."""
    declared: dict[str, Schema] = {}
    for option in options:
        for name, part in option.declared.items():
            declared[name] = {"anyOf": [declared[name], part]} if name in declared else part
    required = [name for name in options[0].required if all(name in option.required for option in options)]
    return _Members(declared, required, next((o.others for o in options if o.others is not False), False))


def _all_of(left: Schema, right: Schema) -> Schema:
    if left is True or left == right:
        return right
    if right is True:
        return left
    return False if left is False or right is False else {"allOf": [left, right]}
