"""What a request asks of the grammar, as a value: the content that a compiled grammar is cached by.

Also the one place that says what the arguments of a tool are. Knows nothing of Lark and of tokens.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clover_agent.errors import InvalidRequest
from clover_agent.formats.schema_types import admitted_types
from clover_agent.grammar.dialect import Problem, Schema, clean
from clover_agent.types import JsonSchema, ResponseFormat, Tool, ToolChoice

MAX_TOOLS = 128
WRAPPED = "value"  # the one parameter of a tool whose parameters are not an object

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class GrammarSpec:
    """What the grammar must hold.

    tools      that may be called; empty: no calls
    parallel   more than one call may follow
    output     what the visible text must be instead of calls; None: it is not held (or there is none)
    """

    tools: tuple[Tool, ...] = ()
    parallel: bool = True
    output: ResponseFormat | None = None

    @cached_property
    def key(self) -> str:
        """The content. Key order counts: it is the order in which properties are written."""
        tools = [(tool.name, tool.parameters, tool.strict) for tool in self.tools]
        output = self.output and (self.output.kind, self.output.schema, self.output.strict)
        return json.dumps([tools, self.parallel, output])


def callable_tools(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[Tool, ...]:
    """The tools that `choice` lets the model call. Raises `InvalidRequest` for a choice that cannot be met."""
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"{len(tools)} tools were given; the most is {MAX_TOOLS}.", param="tools")
    if choice.mode == "none":
        return ()
    known = {tool.name: tool for tool in tools}
    allowed = tuple(known) if choice.allowed is None else choice.allowed
    for name in allowed:
        if name not in known:
            raise InvalidRequest(f"tool_choice names {name!r}, which is not among the tools.", param="tool_choice")
    if choice.mode == "required" and not allowed:
        raise InvalidRequest("tool_choice requires a call, but there is no tool to call.", param="tool_choice")
    return tuple(known[name] for name in dict.fromkeys(allowed))


def arguments_schema(parameters: JsonSchema | None) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The clean schema of a tool's arguments, always of an object, and what could not be kept of `parameters`.

    None: no arguments. Parameters that are no object are wrapped: one parameter `WRAPPED` of that schema.
    Raises `InvalidSchema` where they are too large.
    """
    if parameters is None:
        return _NO_ARGUMENTS, ()
    cleaned = clean(parameters)
    schema = cleaned.schema
    if schema is False:
        return _NO_ARGUMENTS, (*cleaned.problems, Problem("#", "parameters", "no arguments satisfy `false`"))
    if schema is True:
        return {"type": "object"}, cleaned.problems
    if "object" not in admitted_types(schema, schema):
        return _wrapped(schema), cleaned.problems
    return {**schema, "type": "object"}, cleaned.problems


def closed(schema: Schema) -> Schema:
    """The arguments kept to the declared parameters, where the schema says nothing of others.

    A model has no business inventing parameters, and the closing brace can be forced. The values of the parameters
    are left as they are.
    """
    if isinstance(schema, bool) or "properties" not in schema or schema.keys() & _SPEAKS_OF_OTHERS:
        return schema
    if not set(schema.get("required", ())) <= schema["properties"].keys():
        return schema
    return {**schema, "additionalProperties": False}


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**_NO_ARGUMENTS, "properties": {WRAPPED: inner}, "required": [WRAPPED], **definitions}


_SPEAKS_OF_OTHERS = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "$ref"}
    | {"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "minProperties"}
)
