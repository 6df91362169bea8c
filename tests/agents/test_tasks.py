"""Real agents do real work through the gateway: the model calls their own tools, they run them and send the results."""

from pathlib import Path

import pytest

from tests.agents.clients import INSTALLED, Client
from tests.agents.conftest import Serve
from tests.agents.recorder import Exchange, Recorder

POEM = 'A leaf said "I\'m green",\n\tand fell \\ slowly, 落叶 🍂.\n<tool_call> is only text here: </tool_call>\n'


def well_served(recorder: Recorder) -> bool:
    """Every answer was complete, and none was an error."""
    return all(chat.status == 200 and chat.complete and b'"error":{' not in chat.answered for chat in recorder.chats)


def remember(client: Client, exchange: Exchange) -> None:
    """Keep the first request of an agent for `python -m benchmarks.agents`."""
    path: Path = INSTALLED / "requests" / f"{client.name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(exchange.sent)


@pytest.mark.parametrize("tool_format", ["qwen_xml", "hermes_json"])
def test_it_writes_a_file_runs_a_command_on_it_and_says_the_result(
    client: Client, serve: Serve, tool_format: str
) -> None:
    """The last rule of the replay wants what only the command can have printed: a result that is lost on the way ends
    the task in another text."""
    with serve(client.replay, tool_call_parser=tool_format) as (place, recorder):
        outcome = client.run(place, "Write a short poem about a leaf to poem.txt, then show it in capitals.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "poem.txt").read_text() == POEM
    assert "In capitals, the leaf AND FELL." in outcome.stdout
    assert well_served(recorder)
    assert [exchange.headers["x-clover-grammar"] for exchange in recorder.turns] == ["exact"] * 3
    assert [len(turn.results) for turn in recorder.turns] == [0, 1, 2]
    assert "AND FELL" in list(recorder.turns[-1].results.values())[-1]
    remember(client, recorder.turns[0])


def test_two_calls_of_one_turn_are_both_run(client: Client, serve: Serve) -> None:
    files = {"one.txt": "first\n", "two.txt": "second\n"}
    rules = [
        {
            "when": {"has_tools": True, "turn": 1},
            "reply": {
                "reasoning": "They do not depend on each other.",
                "tool_calls": [client.write(name, text) for name, text in files.items()],
            },
        },
        {"when": {"has_tools": True, "turn": 2}, "reply": {"content": "Both files are there."}},
        {"reply": {"content": "Two files"}},
    ]
    with serve(rules) as (place, recorder):
        outcome = client.run(place, "Write the two files.")
    assert outcome.returncode == 0, outcome
    assert {path.name: path.read_text() for path in place.work.iterdir() if path.suffix == ".txt"} == files
    assert "Both files are there." in outcome.stdout
    assert well_served(recorder)
    last = recorder.turns[-1]
    assert list(last.results) == last.calls
    assert len(set(last.calls)) == 2


def test_a_failed_command_comes_back_and_another_one_is_tried(client: Client, serve: Serve) -> None:
    rules = [
        {"when": {"has_tools": True, "turn": 1}, "reply": {"tool_calls": [client.command("cat misssing.txt")]}},
        {
            "when": {"has_tools": True, "turn": 2, "contains": "No such file"},
            "reply": {"content": "It is not there.", "tool_calls": [client.command("echo $((6 * 7)) > answer.txt")]},
        },
        {"when": {"has_tools": True, "turn": 3}, "reply": {"content": "Now it is written."}},
        {"reply": {"content": "A missing file"}},
    ]
    with serve(rules) as (place, recorder):
        outcome = client.run(place, "Show misssing.txt.")
    assert outcome.returncode == 0, outcome
    assert (place.work / "answer.txt").read_text() == "42\n"
    assert "Now it is written." in outcome.stdout
    assert well_served(recorder)
