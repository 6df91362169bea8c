"""hermes_json: a call is a JSON object with name and arguments (Hermes models, Qwen2.5, Qwen3, sprout)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from clover_agent.errors import InvalidToolCall
from clover_agent.formats import strict_json
from clover_agent.formats.base import named
from clover_agent.formats.grammar_parts import GrammarParts, Schema
from clover_agent.types import Tool

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAMED = re.compile(r'\s*\{"name": "(?:[^"\\]|\\.)*"')


class HermesJson:
    """`<tool_call>\\n{"name": "f", "arguments": {"x": 1}}\\n</tool_call>`"""

    name = "hermes_json"
    aliases: tuple[str, ...] = ("hermes",)
    template = "hermes_json"
    call_begin = "<tool_call>"
    call_end = "</tool_call>"
    closing_texts: tuple[str, ...] = ("}}\n",)

    def encode(self, name: str, arguments: Mapping[str, Any]) -> str:
        body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
        return f"{self.call_begin}\n{body}\n{self.call_end}"

    def decode(self, body: str, tools: Sequence[Tool]) -> tuple[str, str]:
        try:
            call = dict(strict_json.members(body))
            name = strict_json.loads(call.get("name", "null"))
            arguments = _arguments(call.get("arguments", "{}"))
        except ValueError as error:
            raise InvalidToolCall(f"The model wrote a tool call that is not valid JSON: {error}.") from error
        if not isinstance(name, str):
            raise InvalidToolCall("The model wrote a tool call without a name.")
        return named(name, tools).name, arguments

    def grammar(self, tool: Tool, schema: Schema, parts: GrammarParts) -> str:
        head = f'\n{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
        return f"{parts.literal(head)} {parts.json(schema)} {parts.literal('}' + chr(10))}"

    def member_texts(self, name: str) -> tuple[str, ...]:
        key = f"{json.dumps(name, ensure_ascii=False)}:"
        return (key, f" {key}")

    def open_value(self, body: str) -> bool:
        if _NAMED.match(body) is None:
            return True
        structure = _STRING.sub("", body).removesuffix('"').removesuffix("[")  # opened, and nothing in it: not begun
        open_array = structure.count("[") > structure.count("]")
        return '"' in structure or open_array or structure[-1:] in "0123456789.eE+-"


def _arguments(text: str) -> str:
    """The object's own text; an object written into a string (some models quote it) is taken out of it."""
    value = strict_json.loads(text)
    if isinstance(value, str):
        text, value = value, strict_json.loads(value)
    if not isinstance(value, dict):
        raise ValueError("the arguments are not an object")
    return text
