"""One schema of a request on its way into the grammar: a tool's arguments or a response format.

Holds the policy: exact; or loosened with the places noted; a strict schema is refused instead. Knows no tokens.
"""

from dataclasses import dataclass, field
from typing import Self

from clover_agent.errors import InvalidSchema
from clover_agent.formats import ToolFormat
from clover_agent.grammar.dialect import Problem, Schema, clean
from clover_agent.grammar.loosen import Refusal, loosen
from clover_agent.grammar.lower import lower
from clover_agent.grammar.parts import LarkParts
from clover_agent.grammar.spec import arguments_schema, closed
from clover_agent.types import ResponseFormat, Tool


@dataclass(slots=True)
class Source:
    """A rule of the grammar and where it comes from.

    name       of the Lark rule
    label      what the schema is, for messages
    schema     lowered; loosened further as need be
    tool       None for a response format
    """

    name: str
    label: str
    schema: Schema
    strict: bool
    tool: Tool | None
    _lost: list[Problem]
    _lost_by_format: list[Problem] = field(default_factory=list)

    @classmethod
    def of_tool(cls, name: str, tool: Tool) -> Self:
        schema, problems = arguments_schema(tool.parameters)
        lowered, lost = lower(closed(schema))
        return cls(name, f"the parameters of {tool.name!r}", lowered, tool.strict, tool, [*problems, *lost])

    @classmethod
    def of_output(cls, name: str, output: ResponseFormat) -> Self:
        raw = {"type": "object"} if output.kind == "json_object" else output.schema
        cleaned = clean(True if raw is None else raw)
        lowered, lost = lower(cleaned.schema)
        return cls(name, "the response_format's schema", lowered, output.strict, None, [*cleaned.problems, *lost])

    @property
    def problems(self) -> list[Problem]:
        return self._lost + self._lost_by_format

    def rule(self, format_: ToolFormat, terminals: dict[str, str]) -> str:
        """The Lark rule of this source; the terminals that it names are added to `terminals`, body -> name."""
        definitions = self.schema.get("$defs", {}) if isinstance(self.schema, dict) else {}
        parts = LarkParts(definitions, terminals)
        body = parts.json(self.schema) if self.tool is None else format_.grammar(self.tool, self.schema, parts)
        self._lost_by_format = parts.problems
        return f"{self.name}: {body}\n"

    def loosen(self, refusal: Refusal) -> None:
        self.schema, lost = loosen(self.schema, refusal)
        self._lost += lost
        if self.tool is not None and isinstance(self.schema, dict | bool):
            self.schema = {**self.schema, "type": "object"} if isinstance(self.schema, dict) else {"type": "object"}

    def give_up(self) -> None:
        """Keep no more than that it is JSON (an object, for a tool)."""
        self.schema = True if self.tool is None else {"type": "object"}
        self._lost.append(Problem("#", "schema", "it is too much for the grammar as a whole"))

    def refuse_if_strict(self) -> None:
        """Raises `InvalidSchema` for a strict schema that was not kept exactly."""
        if self.strict and self.problems:
            raise InvalidSchema(
                f"With strict: true, {self.label} must be held exactly, and that cannot be done: {self.problems[0]}. "
                "Change the schema, or leave strict out.",
                param="response_format" if self.tool is None else "tools",
            )
