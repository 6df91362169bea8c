"""qwen_xml: a call is a function tag with one tag per parameter (Qwen3-Coder, Qwen3.5, Qwen3.6, Clover)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clover_agent.errors import InvalidToolCall
from clover_agent.formats import strict_json
from clover_agent.formats.base import named
from clover_agent.formats.grammar_parts import GrammarParts, Parameter, Schema
from clover_agent.formats.schema_types import admitted_types, property_schema, type_of
from clover_agent.types import Tool

_FUNCTION = re.compile(r"<function=([^>\n]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
# A value ends where its closing tag is followed by the next parameter or by nothing: it may mention the tag itself.
_VALUE_END = re.compile(r"\n?</parameter>(?=\s*<parameter=[^>\n]+>|\s*\Z)")
_VALUE_CLOSE = "\n</parameter>\n"
# A line of a value that would be taken for the end of it, by `_VALUE_END` or by a reader who goes by lines.
_CLOSING_LINE = r"</parameter>.*|.*</parameter>\s*(?:<parameter=.*)?"
_FUNCTION_END = "</function>"
_PYTHONIC = {"True": ("boolean", "true"), "False": ("boolean", "false"), "None": ("null", "null")}


class QwenXml:
    """`<tool_call>\\n<function=f>\\n<parameter=x>\\n1\\n</parameter>\\n</function>\\n</tool_call>`

    Text stands in a parameter as it is, every other value as JSON; the schema tells which is which.
    """

    name = "qwen_xml"
    aliases: tuple[str, ...] = ("qwen3_coder", "qwen3_xml")
    template = "qwen_xml"
    call_begin = "<tool_call>"
    call_end = "</tool_call>"
    closing_texts: tuple[str, ...] = (_VALUE_CLOSE, f"\n{_VALUE_CLOSE}", f"{_FUNCTION_END}\n")

    def encode(self, name: str, arguments: Mapping[str, Any]) -> str:
        parts = [f"{self.call_begin}\n<function={_writable(name)}>\n"]
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
            end = _VALUE_END.search(text + "\n</parameter>")
            if end is None or end.start() != len(text):
                raise InvalidToolCall(f"The value of {key!r} contains the tags that end it; qwen_xml cannot write it.")
            parts.append(f"<parameter={_writable(key)}>\n{text}\n</parameter>\n")
        return "".join([*parts, f"{_FUNCTION_END}\n{self.call_end}"])

    def decode(self, body: str, tools: Sequence[Tool]) -> tuple[str, str]:
        inner = body.strip()
        opening = _FUNCTION.match(inner)
        if opening is None or not inner.endswith(_FUNCTION_END):
            raise InvalidToolCall("The model wrote a tool call that is not one <function=...>...</function> block.")
        tool = named(opening[1], tools)
        written: dict[str, str] = {}
        for key, text in _parameters(inner[opening.end() : -len(_FUNCTION_END)]):
            if key in written:
                raise InvalidToolCall(f"The model gave the parameter {key!r} of {tool.name} twice.")
            written[key] = _json_value(text, key, tool)
        members = (f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in written.items())
        return tool.name, "{" + ", ".join(members) + "}"

    def grammar(self, tool: Tool, schema: Schema, parts: GrammarParts) -> str:
        members = parts.take_apart(schema)
        pieces = [parts.literal(f"\n<function={_writable(tool.name)}>\n")]
        for parameter in members.declared:
            value = self._value_grammar(tool, parameter, parts)
            if value is None:
                continue
            piece = f"{parts.literal(f'<parameter={parameter.name}>' + chr(10))} {value}"
            pieces.append(piece if parameter.required else f"({piece})?")
        if others := self._value_grammar(tool, Parameter("", members.others, required=False), parts):
            name = parts.name(forbidden=">\n", taken=frozenset(parameter.name for parameter in members.declared))
            pieces.append(f"({parts.literal('<parameter=')} {name} {parts.literal('>' + chr(10))} {others})*")
        return " ".join([*pieces, parts.literal(f"{_FUNCTION_END}\n")])

    def _value_grammar(self, tool: Tool, parameter: Parameter, parts: GrammarParts) -> str | None:
        """A value and the tag that ends it; None where there is none. `Parameter("")` stands for undeclared ones."""
        if not re.fullmatch(r"[^>\n]*", parameter.name):
            if parameter.required:
                parts.note("required", f"qwen_xml cannot write the name {parameter.name!r}")
            return None
        types = admitted_types(property_schema(tool.parameters, parameter.name, tool.parameters), tool.parameters)
        value = None if parameter.schema is False else self._typed(parameter.schema, types, parts)
        if value is None and parameter.required:
            parts.note("required", f"no value of {parameter.name!r} satisfies its schema")
            return self._typed(True, types, parts)
        return value

    def _typed(self, schema: Schema, types: frozenset[str], parts: GrammarParts) -> str | None:
        """Text stands as it is, other values as JSON: by the types that `decode` goes by."""
        if "string" not in types:
            return f"{parts.json(schema)} {parts.literal(_VALUE_CLOSE)}"
        others = types - {"string"}
        return parts.text(schema, end=_VALUE_CLOSE, forbidden_line=_CLOSING_LINE, instead_of=others)

    def member_texts(self, name: str) -> tuple[str, ...]:
        key = f"{json.dumps(name, ensure_ascii=False)}:"  # of an object inside a value
        return (f"<parameter={name}>", f"{name}>", key, f" {key}")

    def open_value(self, body: str) -> bool:
        """Any value that was begun counts as open: whether it is text or JSON is not told by the body alone."""
        if _FUNCTION.match(body.lstrip()) is None:
            return True
        last = body.rpartition("<parameter=")[2] if "<parameter=" in body else ""
        if not last or "</parameter>\n" in last:
            return False
        name, closed, value = last.partition(">")
        return bool(value.removeprefix("\n")) if closed else bool(name)


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """The parameters of a function block as (key, text); one line break on either side is the format's."""
    at = 0
    while text[at:].strip():
        opening = _PARAMETER.match(text, at)
        end = _VALUE_END.search(text, opening.end()) if opening else None
        if opening is None or end is None:
            raise InvalidToolCall(
                f"The model wrote a tool call with a broken parameter: {text[at : at + 80].strip()!r}."
            )
        yield opening[1], text[opening.end() : end.start()].removeprefix("\n")
        at = end.end()


def _json_value(text: str, key: str, tool: Tool) -> str:
    """The JSON text of a parameter, by the types that its schema admits."""
    types = admitted_types(property_schema(tool.parameters, key, tool.parameters), tool.parameters)
    if types == {"string"}:
        return json.dumps(text, ensure_ascii=False)
    literal = text.strip()
    pythonic_type, pythonic = _PYTHONIC.get(literal, ("", literal))
    if pythonic_type in types and "string" not in types:
        return pythonic
    try:
        value = strict_json.loads(literal)
    except ValueError as error:
        if "string" in types:
            return json.dumps(text, ensure_ascii=False)
        expected = " or ".join(sorted(types))
        raise InvalidToolCall(
            f"{key!r} of {tool.name} should be {expected}, the model wrote {literal[:80]!r}."
        ) from error
    if "string" in types and type_of(value) not in types - {"string"}:
        return json.dumps(text, ensure_ascii=False)
    return literal


def _writable(name: str) -> str:
    if not re.fullmatch(r"[^>\n]+", name):
        raise InvalidToolCall(f"{name!r} cannot be the name of a function or parameter in qwen_xml.")
    return name
