"""Raw prompts against real gateways: what chat completions send, sent by hand, gives the same answer."""

from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

CHAT: Any = {"messages": [{"role": "user", "content": "Hello!"}], "chat_template_kwargs": {"enable_thinking": False}}


def ids_of(url: str, model: str) -> list[int]:
    answer = httpx.post(f"{url}/tokenize", json={"model": model, **CHAT}, timeout=60).json()
    ids: list[int] = answer["tokens"]
    assert len(ids) == answer["count"]
    return ids


@pytest.mark.parametrize("form", ["ids", "text"])
def test_a_prompt_rendered_by_hand_gives_the_answer_of_the_chat(sprout: OpenAI, sprout_url: str, form: str) -> None:
    chat = sprout.chat.completions.create(
        model="sprout", messages=CHAT["messages"], extra_body={"chat_template_kwargs": CHAT["chat_template_kwargs"]}
    )
    prompt: Any = ids_of(sprout_url, "sprout")
    if form == "text":
        prompt = httpx.post(f"{sprout_url}/detokenize", json={"model": "sprout", "tokens": prompt}).json()["prompt"]
    raw = sprout.completions.create(model="sprout", prompt=prompt, max_tokens=500)
    assert chat.usage is not None
    assert raw.usage is not None
    assert raw.choices[0].text == chat.choices[0].message.content
    assert raw.usage.prompt_tokens == chat.usage.prompt_tokens
    chunks = sprout.completions.create(model="sprout", prompt=prompt, max_tokens=500, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == raw.choices[0].text


def test_a_limit_is_exact(sprout: OpenAI) -> None:
    answer = sprout.completions.create(model="sprout", prompt="Once upon a time", extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (16, "length")


def test_markers_are_text_here(replay: OpenAI) -> None:
    """A reply with a call, asked for by a raw prompt: nothing is taken out of it."""
    prompt = "<|im_start|>user\nboth<|im_end|>\n<|im_start|>assistant\n"
    answer = replay.completions.create(model="replay", prompt=prompt, max_tokens=400)
    text = answer.choices[0].text
    assert (text.count("<tool_call>"), text.count("</tool_call>")) == (2, 2)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [([4095, 10**6], "there is no token 1000000"), ("a<|mask|>b", "mask token"), ([5] * 5000, "context is 4096")],
)
def test_prompts_that_cannot_be_run(sprout: OpenAI, prompt: Any, said: str) -> None:
    with pytest.raises(BadRequestError, match=said) as caught:
        sprout.completions.create(model="sprout", prompt=prompt)
    assert caught.value.param == "prompt"


def test_control_strings_are_control_tokens(sprout_url: str) -> None:
    def count(text: str) -> int:
        found: int = httpx.post(f"{sprout_url}/tokenize", json={"model": "sprout", "prompt": text}).json()["count"]
        return found

    assert count("<|im_end|>") == 1
    assert count("<|im_end") > 1
