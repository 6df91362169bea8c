"""What goes wrong with long, slow and busy models: silence, a full server, a cut call, a client that is killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import httpx

from tests.agents.clients import Client, Place, stop
from tests.agents.conftest import Serve
from tests.agents.recorder import CHAT, Exchange, Recorder
from tests.agents.test_tasks import well_served

FOREVER = {"when": {"contains": "forever"}, "reply": {"content": "again and " * 20_000}}
SILENCE_S = 4


def chat(content: str, *, stream: bool) -> dict[str, Any]:
    return {"model": "clover", "stream": stream, "messages": [{"role": "user", "content": content}]}


def test_a_long_silence_is_waited_out(client: Client, serve: Serve) -> None:
    """Keep-alive comments and empty deltas, as they are sent in minutes of prefill, only faster."""
    rules = [
        {
            "when": {"has_tools": True, "turn": 1},
            "delay_s": SILENCE_S,
            "reply": {"tool_calls": [client.write("late.txt", "late\n")]},
        },
        {"when": {"has_tools": True, "turn": 2}, "delay_s": SILENCE_S, "reply": {"content": "Better late than never."}},
        {"reply": {"content": "Being late"}},
    ]
    with serve(rules, keep_alive_s=0.2, silence_event_s=1) as (place, recorder):
        outcome = client.run(place, "Write late.txt.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "late.txt").read_text() == "late\n"
    assert "Better late than never." in outcome.stdout
    assert well_served(recorder)
    assert len(recorder.turns) == 2, "the client has asked again"
    assert all(turn.answered.count(b": keep-alive") > 3 for turn in recorder.turns)


@contextmanager
def all_slots_taken(place: Place, recorder: Recorder) -> Iterator[None]:
    """One long answer has the only slot, until another request has been turned away."""
    writing = Event()

    def occupy() -> None:
        with httpx.stream("POST", f"{place.url}{CHAT}", json=chat("forever", stream=True), timeout=60) as answer:
            for line in answer.iter_lines():
                if '"content":"a' in line:
                    writing.set()
                if any(exchange.status == 429 for exchange in recorder.chats):
                    return

    thread = Thread(target=occupy)
    thread.start()
    writing.wait(30)
    yield
    thread.join()


def test_a_busy_server_is_asked_again(client: Client, serve: Serve) -> None:
    rules = [
        FOREVER,
        {"when": {"has_tools": True, "turn": 1}, "reply": {"tool_calls": [client.write("calm.txt", "calm\n")]}},
        {"when": {"has_tools": True, "turn": 2}, "reply": {"content": "It was only busy."}},
        {"reply": {"content": "Being busy"}},
    ]
    with (
        serve(rules, max_num_seqs=1, max_queue=0) as (place, recorder),
        all_slots_taken(place, recorder),
    ):
        outcome = client.run(place, "Write calm.txt.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "calm.txt").read_text() == "calm\n"
    assert "It was only busy." in outcome.stdout
    refused = [exchange for exchange in recorder.chats if exchange.status == 429]
    assert refused
    assert all(int(exchange.headers["retry-after"]) >= 1 for exchange in refused)


def test_a_call_that_is_cut_by_the_context_is_never_run(client: Client, serve: Serve) -> None:
    """The command would leave a mark before its cut end."""
    command = "touch cut.txt; echo " + "leaf " * 30_000
    rules: list[dict[str, Any]] = [
        {"when": {"has_tools": True}, "reply": {"content": "Now.", "tool_calls": [client.command(command)]}},
        {"reply": {"content": "A long command"}},
    ]
    with serve(rules, max_model_len=32_768) as (place, recorder):
        client.run(place, "Run it.", limit_s=60)
    assert not (place.work / "cut.txt").exists()
    answers = [exchange.answered for exchange in recorder.turns if exchange.status == 200]
    assert answers
    assert any(sign in answer for answer in answers for sign in (b'"finish_reason":"length"', b"response.incomplete"))
    assert all(sign not in answer for answer in answers for sign in (b'"tool_calls"', b'"function_call"'))


def test_the_user_is_told_when_the_prompt_does_not_fit(client: Client, serve: Serve) -> None:
    with serve([{"reply": {"content": "Nothing."}}], max_model_len=512) as (place, recorder):
        outcome = client.run(place, "Say something.", limit_s=60)
    assert client.too_long in outcome.stdout + outcome.stderr, outcome
    codes = {(chat.status, json.loads(chat.answered)["error"]["code"]) for chat in recorder.turns}
    assert codes == {(400, "context_length_exceeded")}
    assert len(recorder.chats) == 1, "what cannot succeed was tried again"


def test_a_client_that_is_killed_frees_its_slot(client: Client, serve: Serve) -> None:
    rules = [FOREVER, {"reply": {"content": "Still here."}}]
    with serve(rules, max_num_seqs=1) as (place, recorder):
        process = client.start(place, "Say it again, forever.")
        try:
            await_text(recorder)
        finally:
            stop(place.home)
            process.communicate()
        after = httpx.post(f"{place.url}{CHAT}", json=chat("hello", stream=False), timeout=60).json()
        metrics = httpx.get(f"{place.url}/metrics").text
    assert after["choices"][0]["message"]["content"] == "Still here."
    assert 'clover:request_cancelled_total{model_name="clover"} 1.0' in metrics
    assert not recorder.turns[0].complete


def await_text(recorder: Recorder) -> None:
    """Until the client is being sent its answer."""
    written = Event()

    def look(exchange: Exchange) -> None:
        if b'"content":"a' in exchange.answered or b'"delta":"a' in exchange.answered:
            written.set()

    recorder.on_answer = look
    assert written.wait(60), "the client has not asked"
