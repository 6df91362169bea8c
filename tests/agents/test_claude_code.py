"""Claude Code on the messages face: the tasks and the troubles of the other agents, told in Anthropic's form."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from tests.agents.clients import INSTALLED, Client, Place, call, stop
from tests.agents.conftest import Serve
from tests.agents.recorder import Exchange, Recorder
from tests.agents.test_tasks import POEM
from tests.api.anthropic_wire import MESSAGES, assert_order, frames_of, message_body


def _claude_code(place: Place, program: Path) -> tuple[list[str], dict[str, str]]:
    settings = place.configure("claude-code/settings.json", "settings.json")
    options = ["-p", "--output-format", "json", "--permission-mode", "bypassPermissions", "--settings", str(settings)]
    return [str(program), *options], {"IS_SANDBOX": "1"}


CLAUDE_CODE = Client(
    "claude-code",
    INSTALLED / "claude-code/node_modules/.bin/claude",
    _claude_code,
    command=lambda text: call("Bash", command=text),
    write=lambda path, text: call("Write", file_path=path, content=text),
)


@pytest.fixture
def claude() -> Client:
    if not CLAUDE_CODE.program.exists():
        pytest.fail("claude-code is not installed: run scripts/install-agents claude-code")
    return CLAUDE_CODE


def turns(recorder: Recorder) -> list[Exchange]:
    """The requests of the agent's own loop."""
    return [exchange for exchange in recorder.exchanges if exchange.path == MESSAGES and exchange.body.get("tools")]


def well_served(recorder: Recorder) -> bool:
    """Every message was complete and in order."""
    for exchange in turns(recorder):
        assert (exchange.status, exchange.complete) == (200, True), exchange.answered
        assert_order(frames_of(exchange.answered.decode()))
    return True


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message; text alone is none."""
    content = message["content"]
    return content if isinstance(content, list) else []


def results(exchange: Exchange) -> list[dict[str, Any]]:
    """The tool results that the last message brings."""
    return [block for block in blocks(exchange.body["messages"][-1]) if block["type"] == "tool_result"]


@pytest.mark.parametrize("tool_format", ["qwen_xml", "hermes_json"])
def test_it_writes_a_file_runs_a_command_on_it_and_says_the_result(
    claude: Client, serve: Serve, tool_format: str
) -> None:
    with serve(claude.replay, tool_call_parser=tool_format) as (place, recorder):
        outcome = claude.run(place, "Write a short poem about a leaf to poem.txt, then show it in capitals.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "poem.txt").read_text() == POEM
    assert "In capitals, the leaf AND FELL." in json.loads(outcome.stdout)["result"]
    assert well_served(recorder)
    assert [len(results(turn)) for turn in turns(recorder)] == [0, 1, 1]
    thoughts = [b for m in turns(recorder)[-1].body["messages"] for b in blocks(m) if b["type"] == "thinking"]
    assert [thought["thinking"] for thought in thoughts] == ["First the file, then a look at it."]


def test_two_calls_of_one_turn_are_both_run(claude: Client, serve: Serve) -> None:
    files = {"one.txt": "first\n", "two.txt": "second\n"}
    calls = [claude.write(name, text) for name, text in files.items()]
    rules = [
        {"when": {"has_tools": True, "turn": 1}, "reply": {"content": "Both.", "tool_calls": calls}},
        {"when": {"has_tools": True, "turn": 2}, "reply": {"content": "Both files are there."}},
        {"reply": {"content": "Two files"}},
    ]
    with serve(rules) as (place, recorder):
        outcome = claude.run(place, "Write the two files.")
    assert outcome.returncode == 0, outcome
    assert {path.name: path.read_text() for path in place.work.iterdir() if path.suffix == ".txt"} == files
    assert well_served(recorder)
    assert len({result["tool_use_id"] for result in results(turns(recorder)[-1])}) == 2


def test_a_failed_command_comes_back_as_an_error(claude: Client, serve: Serve) -> None:
    rules = [
        {"when": {"has_tools": True, "turn": 1}, "reply": {"tool_calls": [claude.command("cat misssing.txt")]}},
        {
            "when": {"has_tools": True, "turn": 2, "contains": "Error: Exit code 1"},
            "reply": {"tool_calls": [claude.command("echo $((6 * 7)) > answer.txt")]},
        },
        {"when": {"has_tools": True, "turn": 3}, "reply": {"content": "Now it is written."}},
        {"reply": {"content": "A missing file"}},
    ]
    with serve(rules) as (place, recorder):
        outcome = claude.run(place, "Show misssing.txt.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "answer.txt").read_text() == "42\n"
    assert [result.get("is_error") for result in results(turns(recorder)[1])] == [True]
    assert well_served(recorder)


def test_a_long_silence_is_waited_out(claude: Client, serve: Serve) -> None:
    rules = [
        {
            "when": {"has_tools": True, "turn": 1},
            "delay_s": 4,
            "reply": {"tool_calls": [claude.write("late.txt", "late\n")]},
        },
        {"reply": {"content": "Better late than never."}},
    ]
    with serve(rules, keep_alive_s=0.2, silence_event_s=1) as (place, recorder):
        outcome = claude.run(place, "Write late.txt.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "late.txt").read_text() == "late\n"
    assert len(turns(recorder)) == 2, "the client has asked again"
    assert turns(recorder)[0].answered.count(b"event: ping") > 3


def test_a_call_that_is_cut_is_never_run(claude: Client, serve: Serve) -> None:
    command = "touch cut.txt; echo " + "leaf " * 30_000
    rules = [{"when": {"has_tools": True}, "reply": {"content": "Now.", "tool_calls": [claude.command(command)]}}]
    with serve(rules, max_model_len=32_768) as (place, recorder):
        claude.run(place, "Run it.", limit_s=60)
    assert not (place.work / "cut.txt").exists()
    answers = [exchange.answered for exchange in turns(recorder) if exchange.status == 200]
    assert any(b'"stop_reason":"max_tokens"' in answer for answer in answers)
    assert all(b'"tool_use"' not in answer for answer in answers)


def test_the_user_is_told_when_the_prompt_does_not_fit(claude: Client, serve: Serve) -> None:
    with serve([{"reply": {"content": "Nothing."}}], max_model_len=512) as (place, _):
        outcome = claude.run(place, "Say something.", limit_s=60)
    assert "this model's context is 512" in outcome.stdout + outcome.stderr, outcome


def test_a_client_that_is_killed_frees_its_slot(claude: Client, serve: Serve) -> None:
    forever = {"when": {"contains": "forever and ever"}, "reply": {"content": "again and " * 20_000}}
    written = Event()
    with serve([forever, {"reply": {"content": "Still here."}}], max_num_seqs=1) as (place, recorder):
        recorder.on_answer = lambda exchange: written.set() if b"again and" in exchange.answered else None
        process = claude.start(place, "Say it again, forever and ever.")
        try:
            assert written.wait(60), "the client has not asked"
        finally:
            stop(place.home)
            process.communicate()
        after = httpx.post(f"{place.url}{MESSAGES}", json=message_body(model="clover"), timeout=60).json()
        metrics = httpx.get(f"{place.url}/metrics").text
    assert [block["text"] for block in after["content"]] == ["Still here."]
    assert 'clover:request_cancelled_total{model_name="clover"} 1.0' in metrics
    assert not turns(recorder)[0].complete
