"""A checkpoint with its own code behind the whole gateway: permission, paths, honesty, and a tool call on each path."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from clover_agent.api import create_app
from clover_agent.cli.local import serving
from clover_agent.engine import GenerateEngine, GenerationRequest
from clover_agent.errors import InvalidRequest, LoadFailed
from clover_agent.loading import load_service
from clover_agent.model.protocol import Generated, Interrupted, ModelSpec
from clover_agent.settings import ModelSettings, ServerSettings, Settings
from clover_agent.types import SamplingParams
from tests.checkpoints import write_checkpoint

pytestmark = pytest.mark.usefixtures("modules_cache")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK: dict[str, Any] = {
    "model": "mine",
    "messages": [{"role": "user", "content": "What is the weather in Lisbon right now?"}],
    "tools": [WEATHER],
    "max_tokens": 64,
}


def settings(path: Path, **model: Any) -> Settings:
    chosen = {"model": str(path), "trust_remote_code": True, "device": "cpu", "dtype": "float64", **model}
    return Settings(model=ModelSettings.model_validate(chosen), server=ServerSettings(port=0, drain_s=0))


@contextmanager
def gateway(chosen: Settings) -> Iterator[httpx.Client]:
    with (
        serving(create_app(load_service(chosen), chosen)) as url,
        httpx.Client(base_url=url, timeout=300) as client,
    ):
        yield client


def called(answer: dict[str, Any]) -> dict[str, Any]:
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls", answer
    function = choice["message"]["tool_calls"][0]["function"]
    assert function["name"] == "get_weather"
    arguments: dict[str, Any] = json.loads(function["arguments"])
    return arguments


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """Path -> message: the block paths must write the same."""
    return {}


@pytest.mark.parametrize(
    ("path", "quirks"), [("cached", {}), ("uncached", {"no_cache": True}), ("generate", {"block": "never"})]
)
def test_a_tool_call_over_http(
    path: str, quirks: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, answers: dict[str, Any]
) -> None:
    with caplog.at_level(logging.INFO), gateway(settings(write_checkpoint(tmp_path / "mine", **quirks))) as client:
        about = client.get("/v1/models").json()["data"][0]["clover"]
        response = client.post("/v1/chat/completions", json=ASK)
    held = path != "generate"
    assert about == {"path": path, "constrained_unmasking": held}
    assert response.headers["x-clover-grammar"] == ("exact" if held else "none")
    assert isinstance(called(response.json())["city"], str)
    assert ("no grammar holds its calls" in caplog.text) is not held
    assert "runs now, with all the rights of this process" in caplog.text
    message = response.json()["choices"][0]["message"]
    if held:
        message["tool_calls"][0]["id"] = ""
        assert answers.setdefault("message", message) == message


def test_code_runs_only_with_the_flag(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "mine")
    trace = tmp_path / "was-here"
    code = (path / "modeling.py").read_text()
    (path / "modeling.py").write_text(f"{code}\nopen({str(trace)!r}, 'w').close()\nraise RuntimeError('imported')\n")
    with pytest.raises(LoadFailed, match="start again with --trust-remote-code"):
        load_service(settings(path, trust_remote_code=False))
    assert not trace.exists()
    with pytest.raises(LoadFailed, match="RuntimeError: imported"):
        load_service(settings(path))
    assert trace.exists()


def test_code_of_another_repository_is_not_fetched(tmp_path: Path) -> None:
    named = {"AutoModelForCausalLM": "someone/else--modeling.QuirkyModel"}
    path = write_checkpoint(tmp_path / "mine", config={"auto_map": named})
    with pytest.raises(LoadFailed, match="another repository"):
        load_service(settings(path))


def test_the_flag_is_for_checkpoints_that_bring_code() -> None:
    with pytest.raises(LoadFailed, match="brings no code"):
        load_service(Settings(model=ModelSettings(model="sprout", trust_remote_code=True)))


def test_what_no_path_can_serve_is_refused_with_the_probes(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"cannot be served: its logits are not finite.*finite logits"):
        load_service(settings(write_checkpoint(tmp_path / "mine", nan=True)))


def test_what_generate_cannot_honour_is_refused(tmp_path: Path) -> None:
    with gateway(settings(write_checkpoint(tmp_path / "mine", block="never"))) as client:
        response = client.post("/v1/chat/completions", json={**ASK, "logit_bias": {"5": 1}})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logit_bias"


class Endless:
    """Generates until it is interrupted, and tells that it has begun."""

    spec = ModelSpec(10, 3, (2,), 4, 100)

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def check(self, sampling: SamplingParams) -> None:
        if sampling.logit_bias:
            raise InvalidRequest("no")

    def generate(self, ids: Any, sampling: SamplingParams, interrupted: Any) -> Generated:
        if list(ids) == [7]:
            return Generated((5,) * 3, ended=True, forwards=2)
        self.loop.call_soon_threadsafe(self.begun.set)
        while not interrupted():
            pass
        raise Interrupted


async def test_a_cancelled_generation_ends_and_the_next_one_runs() -> None:
    generator = Endless()
    engine = GenerateEngine(generator, max_waiting=4)
    engine.start()
    first = engine.submit(GenerationRequest("a", (5,), SamplingParams()))
    reading = asyncio.ensure_future(anext(first))
    await generator.begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    steps = [step async for step in engine.submit(GenerationRequest("b", (7,), SamplingParams()))]
    assert [(step.tokens, step.finish) for step in steps] == [((5, 5, 5), "stop")]
    await asyncio.to_thread(engine.close)
    assert (engine.stats().cancelled, engine.stats().finished) == (1, 1)
    engine.check_integrity()


@pytest.mark.parametrize(("budget", "finish"), [(2, "length"), (3, "stop"), (9, "stop")])
async def test_a_generation_is_cut_at_its_budget(budget: int, finish: str) -> None:
    engine = GenerateEngine(Endless(), max_waiting=4)
    engine.start()
    request = GenerationRequest("b", (7,), SamplingParams(max_tokens=budget))
    steps = [step async for step in engine.submit(request)]
    assert [(len(step.tokens), step.finish) for step in steps] == [(min(3, budget), finish)]
    await asyncio.to_thread(engine.close)
