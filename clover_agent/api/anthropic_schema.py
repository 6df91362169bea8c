"""The request of POST /v1/messages as it may come over the wire. Types and ranges; meaning is elsewhere.

As in `openai_schema`: a field is honoured, or harmless, or refused with a 400 that names it because ignoring it would
change the answer. Marks for caches are accepted everywhere and change nothing here.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from clover_agent.api.errors import UNSUPPORTED
from clover_agent.api.fields import NAME, StopText, Wire, unsupported

logger = logging.getLogger("clover_agent.api")

HARMLESS = frozenset(
    {
        *("metadata", "service_tier", "cache_control", "context_management", "inference_geo", "speed", "betas"),
        *("user_profile_id", "diagnostics", "anthropic_version", "anthropic_beta"),
    }
)
# Field -> why, or what to do instead. Null and empty lists are accepted.
REFUSED: Mapping[str, str] = {
    "container": "this server runs no code",
    "mcp_servers": "this server connects to nothing; give the model the tools themselves",
    "fallbacks": "this server has one model",
}
# Beginnings of the types of tools that Anthropic's own servers run. They are dropped: nothing here could run them.
HOSTED = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_", "mcp_toolset")
REFUSED_BLOCKS: Mapping[str, str] = {
    "image": "needs vision, which this model does not have; send text",
    "document": "is a file, which this model cannot read; send its text",
    "container_upload": "is a file, which this model cannot read; send its text",
    "search_result": "is not supported; send its text",
}


def _tag(known: frozenset[str]) -> Callable[[Any], str]:
    """The branch of a union of blocks; what is none of them is refused by the branch of text, at its type."""

    def tag(value: Any) -> str:
        kind = value.get("type") if isinstance(value, dict) else None
        return f"@{kind}" if isinstance(kind, str) and kind in known else "@text"

    return tag


def _text_type(value: Any) -> Any:
    if isinstance(value, str) and value != "text":
        raise unsupported(f"{value[:40]!r} {REFUSED_BLOCKS.get(value, 'is not a block that can stand here')}")
    return value


class TextBlock(Wire):
    type: Annotated[Literal["text"], BeforeValidator(_text_type)]
    text: str


class ToolReference(Wire):
    """What a client's own tool search found."""

    type: Literal["tool_reference"]
    tool_name: str


def _by_json_type(value: Any) -> str:
    return "@list" if isinstance(value, list) else "@string"


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("@text")] | Annotated[ToolReference, Tag("@tool_reference")],
    Discriminator(_tag(frozenset({"tool_reference"}))),
]
ResultContent = Annotated[
    Annotated[str, Tag("@string")] | Annotated[list[ResultBlock], Tag("@list")], Discriminator(_by_json_type)
]


class ToolResult(Wire):
    type: Literal["tool_result"]
    tool_use_id: str
    content: ResultContent | None = None
    is_error: bool | None = None


class ToolUse(Wire):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(default_factory=dict)


class Thinking(Wire):
    """A thought. Its signature is not looked at: it may come from another server."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinking(Wire):
    """A thought that only the server that made it can read; it is left out."""

    type: Literal["redacted_thinking"]


Block = Annotated[
    Annotated[TextBlock, Tag("@text")]
    | Annotated[ToolResult, Tag("@tool_result")]
    | Annotated[ToolUse, Tag("@tool_use")]
    | Annotated[Thinking, Tag("@thinking")]
    | Annotated[RedactedThinking, Tag("@redacted_thinking")],
    Discriminator(_tag(frozenset({"tool_result", "tool_use", "thinking", "redacted_thinking"}))),
]
Blocks = Annotated[Annotated[str, Tag("@string")] | Annotated[list[Block], Tag("@list")], Discriminator(_by_json_type)]
TextBlocks = Annotated[
    Annotated[str, Tag("@string")] | Annotated[list[TextBlock], Tag("@list")], Discriminator(_by_json_type)
]


class MessageParam(Wire):
    role: Literal["user", "assistant", "system"]
    content: Blocks


class CustomTool(Wire):
    """A tool that the client runs. One that is loaded late (`defer_loading`) is shown to the model at once."""

    type: Literal["custom"] | None = None
    name: str = Field(pattern=NAME)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


def _hosted_type(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith(HOSTED):
        raise unsupported(f"tools of type {value[:40]!r} are not known to this model; describe it with an input_schema")
    return value


class HostedTool(Wire):
    type: Annotated[str, BeforeValidator(_hosted_type)]


def _tool_kind(value: Any) -> str:
    return "@custom" if not isinstance(value, dict) or value.get("type") in (None, "custom") else "@hosted"


AnyTool = Annotated[
    Annotated[CustomTool, Tag("@custom")] | Annotated[HostedTool, Tag("@hosted")], Discriminator(_tool_kind)
]


class AnyChoice(Wire):
    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class NamedChoice(Wire):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


def _choice_kind(value: Any) -> str:
    return "@tool" if isinstance(value, dict) and value.get("type") == "tool" else "@any"


Choice = Annotated[
    Annotated[AnyChoice, Tag("@any")] | Annotated[NamedChoice, Tag("@tool")], Discriminator(_choice_kind)
]


def _thinking_type(value: Any) -> Any:
    if value == "between_tools":
        raise unsupported("this model thinks before it answers or not at all; use adaptive, enabled or disabled")
    return value


class ThinkingConfig(Wire):
    """`display` omitted keeps thoughts out of the answer; they are made all the same."""

    type: Annotated[Literal["enabled", "disabled", "adaptive"], BeforeValidator(_thinking_type)]
    budget_tokens: int | None = Field(None, ge=1)
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Wire):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Wire):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountTokensRequest(Wire):
    """What decides the prompt, as both paths have it."""

    model_config = ConfigDict(extra="allow", title="CountTokensRequest")

    model: str
    messages: list[MessageParam] = Field(min_length=1)
    system: TextBlocks | None = None
    tools: list[AnyTool] | None = Field(None, max_length=512)
    tool_choice: Choice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = Field(None, description="The older place of output_config.format.")

    @model_validator(mode="after")
    def _nothing_refused(self) -> "CountTokensRequest":
        unknown = []
        for name, value in (self.model_extra or {}).items():
            if name in REFUSED and value not in (None, [], {}):
                raise PydanticCustomError(UNSUPPORTED, "{reason}", {"reason": REFUSED[name], "field": name})
            if name not in HARMLESS and name not in REFUSED:
                unknown.append(name[:64])
        if unknown:
            logger.debug("fields ignored", extra={"fields": {"ignored": unknown[:32]}})
        return self


class MessagesRequest(CountTokensRequest):
    """The same, and how to answer."""

    model_config = ConfigDict(title="MessagesRequest")

    max_tokens: int = Field(ge=1, description="Clamped to what fits into the context.")
    stream: bool | None = None
    stop_sequences: list[StopText] | None = Field(None, max_length=64)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31)
