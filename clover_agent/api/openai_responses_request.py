"""ResponsesRequest -> Conversation: what the fields mean, and the checks between fields.

An item is less than a message: a thought, a text and the calls that a model gave in one turn come back as items of
their own and are put together again. Tools with a namespace are told to the model as `namespace__name`.
"""

import base64
import binascii
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_request import text_of
from clover_agent.api.openai_responses_schema import (
    AllowedTools,
    AnyTool,
    CallOutputItem,
    CustomCallItem,
    CustomTool,
    FunctionCallItem,
    FunctionTool,
    Item,
    MessageItem,
    NamedTool,
    NamespaceTool,
    ReasoningItem,
    ResponsesRequest,
)
from clover_agent.errors import InvalidRequest
from clover_agent.types import Conversation, Message, ResponseFormat, Tool, ToolCall, ToolChoice

logger = logging.getLogger("clover_agent.api")

THOUGHT = "clover:"  # how our `encrypted_content` begins: base64 of the thought, hidden from nobody
CUSTOM_PARAMETERS = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@dataclass(frozen=True, slots=True)
class Origin:
    """How the request named a tool that the model knows by one name."""

    name: str
    namespace: str | None
    custom: bool


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools as the model is told of them, where each came from, and the types of those that were dropped."""

    all: tuple[Tool, ...] = ()
    origins: dict[str, Origin] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def to_conversation(
    body: ResponsesRequest,
    tools: Tools,
    schemas: SchemaChecker,
    *,
    max_context: int,
    deadline_s: float | None = None,
) -> Conversation:
    """The request as the service takes it. Raises `InvalidRequest` naming the field."""
    kwargs = body.template_kwargs(body.reasoning.effort if body.reasoning else None)
    return Conversation(
        messages=tuple(_messages(body)),
        tools=tools.all,
        tool_choice=_tool_choice(body, set(tools.origins)),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=_response_format(body, schemas),
        sampling=body.sampling(body.max_output_tokens, max_context),
        stop=body.stop_texts(),
        enable_thinking=kwargs.pop("enable_thinking", None),
        thinking_budget=body.budget(max_context),
        template_kwargs=kwargs,
        deadline_s=deadline_s,
    )


def read_tools(body: ResponsesRequest, schemas: SchemaChecker) -> Tools:
    """Raises `InvalidRequest` for a name that is used twice, `InvalidSchema` for bad parameters."""
    tools: dict[str, Tool] = {}
    origins: dict[str, Origin] = {}
    dropped: list[str] = []
    for path, namespace, tool in _flat(body.tools or ()):
        if not isinstance(tool, FunctionTool | CustomTool):
            dropped.append(tool.type[:64])
            continue
        name = _joined(namespace, tool.name)
        if name in tools:
            raise InvalidRequest(f"{path}.name: {name!r} is used twice.", param=f"{path}.name")
        tools[name] = _tool(tool, name, path, schemas)
        origins[name] = Origin(tool.name, namespace, isinstance(tool, CustomTool))
    if dropped:
        logger.warning("hosted tools are dropped", extra={"fields": {"tools": ",".join(dropped)}})
    return Tools(tuple(tools.values()), origins, tuple(dict.fromkeys(dropped)))


def encode_thought(text: str) -> str:
    """A thought as `encrypted_content`: clients keep it and send it back, whatever they do with the readable one."""
    return THOUGHT + base64.b64encode(text.encode()).decode()


def _flat(tools: Iterable[AnyTool]) -> Iterator[tuple[str, str | None, AnyTool]]:
    """Every tool with its path and namespace."""
    for i, tool in enumerate(tools):
        if not isinstance(tool, NamespaceTool):
            yield f"tools.{i}", None, tool
            continue
        for j, inner in enumerate(tool.tools):
            yield f"tools.{i}.tools.{j}", tool.name, inner


def _tool(tool: FunctionTool | CustomTool, name: str, path: str, schemas: SchemaChecker) -> Tool:
    if isinstance(tool, CustomTool):
        return Tool(name, tool.description or "", CUSTOM_PARAMETERS)
    if tool.parameters:
        schemas.check_parameters(tool.parameters, f"{path}.parameters")
    return Tool(name, tool.description or "", tool.parameters or None, tool.strict is True)


def _joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _messages(body: ResponsesRequest) -> Iterator[Message]:
    if body.instructions:
        yield Message("system", body.instructions)
    if isinstance(body.input, str):
        yield Message("user", body.input)
        return
    names: dict[str, str] = {}  # call id -> tool, for the outputs that follow
    turn: Message | None = None  # what the model said, as far as its items were read
    for item in body.input:
        said = _said(item, names)
        if said is not None:
            if turn is not None and _begins_anew(turn, said):
                yield turn
                turn = None
            turn = said if turn is None else _together(turn, said)
            continue
        if turn is not None:
            yield turn
            turn = None
        if isinstance(item, CallOutputItem):
            yield Message("tool", text_of(item.output), tool_call_id=item.call_id, name=names.get(item.call_id))
        elif isinstance(item, MessageItem):
            yield Message("user" if item.role == "user" else "system", text_of(item.content))
        else:
            logger.debug("an item of a hosted tool is dropped", extra={"fields": {"item": item.type[:64]}})
    if turn is not None:
        yield turn


def _said(item: Item, names: dict[str, str]) -> Message | None:
    """The part of the model's turn that an item is; None for what others said."""
    if isinstance(item, MessageItem):
        return Message("assistant", text_of(item.content)) if item.role == "assistant" else None
    if isinstance(item, ReasoningItem):
        return Message("assistant", reasoning=_thought(item))
    if not isinstance(item, FunctionCallItem | CustomCallItem):
        return None
    name = _joined(item.namespace, item.name)
    names[item.call_id] = name
    if isinstance(item, CustomCallItem):
        arguments = json.dumps({"input": item.input}, ensure_ascii=False)
    else:
        arguments = item.arguments
    return Message("assistant", tool_calls=(ToolCall(item.call_id, name, arguments),))


def _begins_anew(turn: Message, said: Message) -> bool:
    """A model thinks, speaks, calls: what comes out of this order belongs to its next turn."""
    if said.tool_calls:
        return False
    return bool(turn.tool_calls) or (said.reasoning is not None and bool(turn.content))


def _together(turn: Message, said: Message) -> Message:
    return replace(
        turn,
        content=turn.content + said.content,
        reasoning=(turn.reasoning or "") + (said.reasoning or "") or None,
        tool_calls=turn.tool_calls + said.tool_calls,
    )


def _thought(item: ReasoningItem) -> str | None:
    """The thought that our own mark holds, else what is readable of it."""
    if item.encrypted_content and item.encrypted_content.startswith(THOUGHT):
        try:
            return base64.b64decode(item.encrypted_content[len(THOUGHT) :], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            logger.debug("an encrypted_content is not what this server wrote")
    return "\n".join(part.text for part in item.content or item.summary or ()) or None


def _tool_choice(body: ResponsesRequest, names: set[str]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice in ("auto", "none"):
        return ToolChoice("none" if choice == "none" else "auto")
    if not names:
        raise InvalidRequest("tool_choice: asks for a tool, but there is none that can be called.", param="tool_choice")
    if isinstance(choice, NamedTool):
        return ToolChoice("required", _known([choice], names, "tool_choice"))
    if isinstance(choice, AllowedTools):
        return ToolChoice(choice.mode, _known(choice.tools, names, "tool_choice.tools"))
    return ToolChoice("required")


def _known(chosen: Sequence[NamedTool], names: set[str], path: str) -> tuple[str, ...]:
    wanted = dict.fromkeys(_joined(tool.namespace, tool.name) for tool in chosen)
    for name in wanted:
        if name not in names:
            raise InvalidRequest(f"{path}: {name[:64]!r} is not among `tools`.", param=path)
    return tuple(wanted)


def _response_format(body: ResponsesRequest, schemas: SchemaChecker) -> ResponseFormat:
    asked = body.text.format if body.text else None
    if asked is None or asked.type == "text":
        return ResponseFormat()
    if asked.type == "json_object":
        return ResponseFormat("json_object")
    if asked.schema_ is None:
        raise InvalidRequest("text.format.schema: needed for type json_schema.", param="text.format.schema")
    schemas.check(asked.schema_, "text.format.schema")
    return ResponseFormat("json_schema", asked.schema_, asked.strict is True)
