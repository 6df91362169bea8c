"""What LiteLLM hands over and wants back, without an engine."""

from typing import Any

import httpx
import litellm
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import (
    CloverError,
    ContextLengthExceeded,
    GenerationFailed,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    Unavailable,
)
from clover_agent.litellm_provider.wire import DEFECT, ChunkOrder, litellm_error, request_body, seconds

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


@given(st.lists(st.text(min_size=1), max_size=5))
@settings(deadline=None, max_examples=30)
def test_the_opening_comes_with_what_follows_it_and_usage_before_the_finish(texts: list[str]) -> None:
    order = ChunkOrder()
    assert not list(order.feed(chunk({"role": "assistant", "content": ""}))), "the opening alone commits nobody"
    bodies = [chunk({"content": text}) for text in texts]
    last = [chunk({}, "stop"), chunk(usage=USAGE)]
    made = [one for each in (*bodies, *last) for one in order.feed(each)]
    assert made[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].delta.content for one in made[1:-2]] == texts
    assert made[-2].usage.total_tokens == 5
    assert made[-1].choices[0].finish_reason == "stop"
    assert len(made) == len(texts) + 3


def test_the_body_is_what_a_client_would_have_sent() -> None:
    params = {
        "max_tokens": 5,
        "block_size": 16,
        "max_retries": 0,
        "stream": True,
        "stream_options": {"include_usage": False},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}, "model": "/etc/passwd"},
    }
    earlier = litellm.Message(role="assistant", content="Hi", tool_calls=None)
    body = request_body("sprout", [earlier, {"role": "user", "content": "Hi"}], params, stream=True)
    assert body.pop("messages") == [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Hi"}]
    assert body == {
        "model": "sprout",
        "max_tokens": 5,
        "block_size": 16,
        "chat_template_kwargs": {"enable_thinking": False},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(("given", "expected"), [(None, None), (3, 3.0), (httpx.Timeout(9, read=4), 4.0)])
def test_timeouts_are_seconds(given: Any, expected: float | None) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("no"), litellm.BadRequestError),
        (ContextLengthExceeded("long"), litellm.ContextWindowExceededError),
        (ModelNotFound("who"), litellm.NotFoundError),
        (Overloaded("full"), litellm.RateLimitError),
        (Unavailable("later"), litellm.ServiceUnavailableError),
        (GenerationFailed("broken"), litellm.InternalServerError),
    ],
)
def test_our_errors_in_process_and_over_http_are_the_same_to_litellm(error: CloverError, kind: type[Exception]) -> None:
    """Over HTTP the SDK raises them by status; the body is the gateway's."""
    request = httpx.Request("POST", "http://gateway/v1/chat/completions")
    body = {"message": str(error), "type": error.type, "code": error.code}
    answered: Any = httpx.Response(error.status, request=request)
    over_http = openai.APIStatusError("Error code: …", response=answered, body=body)
    for one in (error, over_http):
        told = litellm_error(one, "sprout", "clover")
        assert type(told) is kind
        assert str(error) in str(told)


def test_a_defect_keeps_its_text_to_itself() -> None:
    told = litellm_error(RuntimeError("secret"), "sprout", "clover")
    assert isinstance(told, litellm.InternalServerError)
    assert DEFECT in str(told)
    assert "secret" not in str(told)
