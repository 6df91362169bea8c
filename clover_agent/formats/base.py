"""What a tool format is: one syntax of tool calls, known once, for prompt, parser and grammar alike."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from clover_agent.errors import InvalidToolCall
from clover_agent.formats.grammar_parts import GrammarParts, Schema
from clover_agent.types import Tool


class ToolFormat(Protocol):
    """One syntax of tool calls.

    name, aliases          what users call it; aliases are the names of other servers
    template               its bundled chat template: tool_templates/TEMPLATE.jinja
    call_begin, call_end   the control strings around a call; what is between them is its body
    closing_texts          what usually ends a value, or a whole call, apart from JSON's own marks
    """

    name: str
    aliases: tuple[str, ...]
    template: str
    call_begin: str
    call_end: str
    closing_texts: tuple[str, ...]

    def encode(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A whole call, markers included, exactly as a model is trained to write it.

        Raises `InvalidToolCall` for a call that this syntax cannot express.
        """

    def decode(self, body: str, tools: Sequence[Tool]) -> tuple[str, str]:
        """The text between the markers -> (name, arguments as JSON text).

        Values that are JSON in the body are forwarded as the model wrote them. Says nothing about the schema: that is
        checked elsewhere. Raises `InvalidToolCall` if the body is malformed or names no tool of `tools`.
        """

    def grammar(self, tool: Tool, schema: Schema, parts: GrammarParts) -> str:
        """The grammar of the body of a call of `tool`, a Lark expression. `schema`: of its arguments, an object's.

        Whatever it admits, `decode` reads as arguments that satisfy `schema` (where nothing was noted as looser).
        What this syntax cannot write is noted in `parts`.
        """

    def member_texts(self, name: str) -> tuple[str, ...]:
        """How the member `name` of an object begins, as far as the format writes members at all."""

    def open_value(self, body: str) -> bool:
        """Whether an unfinished body ends where only the model may go on: inside a string, number or array that it
        began, or before it has named the function."""


def named(name: str, tools: Sequence[Tool]) -> Tool:
    """The tool of that name. Raises `InvalidToolCall` if there is none."""
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools)
    raise InvalidToolCall(f"The model called {name!r}, which is not a tool of this request ({known}).")
