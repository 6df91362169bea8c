"""One training example, and the records of the shared tool-calling format read as such.

A record is a JSON object with `tools` (OpenAI's form), `messages`, the right next `calls` (name and arguments) or the
right `answer`. Arguments are put in the order of the tool's schema, nested objects too: a grammar writes them so.
Knows nothing of templates and tokens.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clover_agent.errors import LoadFailed
from clover_agent.types import Message, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class Call:
    """A call as data: arguments as parsed JSON."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """What the model sees and what it must say: calls, or an answer; `thought` before them if thinking is on.

    source   the corpus; kind: what is asked of the model (single, pair, many, none, answer, chat)
    """

    source: str
    kind: str
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    calls: tuple[Call, ...] = ()
    answer: str | None = None
    thought: str | None = None
    id: str = field(default="", compare=False)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a `.jsonl` or `.jsonl.gz` file. Raises `LoadFailed` if it cannot be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise LoadFailed(f"{path}: not a readable JSON lines file: {error}") from error


def example_of(record: Mapping[str, Any]) -> Example:
    """A record as an example. Raises `LoadFailed` naming the record if a field is missing."""
    try:
        tools = tuple(tool_of(tool) for tool in record["tools"])
        schemas = {tool.name: tool.parameters or {} for tool in tools}
        calls = tuple(
            Call(call["name"], in_schema_order(call["arguments"], schemas.get(call["name"], {})))
            for call in record.get("calls") or ()
        )
        messages = tuple(message_of(message) for message in record["messages"])
        answer = record.get("answer")
        return Example(
            source=record["source"],
            kind=_kind(calls, answer, messages),
            tools=tools,
            messages=messages,
            calls=calls,
            answer=answer,
            id=record.get("id", ""),
        )
    except (KeyError, TypeError) as error:
        raise LoadFailed(f"record {record.get('id', '?')}: {error!r}") from error


def record_of(example: Example) -> dict[str, Any]:
    """An example in the shared format."""
    return {
        "source": example.source,
        "split": "dev",
        "id": example.id,
        "kind": example.kind,
        "tools": [openai_tool(tool) for tool in example.tools],
        "messages": [openai_message(message) for message in example.messages],
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in example.calls],
        "answer": example.answer,
    }


def tool_of(tool: Mapping[str, Any]) -> Tool:
    function = tool["function"]
    return Tool(function["name"], function.get("description") or "", function.get("parameters"))


def openai_tool(tool: Tool) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    described = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": described}


def message_of(message: Mapping[str, Any]) -> Message:
    calls = tuple(
        ToolCall(call.get("id", ""), call["function"]["name"], _arguments_text(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    return Message(
        role=message["role"],
        content=message.get("content") or "",
        tool_calls=calls,
        tool_call_id=message.get("tool_call_id"),
    )


def openai_message(message: Message) -> dict[str, Any]:
    form: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        form["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.loads(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        form["tool_call_id"] = message.tool_call_id
    return form


def in_schema_order(value: Any, schema: Any) -> Any:
    """The value with the keys of its objects in the order of the schema's properties; unknown keys last."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, Mapping):
        properties = schema.get("properties") or {}
        order = [key for key in properties if key in value] + [key for key in value if key not in properties]
        return {key: in_schema_order(value[key], properties.get(key)) for key in order}
    if isinstance(value, list):
        return [in_schema_order(item, schema.get("items")) for item in value]
    return value


def _arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _kind(calls: Sequence[Call], answer: str | None, messages: Sequence[Message]) -> str:
    if calls:
        return ("single", "pair")[len(calls) - 1] if len(calls) < 3 else "many"
    return "answer" if answer and messages[-1].role == "tool" else "none"
