"""The request of POST /v1/chat/completions as it may come over the wire. Types and ranges; meaning is elsewhere.

What `HARMLESS` and `REFUSED` mean is said in `fields`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.config import JsonDict

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

HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prediction", "verbosity"),
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata", "include"),
        *("stream_reasoning", "return_token_ids", "priority", "request_id", "cache_salt"),
    }
)
# Field -> why, or what to do instead.
REFUSED: Mapping[str, str] = {
    "audio": "this model has no audio",
    "web_search_options": "this server does not search the web; give the model a tool",
    "moderation": "this server does not moderate",
    "functions": "use `tools`",
    "function_call": "use `tool_choice`",
    "logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "top_logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "prompt_logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "n": "only one choice can be made; send the request again",
    "best_of": "only one choice can be made",
    "use_beam_search": "block diffusion has no beams",
    "echo": "the prompt is not echoed",
    "chat_template": "templates are chosen by the operator of the server",
    "continue_final_message": "an answer cannot be continued; send a user message",
    "documents": "put documents into the messages",
    "guided_json": "use `response_format`",
    "guided_regex": "use `response_format` with a JSON Schema",
    "guided_choice": "use `response_format` with an enum",
    "guided_grammar": "use `response_format` with a JSON Schema",
    "structured_outputs": "use `response_format`",
    "json_schema": "use `response_format`",
    "regex": "use `response_format` with a JSON Schema",
    "ebnf": "use `response_format` with a JSON Schema",
    "logits_processors": "requests cannot bring code",
    "bad_words": "use `logit_bias`",
    "lora_path": "this server has one model",
    "separate_reasoning": "thoughts are always kept apart from the answer",
}
NEUTRAL: Mapping[str, Any] = {"n": 1, "best_of": 1, "top_logprobs": 0, "separate_reasoning": True}
_MEDIA: Mapping[str, str] = {
    "image_url": "needs vision, which this model does not have",
    "input_image": "needs vision, which this model does not have",
    "image": "needs vision, which this model does not have",
    "video_url": "needs vision, which this model does not have",
    "input_audio": "needs hearing, which this model does not have",
    "audio_url": "needs hearing, which this model does not have",
    "file": "is a file, which this model cannot read",
    "input_file": "is a file, which this model cannot read",
}


def _part_type(value: Any) -> Any:
    if isinstance(value, str) and value in _MEDIA:
        raise unsupported(f"{value!r} {_MEDIA[value]}; send text parts")
    return value


class TextPart(Wire):
    type: Annotated[Literal["text", "input_text", "output_text"], BeforeValidator(_part_type)]
    text: str


class RefusalPart(Wire):
    """A model's own refusal in the history: text like any other."""

    type: Literal["refusal"]
    text: str = Field(alias="refusal")


def _part_kind(value: Any) -> str:
    return "@refusal" if isinstance(value, dict) and value.get("type") == "refusal" else "@text"


ContentPart = Annotated[
    Annotated[TextPart, Tag("@text")] | Annotated[RefusalPart, Tag("@refusal")], Discriminator(_part_kind)
]


Content = Annotated[
    Annotated[str, Tag("@string")] | Annotated[list[ContentPart], Tag("@list")], Discriminator(by_json_type)
]


class FunctionText(Wire):
    """The function of a call in the history. Arguments that are an object are taken as their JSON text."""

    name: str
    arguments: Annotated[
        Annotated[str, Tag("@string")] | Annotated[dict[str, Any], Tag("@object")], Discriminator(by_json_type)
    ] = ""


class HistoryCall(Wire):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionText


# What the document says of fields that depend on each other; the checks themselves are `to_conversation`'s.
TOOL_MESSAGE: JsonDict = {
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"required": ["tool_call_id"], "properties": {"tool_call_id": {"type": "string"}}},
}


WITH_SCHEMA: JsonDict = {
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"required": ["json_schema"], "properties": {"json_schema": {"type": "object"}}},
}


class ChatMessage(Wire):
    model_config = ConfigDict(json_schema_extra=TOOL_MESSAGE)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[HistoryCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: Annotated[None, Field(description="Use tool_calls.")] = None


class FunctionDefinition(Wire):
    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def _tool_type(value: Any) -> Any:
    if isinstance(value, str) and value != "function":
        raise unsupported(f"tools of type {value!r} are not supported; describe it as a function")
    return value


class ToolDefinition(Wire):
    type: Annotated[Literal["function"], BeforeValidator(_tool_type)]
    function: FunctionDefinition


class FunctionName(Wire):
    name: str


class NamedTool(Wire):
    type: Literal["function"]
    function: FunctionName


class AllowedTools(Wire):
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedToolsChoice(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _choice_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "@allowed" if value.get("type") == "allowed_tools" else "@named"
    return "@mode"


ToolChoiceField = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("@mode")]
    | Annotated[NamedTool, Tag("@named")]
    | Annotated[AllowedToolsChoice, Tag("@allowed")],
    Discriminator(_choice_kind),
]


class JsonSchemaFormat(Wire):
    name: str | None = Field(None, pattern=NAME)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormatField(Wire):
    """`schema` next to type json_object is llama.cpp's way to give a schema."""

    model_config = ConfigDict(json_schema_extra=WITH_SCHEMA)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class StreamOptions(Wire):
    include_usage: bool | None = None
    include_drafts: bool | None = None


def _modality(value: Any) -> Any:
    if isinstance(value, str) and value != "text":
        raise unsupported(f"{value[:40]!r} cannot be made, only text")
    return value


Modality = Annotated[Literal["text"], BeforeValidator(_modality)]


class ChatCompletionRequest(SamplingFields, TemplateFields):
    """OpenAI's fields, and those of vLLM and SGLang (`top_k`, `chat_template_kwargs` …)."""

    model_config = ConfigDict(extra="allow", title="ChatCompletionRequest")

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    tools: list[ToolDefinition] | None = Field(None, max_length=512)
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormatField | None = None
    modalities: list[Modality] | None = Field(None, min_length=1)

    max_tokens: int | None = Field(None, ge=1, description="Clamped to what fits into the context.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The same; wins over max_tokens.")
    reasoning_effort: Effort | None = None

    @model_validator(mode="after")
    def _nothing_refused(self) -> "ChatCompletionRequest":
        check_extra(self.model_extra, harmless=HARMLESS, refused=REFUSED, neutral=NEUTRAL)
        return self
