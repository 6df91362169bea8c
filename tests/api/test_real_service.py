"""The gateway around the real service: what bad and odd input do to engine, grammar and template behind it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from clover_agent.loading import load_service
from clover_agent.settings import EngineSettings, ModelSettings, ServerSettings, Settings
from tests.api.fakes import GatewayClient, body, live, tool
from tests.api.test_bad_input import BAD_FIELDS, GOOD

CHAT = "/v1/chat/completions"
RULES = [
    {"when": {"contains": "forever"}, "reply": {"content": "again and " * 4000}},
    {"reply": {"content": "Hello"}},
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One slot only, so that a request that is not freed blocks the next one."""
    path = tmp_path_factory.mktemp("replay") / "answers.jsonl"
    path.write_text("\n".join(json.dumps(rule) for rule in RULES))
    return Settings(
        model=ModelSettings(model=f"replay:{path}", served_model_name=("sprout",)),
        engine=EngineSettings(max_num_seqs=1),
        server=ServerSettings(drain_s=0),
    )


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[GatewayClient]:
    with GatewayClient(load_service(settings), settings) as client:
        yield client


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("request_", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_what_clients_really_send_is_answered(client: GatewayClient, request_: dict[str, Any], streamed: bool) -> None:
    response = client.post(CHAT, json={"max_tokens": 40, **request_, "stream": streamed})
    assert response.status_code == 200, response.text
    assert '"error"' not in response.text


def test_no_bad_field_reaches_the_engine_and_the_next_request_works(client: GatewayClient) -> None:
    for name, request_, field in BAD_FIELDS:
        response = client.post(CHAT, json=request_)
        assert response.status_code == 400, name
        assert response.json()["error"]["param"] == field
    assert client.post(CHAT, json=body()).json()["choices"][0]["message"]["content"] == "Hello"


LONG = {"role": "user", "content": "word " * 140_000}
BEHIND: list[tuple[str, dict[str, Any], str]] = [
    ("a prompt longer than the context", body(messages=[LONG]), "messages"),
    ("a token that does not exist", body(logit_bias={"99999999": 1}), "logit_bias"),
    ("a variable of the template", body(chat_template_kwargs={"raise_exception": 1}), "chat_template_kwargs"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("request_", "field"), [case[1:] for case in BEHIND], ids=[case[0] for case in BEHIND])
def test_what_only_the_service_can_know_is_a_400_too(
    client: GatewayClient, request_: dict[str, Any], field: str, streamed: bool
) -> None:
    response = client.post(CHAT, json={**request_, "stream": streamed})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


def test_a_strict_schema_beyond_the_grammar_names_the_keyword(client: GatewayClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    response = client.post(CHAT, json=body(tools=[tool(strict=True, parameters=schema)]))
    assert response.status_code == 400
    assert "uniqueItems" in response.json()["error"]["message"]
    assert client.post(CHAT, json=body(tools=[tool(parameters=schema)])).status_code == 200


async def test_a_client_that_hangs_up_frees_the_only_slot(settings: Settings) -> None:
    service = load_service(settings)
    endless = body(stream=True, messages=[{"role": "user", "content": "forever"}])
    async with live(service, settings) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        async with client.stream("POST", CHAT, json=endless) as response:
            await anext(response.aiter_lines())
        answer = await client.post(CHAT, json=body())
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        assert service.engine.stats().running == 0
