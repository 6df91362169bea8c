"""ChatCompletionRequest -> Conversation: what the fields mean, and the checks between fields."""

import json
from collections.abc import Sequence
from typing import Any

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
    SamplingOverrides,
    Tool,
    ToolCall,
    ToolChoice,
)

# Names that the server gives to a chat template; a request cannot replace them.
TEMPLATE_OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "chat_template", "tokenize"})
SMALLEST_TOP_P = 1e-9  # OpenAI allows 0, which means: the best token only
SEED_BITS = 2**63 - 1


def to_conversation(
    body: ChatCompletionRequest,
    schemas: SchemaChecker,
    *,
    max_context: int,
    deadline_s: float | None = None,
) -> Conversation:
    """The request as the service takes it. Raises `InvalidRequest` naming the field."""
    kwargs = _template_kwargs(body)
    tools = _tools(body.tools or (), schemas)
    return Conversation(
        messages=tuple(_message(message, f"messages.{i}") for i, message in enumerate(body.messages)),
        tools=tools,
        tool_choice=_tool_choice(body, {tool.name for tool in tools}),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=_response_format(body, schemas),
        sampling=_sampling(body, max_context),
        stop=_stop(body),
        enable_thinking=kwargs.pop("enable_thinking", None),
        thinking_budget=None if body.thinking_token_budget is None else min(body.thinking_token_budget, max_context),
        template_kwargs=kwargs,
        include_drafts=bool(body.stream_options and body.stream_options.include_drafts),
        deadline_s=deadline_s,
    )


def _message(message: ChatMessage, path: str) -> Message:
    role: Role = "system" if message.role == "developer" else message.role
    content = _text(message.content)
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


def _text(content: Content | None) -> str:
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


def _stop(body: ChatCompletionRequest) -> tuple[str, ...]:
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


def _template_kwargs(body: ChatCompletionRequest) -> dict[str, Any]:
    """Template variables: what reasoning_effort says, then the request's own. The operator's defaults come later."""
    own = body.chat_template_kwargs or {}
    taken = sorted(TEMPLATE_OWN.intersection(own))
    if taken:
        path = f"chat_template_kwargs.{taken[0]}"
        raise InvalidRequest(f"{path}: cannot be set by a request.", param=path)
    effort = {}
    if body.reasoning_effort is not None:
        effort = {"enable_thinking": body.reasoning_effort != "none", "reasoning_effort": body.reasoning_effort}
    kwargs = {**effort, **own}
    if not isinstance(kwargs.get("enable_thinking"), bool | None):
        path = "chat_template_kwargs.enable_thinking"
        raise InvalidRequest(f"{path}: must be true or false.", param=path)
    return kwargs


def _sampling(body: ChatCompletionRequest, max_context: int) -> SamplingOverrides:
    """What the request sets. Token counts are cut to the context: clients send absurd ones by default."""
    asked: dict[str, Any] = {
        "max_tokens": body.max_completion_tokens or body.max_tokens,
        "min_tokens": body.min_tokens,
        "temperature": body.temperature,
        "top_p": None if body.top_p is None else max(body.top_p, SMALLEST_TOP_P),
        "top_k": None if body.top_k is None else max(body.top_k, 0),
        "min_p": body.min_p,
        "seed": None if body.seed is None else body.seed & SEED_BITS,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": tuple((int(id_), bias) for id_, bias in (body.logit_bias or {}).items()) or None,
        "stop_token_ids": tuple(body.stop_token_ids or ()) or None,
        "ignore_eos": body.ignore_eos,
        "threshold": body.threshold,
        "block_size": body.block_size,
    }
    for name in ("max_tokens", "min_tokens"):
        if asked[name] is not None:
            asked[name] = min(asked[name], max_context)
    if asked["max_tokens"] is not None and (asked["min_tokens"] or 0) > asked["max_tokens"]:
        raise InvalidRequest("min_tokens: is larger than max_tokens.", param="min_tokens")
    overrides: SamplingOverrides = {name: value for name, value in asked.items() if value is not None}  # type: ignore[assignment]
    return overrides
