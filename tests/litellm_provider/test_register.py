import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import litellm
import pytest

from clover_agent import litellm_provider
from clover_agent.errors import LoadFailed, ModelNotFound
from clover_agent.litellm_provider.host import HOST, Host
from clover_agent.litellm_provider.remote import Place
from clover_agent.settings import ModelSettings, Settings

HELLO: Any = {"messages": [{"role": "user", "content": "Say hello."}]}


def test_the_model_is_known_to_litellm() -> None:
    info = litellm.get_model_info("clover/replay")
    assert (info["max_input_tokens"], info["input_cost_per_token"]) == (131_072, 0.0)
    for supports in (litellm.supports_function_calling, litellm.supports_parallel_function_calling):
        assert supports("clover/replay")
    assert litellm.supports_response_schema("clover/replay")
    assert litellm.get_model_info("clover/sprout")["max_input_tokens"] == 4096
    assert "tools" in litellm.get_supported_openai_params("replay", "clover")


def test_registering_again_keeps_others_and_adds_nothing_twice(replay_file: Path) -> None:
    other = {"provider": "somebody", "custom_handler": litellm.CustomLLM()}
    before = litellm.custom_provider_map
    litellm.custom_provider_map = [*before, other]
    try:
        litellm_provider.register(f"replay:{replay_file}")
        assert [entry["provider"] for entry in litellm.custom_provider_map] == ["somebody", "clover"]
    finally:
        litellm.custom_provider_map = before


def test_a_model_that_does_not_exist_is_said_at_once() -> None:
    with pytest.raises(LoadFailed, match="is no model"):
        litellm_provider.register("/nowhere/at/all")


def test_a_request_cannot_name_a_path() -> None:
    for name in ("/etc", "replay:/etc/passwd", "../sprout"):
        with pytest.raises(litellm.NotFoundError, match="not allowed"):
            litellm.completion(f"clover/{name}", **HELLO)
    answer = litellm.completion("clover/replay", **HELLO, extra_body={"device": "cuda:9", "trust_remote_code": True})
    assert answer.choices[0].message.content


def test_one_engine_serves_all_threads_and_loops() -> None:
    async def three() -> list[Any]:
        return await asyncio.gather(*(litellm.acompletion("clover/replay", **HELLO) for _ in range(3)))

    with ThreadPoolExecutor(6) as pool:
        plain = [pool.submit(litellm.completion, "clover/replay", **HELLO) for _ in range(3)]
        loops = [pool.submit(lambda: asyncio.run(three())) for _ in range(3)]
        answers = [f.result() for f in plain] + [answer for f in loops for answer in f.result()]
    assert len({answer.choices[0].message.content for answer in answers}) == 1
    assert len({answer.system_fingerprint for answer in answers}) == 1
    assert litellm_provider.handler._host is HOST


def test_a_host_that_was_told_nothing_has_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, replay_file: Path
) -> None:
    """As in the proxy, which only names the handler."""
    monkeypatch.setenv("CLOVER_MODEL", f"replay:{replay_file}")
    monkeypatch.setenv("CLOVER_SERVED_MODEL_NAME", "mine")
    host = Host()
    body = {"model": "mine", **HELLO}
    try:
        assert host.submit(host.complete(body, None)).result()["model"] == "mine"
        with pytest.raises(ModelNotFound, match="not allowed in this process, which has 'mine'"):
            host.submit(host.complete({**body, "model": "sprout"}, None)).result()
        host.close()
        assert host.submit(host.complete(body, None)).result()["model"] == "mine", "loaded again after a close"
    finally:
        host.close()


def test_a_failed_load_is_told_and_tried_again(tmp_path: Path, replay_file: Path) -> None:
    path = tmp_path / "later.jsonl"
    host = Host()
    host.allow(Settings(model=ModelSettings(model=f"replay:{path}", served_model_name=("later",))))
    body = {"model": "later", **HELLO}
    try:
        with pytest.raises(LoadFailed):
            host.submit(host.complete(body, None)).result()
        path.write_text(replay_file.read_text())
        assert host.submit(host.complete(body, None)).result()["choices"][0]["finish_reason"] == "stop"
    finally:
        host.close()


def test_a_process_of_its_own_ends_quietly() -> None:
    """The one line of the documentation."""
    code = (
        "import clover_agent.litellm_provider as p; p.register(); import litellm; "
        "answer = litellm.completion('clover/sprout', messages=[{'role': 'user', 'content': 'Hi'}]); "
        "print(answer.choices[0].finish_reason)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (run.returncode, run.stdout.strip().splitlines()[-1]) == (0, "stop"), run.stderr
    assert "Traceback" not in run.stderr


def test_gateways_are_asked_again_after_the_loop_was_closed(gateway: str) -> None:
    """Connections belong to an event loop: a new one must not find those of the last."""
    host = Host()
    place, body = Place(gateway), {"model": "replay", **HELLO}
    for _ in range(3):
        answer = host.submit(host.complete(body, 30, place)).result()
        assert answer["choices"][0]["finish_reason"] == "stop"
        host.close()
