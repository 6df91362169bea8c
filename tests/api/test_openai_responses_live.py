"""Responses over a real socket: hang-ups and silence."""

import asyncio
from typing import Any

import httpx
import pytest

from clover_agent.types import TextDelta
from tests.api.fakes import STARTED, Pause, ScriptedService, finished, live
from tests.api.responses_wire import RESPONSES, assert_order, frames_of, responses_body


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("said", [[], [STARTED], [STARTED, TextDelta("x")]])
async def test_a_client_that_hangs_up_frees_its_slot(streamed: bool, said: list[Any]) -> None:
    pause = Pause()
    service = ScriptedService([*said, pause, finished()])
    async with live(service) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            request = asyncio.create_task(client.post(RESPONSES, json=responses_body(stream=streamed)))
            await pause.reached.wait()
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await asyncio.wait_for(service.cancelled.wait(), 10)
        assert service.active == 0


@pytest.mark.parametrize("said", [[], [STARTED], [STARTED, TextDelta("x")]])
async def test_silence_is_broken_by_events_and_nothing_is_lost(said: list[Any]) -> None:
    """Codex counts events only: comments do not reset its timer."""
    pause = Pause()
    service = ScriptedService([*said, pause, TextDelta("y"), finished()])
    text = ""
    async with (
        asyncio.timeout(30),  # against a hang: without its events the test would wait for ever
        live(service, keep_alive_s=0.02, silence_event_s=0.05) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", RESPONSES, json=responses_body(stream=True)) as response,
    ):
        async for piece in response.aiter_text():
            text += piece
            if text.count("event: response.in_progress") >= 4:
                pause.go.set()
    frames = frames_of(text)
    assert_order(frames)
    assert frames[-1]["response"]["output"][0]["content"][0]["text"] == ("xy" if len(said) == 2 else "y")
