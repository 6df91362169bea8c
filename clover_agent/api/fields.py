"""What the requests of all faces are made of: the strict base model, refusals, and fields that OpenAI's faces share.

A field is honoured, or harmless (accepted, changes no answer), or refused with a 400 that names it because ignoring it
would change the answer. Unknown fields are ignored with one debug line.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from clover_agent.api.errors import UNSUPPORTED
from clover_agent.errors import InvalidRequest
from clover_agent.types import SamplingOverrides

logger = logging.getLogger("clover_agent.api")

NAME = r"^[A-Za-z0-9_-]{1,64}$"
SMALLEST_TOP_P = 1e-9  # OpenAI allows 0, which means: the best token only
SEED_BITS = 2**63 - 1
# Names that the server gives to a chat template; a request cannot replace them.
TEMPLATE_OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "chat_template", "tokenize"})

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Wire(BaseModel):
    """Strict: no bool as a number, no number as a string. Fields of parts that are not known are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True, populate_by_name=True)


def unsupported(reason: str, field: str | None = None) -> PydanticCustomError:
    """`field` names it where pydantic's own location would not."""
    return PydanticCustomError(UNSUPPORTED, "{reason}", {"reason": reason, **({"field": field} if field else {})})


def check_extra(
    extra: Mapping[str, Any] | None,
    *,
    harmless: frozenset[str],
    refused: Mapping[str, str],
    neutral: Mapping[str, Any],
) -> None:
    """The fields that a request's model does not have. `refused` are accepted if they are null or have the value of
    `neutral`, false where it has none."""
    unknown = []
    for name, value in (extra or {}).items():
        if name in refused:
            allowed = neutral.get(name, False)
            if value is not None and not (type(value) is type(allowed) and value == allowed):
                raise unsupported(refused[name], name)
        elif name not in harmless:
            unknown.append(name[:64])
    if unknown:
        logger.debug("fields ignored", extra={"fields": {"ignored": unknown[:32]}})


def by_json_type(value: Any) -> str:
    """Which branch of a union is meant, so that complaints are about that branch only."""
    return "@list" if isinstance(value, list) else "@object" if isinstance(value, dict) else "@string"


def _logit_bias(value: dict[str, float]) -> dict[str, float]:
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise PydanticCustomError("invalid", "{key} is not a token id", {"key": repr(key[:40])})
    return value


LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=1024, json_schema_extra={"propertyNames": {"pattern": "^[0-9]{1,9}$"}}),
    AfterValidator(_logit_bias),
]
StopText = Annotated[str, Field(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[StopText, Tag("@string")] | Annotated[list[StopText], Field(max_length=64), Tag("@list")],
    Discriminator(by_json_type),
]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class SamplingFields(Wire):
    """OpenAI's sampling fields, and those of vLLM and SGLang."""

    min_tokens: int | None = Field(None, ge=0)
    stop: Stop | None = None
    stop_token_ids: list[TokenId] | None = Field(None, max_length=256)
    ignore_eos: bool | None = None

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description="0 or -1: off.")
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: LogitBias | None = None

    block_size: int | None = Field(None, ge=1, le=1024, description="Positions denoised together.")
    threshold: float | None = Field(None, gt=0, le=1, description="Confidence at which a position is unmasked.")

    def stop_texts(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def sampling(self, max_tokens: int | None, max_context: int) -> SamplingOverrides:
        """What the request sets. Token counts are cut to the context: clients send absurd ones by default.

        Raises `InvalidRequest` naming the field.
        """
        asked: dict[str, Any] = {
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "temperature": self.temperature,
            "top_p": None if self.top_p is None else max(self.top_p, SMALLEST_TOP_P),
            "top_k": None if self.top_k is None else max(self.top_k, 0),
            "min_p": self.min_p,
            "seed": None if self.seed is None else self.seed & SEED_BITS,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": tuple((int(id_), bias) for id_, bias in (self.logit_bias or {}).items()) or None,
            "stop_token_ids": tuple(self.stop_token_ids or ()) or None,
            "ignore_eos": self.ignore_eos,
            "threshold": self.threshold,
            "block_size": self.block_size,
        }
        for name in ("max_tokens", "min_tokens"):
            if asked[name] is not None:
                asked[name] = min(asked[name], max_context)
        if asked["max_tokens"] is not None and (asked["min_tokens"] or 0) > asked["max_tokens"]:
            raise InvalidRequest("min_tokens: is larger than max_tokens.", param="min_tokens")
        overrides: SamplingOverrides = {name: value for name, value in asked.items() if value is not None}  # type: ignore[assignment]
        return overrides


class TemplateFields(Wire):
    """What a request may say to the chat template."""

    chat_template_kwargs: dict[str, Any] | None = None
    thinking_token_budget: int | None = Field(None, ge=0)

    def template_kwargs(self, effort: Effort | None) -> dict[str, Any]:
        """Template variables: what the effort says, then the request's own. The operator's defaults come later.

        Raises `InvalidRequest` naming the field.
        """
        own = self.chat_template_kwargs or {}
        taken = sorted(TEMPLATE_OWN.intersection(own))
        if taken:
            path = f"chat_template_kwargs.{taken[0]}"
            raise InvalidRequest(f"{path}: cannot be set by a request.", param=path)
        said = {} if effort is None else {"enable_thinking": effort != "none", "reasoning_effort": effort}
        kwargs = {**said, **own}
        if not isinstance(kwargs.get("enable_thinking"), bool | None):
            path = "chat_template_kwargs.enable_thinking"
            raise InvalidRequest(f"{path}: must be true or false.", param=path)
        return kwargs

    def budget(self, max_context: int) -> int | None:
        """Most tokens of thought; None = no limit."""
        return None if self.thinking_token_budget is None else min(self.thinking_token_budget, max_context)
