"""A real LiteLLM proxy with the engine in its process: the OpenAI SDK and Hermes Agent behind it."""

import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from typer.testing import CliRunner

from clover_agent.cli import app
from tests.agents.clients import CLIENTS, INSTALLED, Client, Place
from tests.agents.test_tasks import POEM

PROXY = INSTALLED / "litellm-proxy/bin/litellm"
HERMES: Client = next(client for client in CLIENTS if client.name == "hermes")
KEY = f"sk-{secrets.token_hex(32)}"
TASK = "Write a short poem about a leaf to poem.txt, then show it in capitals."
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "write_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
}
BOTH = {
    "when": {"contains": "two files"},
    "reply": {
        "reasoning": "They do not depend on each other.",
        "tool_calls": [{"name": "write_file", "arguments": {"path": p, "content": f"{p} ü"}} for p in ("a", "b")],
    },
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its base URL. The configuration is what `clover-agent litellm-config` prints for a replay with Hermes' rules."""
    if not PROXY.exists():
        pytest.fail("the proxy is not installed: run scripts/install-agents litellm-proxy")
    home = tmp_path_factory.mktemp("proxy")
    replay, config = home / "replay.jsonl", home / "config.yaml"
    replay.write_text(f"{json.dumps(BOTH)}\n{HERMES.replay.read_text()}")
    flags = ["--model", f"replay:{replay}", "--name", "clover"]
    config.write_text(CliRunner().invoke(app, ["litellm-config", *flags]).output)
    port = _free_port()
    environment = {
        **{"HOME": str(home), "PATH": os.environ["PATH"], "LITELLM_MASTER_KEY": KEY},
        **{"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"},
    }
    command = [str(PROXY), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield _ready(process, f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _ready(process: subprocess.Popen[str], url: str) -> str:
    assert process.stdout is not None
    log = ""
    for line in process.stdout:
        log += line
        if "Uvicorn running" in line:
            Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would stop the proxy
            assert httpx.get(f"{url}/health/liveliness").status_code == 200
            return url
    pytest.fail(f"the proxy did not start: {log}")


@pytest.fixture
def client(proxy: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{proxy}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def asked(text: str, **extra: Any) -> Any:
    return {"model": "clover", "messages": [{"role": "user", "content": text}], "tools": [TOOL], **extra}


def test_the_openai_sdk_streams_two_calls_and_a_thought(client: OpenAI) -> None:
    thought, finishes = "", []
    with client.chat.completions.stream(
        **asked("Write two files."),
        stream_options={"include_usage": True},
        extra_body={"chat_template_kwargs": {"enable_thinking": True}},
    ) as stream:
        for event in stream:
            if event.type == "chunk":
                for choice in event.chunk.choices:
                    thought += getattr(choice.delta, "reasoning_content", None) or ""
                    finishes += [choice.finish_reason] if choice.finish_reason else []
        answer = stream.get_final_completion()
    calls = answer.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [
        call["arguments"]
        for call in BOTH["reply"]["tool_calls"]  # type: ignore[index]
    ]
    assert len({call.id for call in calls}) == 2
    assert thought.strip() == "They do not depend on each other."
    assert finishes == ["tool_calls"]
    plain = client.chat.completions.create(
        **asked("Write two files."), extra_body={"chat_template_kwargs": {"enable_thinking": True}}
    )
    assert answer.usage is not None
    assert plain.usage is not None
    assert answer.usage.completion_tokens == plain.usage.completion_tokens > 0
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert details.reasoning_tokens


def test_reasoning_effort_is_let_through(client: OpenAI) -> None:
    """LiteLLM refuses it for custom providers, unless a deployment allows it."""
    for effort, thinks in (("none", False), ("high", True)):
        answer = client.chat.completions.create(**asked("Write two files.", reasoning_effort=effort))
        assert bool(getattr(answer.choices[0].message, "reasoning_content", None)) == thinks


@pytest.mark.parametrize("stream", [False, True])
def test_errors_keep_their_status(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="only one choice"):
        client.chat.completions.create(**asked("Hi", n=2, stream=stream))
    with pytest.raises(openai.BadRequestError, match="context is 131072"):
        client.chat.completions.create(**asked("x " * 300_000, stream=stream))
    # and the only deployment is not cooled down by that:
    assert client.chat.completions.create(**asked("Write two files.")).choices[0].finish_reason == "tool_calls"


def test_the_models_context_is_told(proxy: str) -> None:
    (model,) = httpx.get(f"{proxy}/v1/models", headers={"Authorization": f"Bearer {KEY}"}).json()["data"]
    assert (model["id"], model["max_input_tokens"]) == ("clover", 131_072)


def test_hermes_does_its_task_through_the_proxy(proxy: str, tmp_path: Path) -> None:
    place = Place(tmp_path / "home", tmp_path / "work", proxy)
    for folder in (place.home, place.work):
        folder.mkdir()
    outcome = _with_key(HERMES).run(place, TASK, limit_s=120)
    assert outcome.returncode == 0, outcome
    assert (place.work / "poem.txt").read_text() == POEM, outcome
    assert "In capitals, the leaf AND FELL." in outcome.stdout


def _with_key(client: Client) -> Client:
    """The client as its example says, and with the proxy's key."""

    def prepare(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
        prepared = client.prepare(place, program)
        config = place.home / ".hermes" / "config.yaml"
        text = config.read_text()
        assert "api_key: none" in text
        config.write_text(text.replace("api_key: none", f"api_key: {KEY}"))
        return prepared

    return Client(client.name, client.program, prepare, client.command, client.write)
