"""The requests of POST /v1/completions, /tokenize and /detokenize: types, ranges, and what they mean.

A raw prompt goes to the model as it is: no chat template, no tools. What `HARMLESS` and `REFUSED` mean is said in
`fields`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, RootModel, Tag, model_validator

from clover_agent.api.fields import SamplingFields, TokenId, Wire, check_extra, unsupported
from clover_agent.api.openai_schema import ChatCompletionRequest, StreamOptions
from clover_agent.types import Conversation

HARMLESS = frozenset({"user", "metadata", "store", "service_tier", "request_id", "priority", "cache_salt"})
# Field -> why, or what to do instead.
REFUSED: Mapping[str, str] = {
    "suffix": "this model continues a text; it does not fill gaps",
    "echo": "the prompt is not echoed",
    "n": "only one choice can be made; send the request again",
    "best_of": "only one choice can be made",
    "logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "prompt_logprobs": "a block-diffusion model has no honest per-token log probabilities",
    "use_beam_search": "block diffusion has no beams",
    "prompt_embeds": "prompts are text or token ids",
    "messages": "this is /v1/completions: use `prompt`, or ask /v1/chat/completions",
    "tools": "raw prompts have no tools; ask /v1/chat/completions",
    "response_format": "raw prompts are not constrained; ask /v1/chat/completions",
    "logits_processors": "requests cannot bring code",
    "bad_words": "use `logit_bias`",
}
NEUTRAL: Mapping[str, Any] = {"n": 1, "best_of": 1, "suffix": ""}
DEFAULT_MAX_TOKENS = 16  # OpenAI's and vLLM's


def _one_prompt(value: Any) -> Any:
    """A list of one prompt is that prompt."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise unsupported("several prompts in one request are not supported; send a request each")
        return value[0]
    return value


def _prompt_kind(value: Any) -> str:
    return "@ids" if isinstance(value, list | tuple) else "@text"


Prompt = Annotated[
    Annotated[str, Field(min_length=1), Tag("@text")] | Annotated[list[TokenId], Field(min_length=1), Tag("@ids")],
    Discriminator(_prompt_kind),
    BeforeValidator(_one_prompt),
]


class CompletionRequest(SamplingFields):
    """OpenAI's fields, and those of vLLM and SGLang."""

    model_config = ConfigDict(extra="allow", title="CompletionRequest")

    model: str
    prompt: Prompt
    max_tokens: int | None = Field(None, ge=1, description="Clamped to what fits into the context; 16 if absent.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _nothing_refused(self) -> "CompletionRequest":
        check_extra(self.model_extra, harmless=HARMLESS, refused=REFUSED, neutral=NEUTRAL)
        return self

    def conversation(self, max_context: int, deadline_s: float | None) -> Conversation:
        """The request as the service takes it. Raises `InvalidRequest` naming the field."""
        return Conversation(
            messages=(),
            raw=raw_prompt(self.prompt),
            sampling=self.sampling(self.max_tokens or DEFAULT_MAX_TOKENS, max_context),
            stop=self.stop_texts(),
            include_drafts=bool(self.stream_options and self.stream_options.include_drafts),
            deadline_s=deadline_s,
        )


def raw_prompt(prompt: str | list[int]) -> str | tuple[int, ...]:
    return prompt if isinstance(prompt, str) else tuple(prompt)


class TokenizePrompt(Wire):
    model_config = ConfigDict(title="TokenizePrompt")

    model: str
    prompt: Annotated[str, Field(min_length=1)]
    add_special_tokens: bool | None = Field(None, description="Changes nothing: no tokens are added here.")
    return_token_strs: bool | None = None


class TokenizeChat(ChatCompletionRequest):
    """A chat completion request, as its prompt."""

    model_config = ConfigDict(title="TokenizeChat")

    return_token_strs: bool | None = None
    add_generation_prompt: Literal[True] | None = None


def _form(value: Any) -> str:
    return "@messages" if isinstance(value, dict) and "messages" in value else "@prompt"


class TokenizeRequest(RootModel[TokenizePrompt | TokenizeChat]):
    """By `prompt` or by `messages`."""

    model_config = ConfigDict(title="TokenizeRequest")

    root: Annotated[
        Annotated[TokenizePrompt, Tag("@prompt")] | Annotated[TokenizeChat, Tag("@messages")], Discriminator(_form)
    ]


class DetokenizeRequest(Wire):
    model_config = ConfigDict(title="DetokenizeRequest")

    model: str
    tokens: list[TokenId]
