"""Over a real socket: what arrives when, hang-ups, silence, the end of the server, the SDK."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest

from clover_agent.errors import Unavailable
from clover_agent.types import TextDelta
from tests.api.fakes import (
    HELLO,
    STARTED,
    THOUGHT_AND_CALLS,
    Pause,
    ScriptedService,
    body,
    finished,
    lines_of,
    live,
    tool,
)

CHAT = "/v1/chat/completions"


def parse(lines: list[str]) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def content(line: str) -> str | None:
    found: str | None = json.loads(line.removeprefix("data: "))["choices"][0]["delta"].get("content")
    return found


async def test_text_leaves_as_it_is_said() -> None:
    pause = Pause()
    service = ScriptedService([STARTED, TextDelta("one"), pause, TextDelta("two"), finished()])
    async with (
        live(service) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        lines = (line async for line in response.aiter_lines() if line)
        assert [content(await anext(lines)) for _ in range(2)] == ["", "one"]
        assert not pause.go.is_set()
        pause.go.set()
        assert [line async for line in lines][-1] == "data: [DONE]"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("said", [[], [STARTED], [STARTED, TextDelta("x")]])
async def test_a_client_that_hangs_up_frees_its_slot(streamed: bool, said: list[Any]) -> None:
    pause = Pause()
    service = ScriptedService([*said, pause, finished()])
    async with live(service) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            request = asyncio.create_task(client.post(CHAT, json=body(stream=streamed)))
            await pause.reached.wait()
            assert service.active == 1
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await asyncio.wait_for(service.cancelled.wait(), 10)
        assert service.active == 0


async def test_a_client_that_does_not_read_is_given_up() -> None:
    service = ScriptedService([STARTED, *[TextDelta("x" * 100_000)] * 200, finished()])
    async with live(service, send_timeout_s=0.05) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1024)
        content = json.dumps(body(stream=True))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode())
        await asyncio.wait_for(service.cancelled.wait(), 10)
        assert service.active == 0
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_finished_stream_is_not_a_cancelled_one() -> None:
    service = ScriptedService(HELLO)
    async with live(service) as url, httpx.AsyncClient(base_url=url) as client:
        for streamed in (True, False):
            assert (await client.post(CHAT, json=body(stream=streamed))).status_code == 200
    assert not service.cancelled.is_set()


async def test_a_body_that_is_never_finished_reaches_no_model() -> None:
    service = ScriptedService(HELLO)
    async with live(service) as url, httpx.AsyncClient(base_url=url) as client:
        port = int(url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            'Content-Length: 1000\r\n\r\n{"model": '.encode()
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await client.post(CHAT, json=body())).status_code == 200
    assert len(service.seen) == 1


async def test_silence_is_broken_by_comments_and_by_events() -> None:
    pause = Pause()
    service = ScriptedService([STARTED, pause, TextDelta("x"), finished()])
    async with (
        asyncio.timeout(30),  # against a hang: without its comments the test would wait for ever
        live(service, keep_alive_s=0.02, silence_event_s=0.05) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        comments, silences, seen = 0, 0, 0
        async for line in response.aiter_lines():
            comments += line.startswith(":")
            if line.startswith("data: {"):
                seen += 1
                silences += seen > 1 and content(line) == ""
            if comments > 2 and silences > 2:
                pause.go.set()
        assert pause.go.is_set()
        assert line == ""
    assert not service.cancelled.is_set()


async def test_headers_and_comments_come_before_a_slow_first_event() -> None:
    pause = Pause()
    service = ScriptedService([pause, Unavailable("too late for a status")])
    async with (
        live(service, keep_alive_s=0.02) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        assert response.status_code == 200
        pause.go.set()
        last = parse(await lines_of(response))[-1]
        assert last["error"]["code"] == "service_unavailable"


async def test_sixteen_streams_at_once() -> None:
    pause = Pause(parties=16)
    service = ScriptedService([STARTED, TextDelta("a"), pause, TextDelta("b"), finished()])
    async with live(service) as url, httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=20)) as client:
        requests = [asyncio.create_task(client.post(CHAT, json=body(stream=True))) for _ in range(16)]
        await pause.reached.wait()
        pause.go.set()
        for answer in await asyncio.gather(*requests):
            assert "".join(c["choices"][0]["delta"].get("content", "") for c in parse(answer.text.split("\n"))) == "ab"


async def test_closing_the_service_ends_what_is_left_with_an_error() -> None:
    pause = Pause()
    service = ScriptedService([STARTED, TextDelta("x"), pause, finished()])
    async with (
        live(service) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        await pause.reached.wait()
        await service.close()
        lines = await lines_of(response)
    assert "error" in parse(lines)[-1]
    assert "data: [DONE]" not in lines


async def test_the_sdk_reads_a_stream() -> None:
    service = ScriptedService(THOUGHT_AND_CALLS)
    async with live(service, keep_alive_s=0.01) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
        async with client.chat.completions.stream(model="sprout", messages=_messages(), tools=[_tool()]) as stream:
            streamed = await stream.get_final_completion()
        plain = await client.chat.completions.create(model="sprout", messages=_messages(), tools=[_tool()])
    ours, theirs = streamed.choices[0].message, plain.choices[0].message
    assert [call.function.arguments for call in ours.tool_calls or []] == ['{"city": "Lisbon"}', '{"city": "Oslo"}']
    assert [(c.id, c.function) for c in ours.tool_calls or []] != []
    assert ours.content == theirs.content == "Looking."
    assert (ours.model_extra or {})["reasoning_content"] == (theirs.model_extra or {})["reasoning_content"] == "hm, two"
    assert streamed.choices[0].finish_reason == plain.choices[0].finish_reason == "tool_calls"


async def test_the_sdk_lists_models_and_understands_errors() -> None:
    service = ScriptedService([STARTED, TextDelta("x"), Unavailable("gone")])
    async with live(service, api_key=("sk-a",)) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-a", max_retries=0) as client:
            assert [model.id async for model in client.models.list()] == ["sprout", "other/name"]
            assert (await client.models.retrieve("other/name")).id == "other/name"
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await client.chat.completions.create(model="nope", messages=_messages())
            with pytest.raises(openai.BadRequestError, match="temperature"):
                await client.chat.completions.create(model="sprout", messages=_messages(), temperature=5)
            with pytest.raises(openai.InternalServerError, match="gone"):
                await client.chat.completions.create(model="sprout", messages=_messages())
            stream = await client.chat.completions.create(model="sprout", messages=_messages(), stream=True)
            with pytest.raises(openai.APIError, match="gone"):
                async for _ in stream:
                    pass
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-b", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()


def _messages() -> Any:
    return [{"role": "user", "content": "Hi"}]


def _tool() -> Any:
    return tool()
