"""ChatCompletionRequest -> Conversation: what the fields mean, and the checks between fields."""

import json
from collections.abc import Sequence

from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_schema import (
    AllowedToolsChoice,
    ChatCompletionRequest,
    ChatMessage,
    Content,
    HistoryCall,
    NamedTool,
    ToolDefinition,
)
from clover_agent.errors import InvalidRequest
from clover_agent.types import (
    Conversation,
    Message,
    ResponseFormat,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
)


def to_conversation(
    body: ChatCompletionRequest,
    schemas: SchemaChecker,
    *,
    max_context: int,
    deadline_s: float | None = None,
) -> Conversation:
    """The request as the service takes it. Raises `InvalidRequest` naming the field."""
    kwargs = body.template_kwargs(body.reasoning_effort)
    tools = _tools(body.tools or (), schemas)
    return Conversation(
        messages=tuple(_message(message, f"messages.{i}") for i, message in enumerate(body.messages)),
        tools=tools,
        tool_choice=_tool_choice(body, {tool.name for tool in tools}),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=_response_format(body, schemas),
        sampling=body.sampling(body.max_completion_tokens or body.max_tokens, max_context),
        stop=body.stop_texts(),
        enable_thinking=kwargs.pop("enable_thinking", None),
        thinking_budget=body.budget(max_context),
        template_kwargs=kwargs,
        include_drafts=bool(body.stream_options and body.stream_options.include_drafts),
        deadline_s=deadline_s,
    )


def _message(message: ChatMessage, path: str) -> Message:
    role: Role = "system" if message.role == "developer" else message.role
    content = text_of(message.content)
    if role == "assistant":
        calls = tuple(_call(call, i) for i, call in enumerate(message.tool_calls or ()))
        return Message(role, content, reasoning=_reasoning(message), tool_calls=calls, name=message.name)
    if role != "tool":
        return Message(role, content, name=message.name)
    if message.tool_call_id is None:
        raise InvalidRequest(f"{path}.tool_call_id: a tool message needs it.", param=f"{path}.tool_call_id")
    return Message(role, content, tool_call_id=message.tool_call_id, name=message.name)


def _reasoning(message: ChatMessage) -> str | None:
    return message.reasoning_content if message.reasoning_content is not None else message.reasoning


def text_of(content: Content | None) -> str:
    """The text parts, a line each."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content)


def _call(call: HistoryCall, index: int) -> ToolCall:
    arguments = call.function.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call.id or f"call_{index}", call.function.name, text)


def _tools(definitions: Sequence[ToolDefinition], schemas: SchemaChecker) -> tuple[Tool, ...]:
    seen: set[str] = set()
    for i, definition in enumerate(definitions):
        function, path = definition.function, f"tools.{i}.function"
        if function.name in seen:
            raise InvalidRequest(f"{path}.name: {function.name!r} is used twice.", param=f"{path}.name")
        seen.add(function.name)
        if function.parameters:
            schemas.check_parameters(function.parameters, f"{path}.parameters")
    return tuple(
        Tool(d.function.name, d.function.description or "", d.function.parameters or None, d.function.strict is True)
        for d in definitions
    )


def _tool_choice(body: ChatCompletionRequest, names: set[str]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice in ("auto", "none"):
        return ToolChoice("none" if choice == "none" else "auto")
    if not names:
        raise InvalidRequest("tool_choice: asks for a tool, but `tools` is empty.", param="tool_choice")
    if isinstance(choice, NamedTool):
        return ToolChoice("required", (_known(choice.function.name, names, "tool_choice.function.name"),))
    if isinstance(choice, AllowedToolsChoice):
        path = "tool_choice.allowed_tools.tools"
        allowed = [
            _known(tool.function.name, names, f"{path}.{i}.function.name")
            for i, tool in enumerate(choice.allowed_tools.tools)
        ]
        return ToolChoice(choice.allowed_tools.mode, tuple(dict.fromkeys(allowed)))
    return ToolChoice("required")


def _known(name: str, names: set[str], path: str) -> str:
    if name not in names:
        raise InvalidRequest(f"{path}: {name[:64]!r} is not among `tools`.", param=path)
    return name


def _response_format(body: ChatCompletionRequest, schemas: SchemaChecker) -> ResponseFormat:
    asked = body.response_format
    if asked is None or asked.type == "text":
        return ResponseFormat()
    if asked.type == "json_object":
        path, schema, strict = "response_format.schema", asked.schema_, False
    elif asked.json_schema is None:
        raise InvalidRequest(
            "response_format.json_schema: needed for type json_schema.", param="response_format.json_schema"
        )
    else:
        path = "response_format.json_schema.schema"
        schema, strict = asked.json_schema.schema_ or {}, asked.json_schema.strict is True
    if schema is None:
        return ResponseFormat("json_object")
    schemas.check(schema, path)
    return ResponseFormat("json_schema", schema, strict)
