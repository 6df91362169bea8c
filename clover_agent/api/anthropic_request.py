"""MessagesRequest -> Conversation: what the fields mean, and the checks between fields."""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from clover_agent.api.anthropic_schema import (
    AnyTool,
    Block,
    CountTokensRequest,
    CustomTool,
    MessageParam,
    MessagesRequest,
    NamedChoice,
    ResultContent,
    TextBlock,
    Thinking,
    ToolResult,
    ToolUse,
)
from clover_agent.api.fields import SMALLEST_TOP_P
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.errors import InvalidRequest, UnsupportedParameter
from clover_agent.types import Conversation, Message, ResponseFormat, SamplingOverrides, Tool, ToolCall, ToolChoice

logger = logging.getLogger("clover_agent.api")

USERS = frozenset({"text", "tool_result"})
ASSISTANTS = frozenset({"text", "tool_use", "thinking", "redacted_thinking"})


def to_conversation(
    body: CountTokensRequest,
    schemas: SchemaChecker,
    *,
    max_context: int,
    deadline_s: float | None = None,
) -> Conversation:
    """The request as the service takes it. Raises `InvalidRequest` naming the field.

    Without `thinking` the model does not think, whatever its template's default: that is this format's rule, and its
    clients take the first block of an answer for the text.
    """
    tools = _tools(body.tools or (), schemas)
    thinking = body.thinking
    effort = body.output_config.effort if body.output_config else None
    budget = thinking.budget_tokens if thinking and thinking.type == "enabled" else None
    return Conversation(
        messages=tuple(_messages(body)),
        tools=tools,
        tool_choice=_tool_choice(body, {tool.name for tool in tools}),
        parallel_tool_calls=not (body.tool_choice and body.tool_choice.disable_parallel_tool_use),
        response_format=_response_format(body, schemas),
        sampling=_sampling(body, max_context) if isinstance(body, MessagesRequest) else {},
        stop=tuple(body.stop_sequences or ()) if isinstance(body, MessagesRequest) else (),
        enable_thinking=thinking is not None and thinking.type != "disabled",
        thinking_budget=None if budget is None else min(budget, max_context),
        template_kwargs={} if effort is None else {"reasoning_effort": effort},
        deadline_s=deadline_s,
    )


def _messages(body: CountTokensRequest) -> Iterator[Message]:
    if body.system:
        yield Message("system", _text(body.system))
    names: dict[str, str] = {}  # call id -> tool, for the results that follow
    for i, message in enumerate(body.messages):
        path = f"messages.{i}"
        _check_blocks(message, path)
        if message.role == "assistant":
            yield _assistant(message, names)
        elif message.role == "system":
            yield Message("system", _text(message.content))
        else:
            yield from _user(message, names)
    if body.messages[-1].role == "assistant":
        raise UnsupportedParameter(
            "messages: an answer cannot be continued (prefill); the last message must be the user's.", param="messages"
        )


def _check_blocks(message: MessageParam, path: str) -> None:
    """Raises `InvalidRequest` for a block that this role does not have."""
    if isinstance(message.content, str):
        return
    allowed = ASSISTANTS if message.role == "assistant" else USERS if message.role == "user" else frozenset({"text"})
    for i, block in enumerate(message.content):
        if block.type not in allowed:
            field = f"{path}.content.{i}.type"
            raise InvalidRequest(f"{field}: role {message.role} has no {block.type!r} blocks.", param=field)


def _assistant(message: MessageParam, names: dict[str, str]) -> Message:
    """One turn of the model. What came apart when it was said is put together without a seam."""
    if isinstance(message.content, str):
        return Message("assistant", message.content)
    blocks = message.content
    thoughts = [block.thinking for block in blocks if isinstance(block, Thinking)]
    calls = tuple(
        ToolCall(block.id, block.name, json.dumps(block.input, ensure_ascii=False))
        for block in blocks
        if isinstance(block, ToolUse)
    )
    names.update((call.id, call.name) for call in calls)
    return Message(
        "assistant",
        "".join(block.text for block in blocks if isinstance(block, TextBlock)),
        reasoning="".join(thoughts) or None,
        tool_calls=calls,
    )


def _user(message: MessageParam, names: dict[str, str]) -> Iterator[Message]:
    """Results become messages of their own; what is said between them stays where it was."""
    if isinstance(message.content, str):
        yield Message("user", message.content)
        return
    said: list[Block] = []
    for block in message.content:
        if not isinstance(block, ToolResult):
            said.append(block)
            continue
        if said:
            yield Message("user", _text(said))
            said = []
        yield Message("tool", _result(block), tool_call_id=block.tool_use_id, name=names.get(block.tool_use_id))
    if said or not message.content:
        yield Message("user", _text(said))


def _result(block: ToolResult) -> str:
    """What a tool said. Chat templates have no mark for a failure, so it is said in words."""
    text = _result_text(block.content)
    return f"Error: {text}" if block.is_error else text


def _result_text(content: ResultContent | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if isinstance(part, TextBlock) else part.tool_name for part in content)


def _text(content: str | Sequence[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def _tools(tools: Sequence[AnyTool], schemas: SchemaChecker) -> tuple[Tool, ...]:
    kept: dict[str, Tool] = {}
    for i, tool in enumerate(tools):
        path = f"tools.{i}"
        if not isinstance(tool, CustomTool):
            logger.warning("a hosted tool is dropped", extra={"fields": {"tool": tool.type[:64]}})
            continue
        if tool.name in kept:
            raise InvalidRequest(f"{path}.name: {tool.name!r} is used twice.", param=f"{path}.name")
        if tool.input_schema:
            schemas.check_parameters(tool.input_schema, f"{path}.input_schema")
        kept[tool.name] = Tool(tool.name, tool.description or "", tool.input_schema or None, tool.strict is True)
    return tuple(kept.values())


def _tool_choice(body: CountTokensRequest, names: set[str]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice.type in ("auto", "none"):
        return ToolChoice("none" if choice is not None and choice.type == "none" else "auto")
    if isinstance(choice, NamedChoice):
        if choice.name not in names:
            raise InvalidRequest(
                f"tool_choice.name: {choice.name[:64]!r} is not among `tools` (hosted ones are dropped).",
                param="tool_choice.name",
            )
        return ToolChoice("required", (choice.name,))
    if not names:
        raise InvalidRequest("tool_choice: asks for a tool, but `tools` is empty.", param="tool_choice")
    return ToolChoice("required")


def _response_format(body: CountTokensRequest, schemas: SchemaChecker) -> ResponseFormat:
    new = body.output_config.format if body.output_config else None
    asked, path = (new, "output_config.format.schema") if new else (body.output_format, "output_format.schema")
    if asked is None:
        return ResponseFormat()
    schemas.check(asked.schema_, path)
    return ResponseFormat("json_schema", asked.schema_)


def _sampling(body: MessagesRequest, max_context: int) -> SamplingOverrides:
    asked: dict[str, Any] = {
        "max_tokens": min(body.max_tokens, max_context),
        "temperature": body.temperature,
        "top_p": None if body.top_p is None else max(body.top_p, SMALLEST_TOP_P),
        "top_k": body.top_k,
    }
    overrides: SamplingOverrides = {name: value for name, value in asked.items() if value is not None}  # type: ignore[assignment]
    return overrides
