"""LiteLLM's arguments -> a request body; answers and errors -> LiteLLM's classes. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import litellm
import openai
from litellm.types.utils import ModelResponseStream
from litellm.utils import convert_to_model_response_object
from pydantic import BaseModel

from clover_agent.errors import CloverError

OURS_ALONE = ("max_retries", "stream", "stream_options", "extra_body")  # said otherwise below, or LiteLLM's business
DEFECT = "Internal error of the clover provider; the log says more."


def request_body(
    model: str, messages: Sequence[Any], params: Mapping[str, Any], *, stream: bool = False
) -> dict[str, Any]:
    """What the gateway would be sent. `extra_body`, which LiteLLM hands on nested, is merged in."""
    body = {name: value for name, value in params.items() if name not in OURS_ALONE}
    body |= params.get("extra_body") or {}
    body |= {"model": model, "messages": [_plain(message) for message in messages]}
    # Always with usage: LiteLLM counts tokens by itself where it is told none.
    return {**body, "stream": True, "stream_options": {"include_usage": True}} if stream else {**body, "stream": False}


def whole_answer(answer: Mapping[str, Any]) -> litellm.ModelResponse:
    """A chat completion as LiteLLM's."""
    response: litellm.ModelResponse = convert_to_model_response_object(
        response_object=dict(answer), model_response_object=litellm.ModelResponse(), stream=False
    )
    return response


class ChunkOrder:
    """Chunks as LiteLLM needs them: the opening together with what follows it, and usage before the finish reason.

    LiteLLM's router asks another deployment as long as it has seen no chunk, so the opening, which says nothing yet,
    waits. LiteLLM stops reading at the finish reason and then invents a usage of its own; OpenAI sends usage last. So
    the finishing chunk waits too.
    """

    def __init__(self) -> None:
        self._begun = False
        self._opening: ModelResponseStream | None = None
        self._finish: ModelResponseStream | None = None

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[ModelResponseStream]:
        made = ModelResponseStream(**chunk)
        if not self._begun:
            self._begun, self._opening = True, made
            return
        if self._opening is not None:
            yield self._opening
            self._opening = None
        if chunk["choices"] and chunk["choices"][0].get("finish_reason"):
            self._finish = made
            return
        yield made
        if chunk.get("usage") and self._finish is not None:
            yield self._finish
            self._finish = None


def seconds(timeout: float | httpx.Timeout | None) -> float | None:
    """LiteLLM's timeout as seconds for the whole answer."""
    value = timeout.read if isinstance(timeout, httpx.Timeout) else timeout
    return None if value is None else float(value)


def litellm_error(error: Exception, model: str, provider: str) -> Exception:
    """An error of the engine or of the gateway as the one of LiteLLM's that stands for its status.

    What is no such error is a defect, and is told without its inner text: it is the caller's to log.
    """
    kind, message = _kind_and_message(error)
    made: Exception = kind(message=message, model=model, llm_provider=provider)
    return made


def _kind_and_message(error: Exception) -> tuple[Any, str]:
    if isinstance(error, CloverError):
        return _kind(error.status, error.code), str(error)
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return litellm.Timeout, "The gateway did not answer in time."
    if isinstance(error, openai.APIConnectionError):
        # Not litellm.APIConnectionError: the router never leaves a deployment alone for that one, and would ask a dead
        # gateway again and again.
        return litellm.ServiceUnavailableError, f"The gateway cannot be reached: {error.__cause__ or error}"
    if isinstance(error, openai.APIError):
        status = error.status_code if isinstance(error, openai.APIStatusError) else 500  # without: in mid-stream
        body = error.body if isinstance(error.body, dict) else {}
        return _kind(status, error.code), str(body.get("message") or error.message)
    return litellm.InternalServerError, DEFECT


def _kind(status: int, code: str | None) -> Any:
    if code == "context_length_exceeded":
        status = 413
    kinds = {
        401: litellm.AuthenticationError,
        403: litellm.AuthenticationError,
        404: litellm.NotFoundError,
        408: litellm.Timeout,
        413: litellm.ContextWindowExceededError,
        429: litellm.RateLimitError,
        503: litellm.ServiceUnavailableError,
        504: litellm.Timeout,
    }
    return kinds.get(status, litellm.BadRequestError if status < 500 else litellm.InternalServerError)


def _plain(message: Any) -> Any:
    """Messages of an earlier answer come back as LiteLLM's objects."""
    return message.model_dump(exclude_none=True) if isinstance(message, BaseModel) else message
