"""The request of POST /v1/responses as it may come over the wire. Types and ranges; meaning is elsewhere.

What `HARMLESS` and `REFUSED` mean is said in `fields`. Nothing is stored here: what refers to an earlier response is
refused, and the whole conversation comes with every request, as agents send it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from clover_agent.api.fields import (
    NAME,
    Effort,
    SamplingFields,
    TemplateFields,
    Wire,
    by_json_type,
    check_extra,
    unsupported,
)
from clover_agent.api.openai_schema import Content

HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "max_tool_calls", "truncation"),
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata", "stream_options"),
        *("context_management", "access_programs", "background_options", "image", "enable_response_messages"),
    }
)
_STATELESS = "nothing is stored here; send the whole conversation as `input`"
# Field -> why, or what to do instead.
REFUSED: Mapping[str, str] = {
    "previous_response_id": _STATELESS,
    "conversation": _STATELESS,
    "background": "nothing is stored here; stream the answer",
    "prompt": "prompts are not stored here; send `instructions` and `input`",
    "moderation": "this server does not moderate",
    "top_logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "messages": "this is /v1/responses: use `input`, or ask /v1/chat/completions",
    "response_format": "use `text.format`",
    "max_tokens": "use `max_output_tokens`",
    "max_completion_tokens": "use `max_output_tokens`",
    "reasoning_effort": "use `reasoning.effort`",
}
NEUTRAL: Mapping[str, Any] = {"top_logprobs": 0}
# Types of tools that OpenAI's own servers run. They are dropped: nothing here could run them.
HOSTED = (
    *("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "computer", "tool_search"),
    "programmatic_tool_calling",
)
# What they left in the history: records of what others did, which a model without these tools cannot use.
HOSTED_ITEMS = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "tool_search_call"),
        *("tool_search_output", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *("program", "program_output"),
    }
)
# Calls of tools that clients run but that have a form of their own.
CLIENT_ITEMS = (
    *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
    *("apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output"),
)
REFUSED_ITEMS: Mapping[str, str] = {
    "item_reference": _STATELESS,
    "compaction": "was made by another server, and only that one can read it",
    "compaction_trigger": "this server does not compact conversations",
    "additional_tools": "put tools into `tools`",
    "configuration_update": "put the settings into the request",
    **dict.fromkeys(CLIENT_ITEMS, "belongs to a tool that this model was not trained on; describe it as a function"),
}


class MessageItem(Wire):
    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class SummaryText(Wire):
    text: str


class ReasoningItem(Wire):
    """A thought of an earlier turn. `encrypted_content` is ours or another server's; only ours is read."""

    type: Literal["reasoning"]
    summary: list[SummaryText] | None = None
    content: list[SummaryText] | None = None
    encrypted_content: str | None = None


class FunctionCallItem(Wire):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | None = None


class CustomCallItem(Wire):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str = ""
    namespace: str | None = None


class CallOutputItem(Wire):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


class HostedItem(Wire):
    type: str


def _item_type(value: Any) -> Any:
    if isinstance(value, str) and value != "message":
        raise unsupported(f"{value[:40]!r} {REFUSED_ITEMS.get(value, 'is not an item that can stand here')}")
    return value


class OtherItem(MessageItem):
    """What is none of the others is refused at its type."""

    type: Annotated[Literal["message"] | None, BeforeValidator(_item_type)] = None


ITEMS = {
    "reasoning": "@reasoning",
    "function_call": "@function_call",
    "custom_tool_call": "@custom_tool_call",
    "function_call_output": "@output",
    "custom_tool_call_output": "@output",
    **dict.fromkeys(HOSTED_ITEMS, "@hosted"),
}


def _item_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return ITEMS.get(kind, "@message") if isinstance(kind, str) else "@message"


Item = Annotated[
    Annotated[OtherItem, Tag("@message")]
    | Annotated[ReasoningItem, Tag("@reasoning")]
    | Annotated[FunctionCallItem, Tag("@function_call")]
    | Annotated[CustomCallItem, Tag("@custom_tool_call")]
    | Annotated[CallOutputItem, Tag("@output")]
    | Annotated[HostedItem, Tag("@hosted")],
    Discriminator(_item_kind),
]
Input = Annotated[
    Annotated[str, Tag("@string")] | Annotated[list[Item], Field(min_length=1), Tag("@list")],
    Discriminator(by_json_type),
]


class FunctionTool(Wire):
    type: Literal["function"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextInput(Wire):
    type: Literal["text"]


def _grammar_type(value: Any) -> Any:
    if value == "grammar":
        raise unsupported("input in a grammar of its own is not supported here; use a function, or format text")
    return value


class CustomFormat(Wire):
    type: Annotated[Literal["text"], BeforeValidator(_grammar_type)]


class CustomTool(Wire):
    """A tool whose input is any text."""

    type: Literal["custom"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    format: CustomFormat | None = None


def _hosted_type(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith(HOSTED):
        raise unsupported(f"tools of type {value[:40]!r} are not known to this model; describe it as a function")
    return value


class HostedTool(Wire):
    type: Annotated[str, BeforeValidator(_hosted_type)]


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"@{kind}" if kind in ("function", "custom", "namespace") else "@hosted"


OwnTool = Annotated[
    Annotated[FunctionTool, Tag("@function")]
    | Annotated[CustomTool, Tag("@custom")]
    | Annotated[HostedTool, Tag("@hosted")],
    Discriminator(_tool_kind),
]


class NamespaceTool(Wire):
    """Tools under a common name."""

    type: Literal["namespace"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    tools: list[OwnTool]


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("@function")]
    | Annotated[CustomTool, Tag("@custom")]
    | Annotated[NamespaceTool, Tag("@namespace")]
    | Annotated[HostedTool, Tag("@hosted")],
    Discriminator(_tool_kind),
]


def _named_type(value: Any) -> Any:
    if isinstance(value, str) and value not in ("function", "custom"):
        raise unsupported(f"a tool of type {value[:40]!r} cannot be chosen: it is not one of this request's own")
    return value


class NamedTool(Wire):
    type: Annotated[Literal["function", "custom"], BeforeValidator(_named_type)]
    name: str
    namespace: str | None = None


class AllowedTools(Wire):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


def _choice_kind(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return "@mode"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "@allowed" if kind == "allowed_tools" else "@named"


Choice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("@mode")]
    | Annotated[NamedTool, Tag("@named")]
    | Annotated[AllowedTools, Tag("@allowed")],
    Discriminator(_choice_kind),
]


class TextFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(None, pattern=NAME)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(Wire):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="Changes nothing here.")


class Reasoning(Wire):
    """With a `summary` asked for, the thought is told as one; without, as the thought that it is."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed", "none"] | None = None


def _included(value: Any) -> Any:
    if value == "message.output_text.logprobs":
        raise unsupported(REFUSED["logprobs"])
    return value


class ResponsesRequest(SamplingFields, TemplateFields):
    """OpenAI's fields, and those of vLLM and SGLang (`top_k`, `chat_template_kwargs` …)."""

    model_config = ConfigDict(extra="allow", title="ResponsesRequest")

    model: str
    input: Input
    instructions: str | None = None
    stream: bool | None = None
    include: list[Annotated[str, BeforeValidator(_included)]] | None = None

    tools: list[AnyTool] | None = Field(None, max_length=512)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: int | None = Field(None, ge=1, description="Clamped to what fits into the context.")

    @model_validator(mode="after")
    def _nothing_refused(self) -> "ResponsesRequest":
        check_extra(self.model_extra, harmless=HARMLESS, refused=REFUSED, neutral=NEUTRAL)
        return self
