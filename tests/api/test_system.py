"""Models, health, version, metrics, and the document that describes them."""

import threading
from typing import Any

import pytest

from clover_agent import __version__
from clover_agent.errors import InvalidToolCall, LoadFailed
from clover_agent.types import TextDelta
from tests.api.conftest import Connect
from tests.api.fakes import STARTED, ScriptedService, body

CHAT = "/v1/chat/completions"
CONTEXT_NAMES = ("context_length", "max_model_len", "max_context_length", "context_window", "n_ctx", "max_input_tokens")


def test_models_tell_the_context_under_every_name(connect: Connect) -> None:
    answer = connect().get("/v1/models").json()
    assert answer["object"] == "list"
    assert [entry["id"] for entry in answer["data"]] == ["sprout", "other/name"]
    for entry in answer["data"]:
        assert entry["object"] == "model"
        assert entry["root"] == "sprout"
        assert isinstance(entry["created"], int)
        assert all(entry[name] == 4096 for name in CONTEXT_NAMES)


@pytest.mark.parametrize("name", ["sprout", "other/name"])
def test_one_model(connect: Connect, name: str) -> None:
    client = connect()
    listed = {entry["id"]: entry for entry in client.get("/v1/models").json()["data"]}
    assert client.get(f"/v1/models/{name}").json() == listed[name]


def test_a_model_that_is_not_there(connect: Connect) -> None:
    response = connect().get("/v1/models/gpt-4o")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_version(connect: Connect) -> None:
    assert connect().get("/version").json() == {"version": __version__}


def _statuses(client: Any) -> list[int]:
    calls = [client.get("/health"), client.get("/v1/health"), client.get("/v1/models"), client.post(CHAT, json=body())]
    return [response.status_code for response in calls]


def test_everything_waits_for_the_model(connect: Connect) -> None:
    go, service = threading.Event(), ScriptedService()

    def load() -> ScriptedService:
        go.wait()
        return service

    client = connect(service=load)
    assert _statuses(client) == [503] * 4
    refused = client.post(CHAT, json=body())
    assert "loaded" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"]
    go.set()
    client.wait_until_loaded()
    assert service.started
    assert _statuses(client) == [200] * 4


def test_a_model_that_cannot_be_loaded(connect: Connect) -> None:
    def load() -> ScriptedService:
        raise LoadFailed("no such file")

    client = connect(service=load)
    client.wait_until_loaded()
    assert _statuses(client) == [503] * 4
    assert str(client.gateway.load_error) == "no such file"


def test_a_dead_engine_is_not_healthy(connect: Connect) -> None:
    client = connect()
    assert _statuses(client) == [200] * 4
    client.service.healthy = False
    assert _statuses(client) == [503] * 4


def test_a_draining_server_refuses_and_says_when_to_retry(connect: Connect) -> None:
    client = connect()
    client.on_loop(client.gateway.drain)
    assert _statuses(client) == [503] * 4
    refused = client.post(CHAT, json=body())
    assert refused.headers["retry-after"]
    assert "shutting down" in refused.json()["error"]["message"]


def test_metrics(connect: Connect) -> None:
    client = connect()
    client.post(CHAT, json=body())
    client.post(CHAT, json=body(stream=True, model="other/name"))
    client.service.script = [STARTED, TextDelta("x"), InvalidToolCall("bad")]
    client.post(CHAT, json=body())
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = set(response.text.splitlines())
    assert {
        'clover:prompt_tokens_total{model_name="sprout"} 11.0',
        'clover:generation_tokens_total{model_name="other/name"} 7.0',
        'clover:request_success_total{finished_reason="stop",model_name="sprout"} 1.0',
        'clover:request_failure_total{code="invalid_tool_call",model_name="sprout"} 1.0',
        'clover:prefix_cache_hits_total{model_name="sprout"} 5.0',
        'clover:denoising_steps_total{model_name="sprout"} 4.0',
        'clover:num_requests_running{model_name="sprout"} 0.0',
        'clover:num_requests_waiting{model_name="sprout"} 0.0',
        'clover:time_to_first_token_seconds_count{model_name="sprout"} 2.0',
    } <= lines


def test_metrics_belong_to_one_application(connect: Connect) -> None:
    connect().post(CHAT, json=body())
    assert "prompt_tokens_total{" not in connect().get("/metrics").text


def test_the_document_describes_what_is_there(connect: Connect) -> None:
    document = connect().get("/openapi.json").json()
    chat = document["paths"][CHAT]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ChatCompletionRequest")
    assert {"200", "400", "401", "404", "413", "429", "503"} <= set(chat["responses"])
    schemas = document["components"]["schemas"]
    assert {"model", "messages"} == set(schemas["ChatCompletionRequest"]["required"])
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    assert "422" not in str(document)


@pytest.mark.parametrize(
    ("path", "request_", "answer", "error"),
    [
        (CHAT, "ChatCompletionRequest", "ChatCompletion", "Error"),
        ("/v1/messages", "MessagesRequest", "Message", "AnthropicError"),
        ("/v1/messages/count_tokens", "CountTokensRequest", "TokenCount", "AnthropicError"),
    ],
)
def test_every_face_is_described_in_its_own_form(
    connect: Connect, path: str, request_: str, answer: str, error: str
) -> None:
    operation = connect().get("/openapi.json").json()["paths"][path]["post"]
    described = [operation["requestBody"], operation["responses"]["200"], operation["responses"]["400"]]
    names = [part["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2] for part in described]
    assert names == [request_, answer, error]


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    return [found for value in node for found in _references(value)] if isinstance(node, list) else []
