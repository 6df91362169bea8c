"""A real LiteLLM proxy with the engine in its process: the OpenAI SDK and Hermes Agent behind it."""

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from typer.testing import CliRunner

from clover_agent.cli import app
from tests.agents.clients import CLIENTS, INSTALLED, Client, Place
from tests.agents.test_tasks import POEM

PROXY = INSTALLED / "litellm-proxy/bin/litellm"
HERMES: Client = next(client for client in CLIENTS if client.name == "hermes")
KEY = f"sk-{secrets.token_hex(32)}"
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


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its base URL. The configuration is what `clover-agent litellm-config` prints, the model Hermes' replay."""
    if not PROXY.exists():
        pytest.fail("the proxy is not installed: run scripts/install-agents litellm-proxy")
    home = tmp_path_factory.mktemp("proxy")
    model = f"replay:{HERMES.replay}"
    config = home / "config.yaml"
    config.write_text(CliRunner().invoke(app, ["litellm-config", "--model", model]).output)
    port = _free_port()
    environment = {
        **{"HOME": str(home), "PATH": os.environ["PATH"], "LITELLM_MASTER_KEY": KEY, "CLOVER_MODEL": model},
        **{"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "LITELLM_TELEMETRY": "False"},
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
            assert httpx.get(f"{url}/health/liveliness").status_code == 200
            return url
    pytest.fail(f"the proxy did not start: {log}")


def test_the_openai_sdk_streams_a_call(proxy: str) -> None:
    with OpenAI(base_url=f"{proxy}/v1", api_key=KEY, max_retries=0) as client:
        stream = client.chat.completions.create(
            model="clover",
            messages=[{"role": "user", "content": "Write a poem."}],
            tools=[TOOL],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    arguments = "".join(
        delta.function.arguments or ""
        for chunk in chunks
        for choice in chunk.choices
        for delta in choice.delta.tool_calls or ()
        if delta.function
    )
    assert '"path": "poem.txt"' in arguments
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "tool_calls"
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert usage.completion_tokens > 0


def test_hermes_does_its_task_through_the_proxy(proxy: str, tmp_path: Path) -> None:
    place = Place(tmp_path / "home", tmp_path / "work", proxy)
    for folder in (place.home, place.work):
        folder.mkdir()
    command, extra = HERMES.prepare(place, HERMES.program)
    config = place.home / ".hermes" / "config.yaml"
    config.write_text(config.read_text().replace("api_key: none", f"api_key: {KEY}"))
    assert KEY in config.read_text()
    ran = subprocess.run(
        [*command, "Write a short poem about a leaf to poem.txt, then show it in capitals."],
        cwd=place.work,
        env=place.environment(extra),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (place.work / "poem.txt").read_text() == POEM, ran
    assert "In capitals, the leaf AND FELL." in ran.stdout
