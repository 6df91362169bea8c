"""Conversation -> what chat templates expect: the messages and tools of Hugging Face's `apply_chat_template`.

One leading system message (templates refuse others); arguments as objects; the name of a tool result filled in from
its call. Knows nothing of Jinja.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from clover_agent.formats import strict_json
from clover_agent.types import Message, Tool, ToolCall

# How arguments that are no JSON object are handed to a template: as they are, or wrapped in one.
BrokenArguments = Literal["text", "object"]


def template_messages(messages: Sequence[Message], broken: BrokenArguments = "text") -> list[dict[str, Any]]:
    """The messages as dicts, all system messages merged into one at the front (empty ones dropped)."""
    system = "\n\n".join(m.content for m in messages if m.role == "system" and m.content.strip())
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    rest = [_message(message, names, broken) for message in messages if message.role != "system"]
    return [{"role": "system", "content": system}, *rest] if system else rest


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's form; None where there are none, as templates expect."""
    return [{"type": "function", "function": _function(tool)} for tool in tools] or None


def _function(tool: Tool) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": parameters}


def _message(message: Message, names: Mapping[str, str], broken: BrokenArguments) -> dict[str, Any]:
    form: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        if message.reasoning is not None:
            form["reasoning_content"] = message.reasoning
        if message.tool_calls:
            form["tool_calls"] = [_call(call, broken) for call in message.tool_calls]
    elif message.role == "tool":
        call_id = message.tool_call_id or ""
        form |= {"tool_call_id": call_id, "name": message.name or names.get(call_id, "")}
    return form


def _call(call: ToolCall, broken: BrokenArguments) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments, broken)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str, broken: BrokenArguments) -> dict[str, Any] | str:
    if not text.strip():
        return {}
    try:
        value = strict_json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    return text if broken == "text" else {"arguments": text}
