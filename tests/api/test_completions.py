"""Raw prompts and tokens: what the fields mean, the shape of answers, what is refused."""

import json
from typing import Any

import pytest

from clover_agent.api.body import parse_model
from clover_agent.api.openai_completions_schema import REFUSED, CompletionRequest
from clover_agent.errors import GenerationFailed, InvalidRequest
from clover_agent.types import Conversation, Draft, TextDelta
from tests.api.conftest import Connect
from tests.api.fakes import HELLO, STARTED, ScriptedService, finished

PATH = "/v1/completions"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "sprout", "prompt": "Once", **fields}


def convert(**fields: Any) -> Conversation:
    return parse_model(json.dumps(body(**fields)).encode(), CompletionRequest).conversation(4096, None)


@pytest.mark.parametrize(
    ("prompt", "raw"), [("Once", "Once"), (["Once"], "Once"), ([5, 6], (5, 6)), ([[5, 6]], (5, 6))]
)
def test_prompts(prompt: Any, raw: Any) -> None:
    assert convert(prompt=prompt) == Conversation(messages=(), raw=raw, sampling={"max_tokens": 16})


def test_the_other_fields() -> None:
    found = convert(max_tokens=10**6, stop=["a"], temperature=1, top_k=-1, stream_options={"include_drafts": True})
    sampling: Any = {"max_tokens": 4096, "temperature": 1.0, "top_k": 0}
    assert found == Conversation(messages=(), raw="Once", sampling=sampling, stop=("a",), include_drafts=True)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": [[1], [2]]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt.1"),
    ({"prompt": [-1]}, "prompt.0"),
    ({"prompt": [True]}, "prompt.0"),
    ({"prompt": {"text": "a"}}, "prompt"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"logprobs": 0}, "logprobs"),
    *(({name: "x"}, name) for name in REFUSED),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param} {i}" for i, (_, param) in enumerate(BAD)])
def test_bad_requests_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        convert(**fields)
    assert caught.value.param == param


def test_a_plain_answer(connect: Connect) -> None:
    answer = connect().post(PATH, json=body()).json()
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("created")
    assert answer.pop("system_fingerprint")
    assert answer.pop("usage")["completion_tokens"] == 7
    choice = {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    assert answer == {"object": "text_completion", "model": "sprout", "choices": [choice]}


def test_a_streamed_answer_says_the_same(connect: Connect) -> None:
    script = [*HELLO[:2], Draft(("x", None)), *HELLO[2:]]
    text = connect(script).post(PATH, json=body(stream=True, stream_options={"include_usage": True})).text
    *lines, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert done == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == "Hello"
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]
    assert chunks[1]["draft"] == {"positions": ["x", None]}
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 7)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_the_stop_string_is_told(connect: Connect) -> None:
    answer = connect([STARTED, TextDelta("x"), finished("stop", "END")]).post(PATH, json=body()).json()
    assert answer["choices"][0]["stop_reason"] == "END"


def test_an_error_ends_the_stream(connect: Connect) -> None:
    text = connect([STARTED, TextDelta("x"), GenerationFailed("broke")]).post(PATH, json=body(stream=True)).text
    assert '"message":"broke"' in text
    assert "[DONE]" not in text


def test_tokenize_a_prompt_and_messages(connect: Connect) -> None:
    service = ScriptedService()
    client = connect(service=service)
    answer = client.post("/tokenize", json={"model": "sprout", "prompt": "Once", "add_special_tokens": True})
    assert answer.json() == {"count": 11, "max_model_len": 4096, "tokens": list(range(11)), "token_strs": None}
    messages = [{"role": "user", "content": "Hi"}]
    chat = client.post("/tokenize", json={"model": "sprout", "messages": messages, "return_token_strs": True})
    assert chat.json()["token_strs"] == [str(id_) for id_ in range(11)]
    assert service.seen[0] == Conversation(messages=(), raw="Once")
    assert service.seen[1].messages[0].content == "Hi"


def test_detokenize(connect: Connect) -> None:
    assert connect().post("/detokenize", json={"model": "sprout", "tokens": [5, 6]}).json() == {"prompt": "5 6"}


@pytest.mark.parametrize(
    ("path", "sent", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False}, None),
        ("/tokenize", {"prompt": "x", "model": "other"}, "model"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_bad_token_requests(connect: Connect, path: str, sent: dict[str, Any], param: str | None) -> None:
    response = connect().post(path, json={"model": "sprout", **sent})
    assert response.status_code in (400, 404), response.text
    assert param is None or response.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", PATH])
def test_a_key_is_wanted(connect: Connect, path: str) -> None:
    assert connect(api_key=("secret",)).post(path, json={}).status_code == 401
