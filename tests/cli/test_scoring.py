"""Scores: what counts as right, and figures that are honest about small numbers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.cli.scoring import Reply, kind_of, same_calls, score, summarise, tokens_per_forward, wilson


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:1],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("go", where={"type": "string"}, times={"type": "integer"}), tool("stop")]
USER = {"role": "user", "content": "go"}


def record(*calls: tuple[str, dict[str, Any]], answer: str | None = None, **more: Any) -> dict[str, Any]:
    named = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {"source": "test", "tools": TOOLS, "messages": [USER], "calls": named, "answer": answer, **more}


def test_a_right_call() -> None:
    judged = score(record(("go", {"where": "up", "times": 2})), Reply((("go", '{"times": 2.0, "where": "up"}'),)))
    assert (judged.name, judged.exact, judged.right, judged.expected) == (True, True, 2, 2)
    assert not judged.refused


def test_a_wrong_argument_counts_alone() -> None:
    judged = score(record(("go", {"where": "up", "times": 2})), Reply((("go", '{"where": "up", "times": 3}'),)))
    assert (judged.name, judged.exact, judged.right, judged.expected) == (True, False, 1, 2)
    assert judged.valid


@pytest.mark.parametrize(
    "call", [("go", "{"), ("go", '{"times": 1}'), ("go", '{"where": 4}'), ("fly", "{}"), ("go", "[]")]
)
def test_calls_that_are_not_valid(call: tuple[str, str]) -> None:
    assert score(record(("go", {"where": "up"})), Reply((call,))).valid is False


def test_no_call_where_one_was_due() -> None:
    judged = score(record(("stop", {})), Reply(content="No."))
    assert (judged.name, judged.exact, judged.refused) == (False, False, True)


def test_true_is_not_one() -> None:
    assert not same_calls([("f", {"x": True})], [("f", {"x": 1})])
    assert same_calls([("f", {"x": 1})], [("f", {"x": 1.0})])


call_lists = st.lists(
    st.tuples(st.sampled_from("fg"), st.dictionaries(st.sampled_from("ab"), st.integers(0, 2))), max_size=4
)


@given(calls=call_lists, data=st.data())
def test_the_order_of_calls_does_not_matter(calls: list[tuple[str, Any]], data: st.DataObject) -> None:
    assert same_calls(calls, data.draw(st.permutations(calls)))


def test_two_calls_of_one_tool_are_matched_one_to_one() -> None:
    due = record(("go", {"where": "up"}), ("go", {"where": "down"}))
    judged = score(due, Reply((("go", '{"where": "down"}'), ("go", '{"where": "down"}'))))
    assert (judged.kind, judged.name, judged.exact, judged.right, judged.expected) == ("pair", True, False, 1, 2)


RESULT = {"role": "tool", "tool_call_id": "c", "content": '{"city": "Lima", "degrees": 19, "seen": true, "code": "x9"}'}


@pytest.mark.parametrize(("content", "right"), [("19 degrees in lima", True), ("It is 18 in Lima", False), ("", False)])
def test_answers_must_hold_the_values_that_the_reference_holds(content: str, right: bool) -> None:
    due = record(answer="In Lima it is 19.", messages=[USER, RESULT])
    assert kind_of(due) == "answer"
    assert score(due, Reply(content=content)).answered is right


def test_an_answer_without_any_value_to_look_for_is_not_judged() -> None:
    assert score(record(answer="Done.", messages=[USER, RESULT]), Reply(content="Done.")).answered is None


def test_refusals_have_recall_and_precision() -> None:
    none, due = record(answer="No tool fits."), record(("stop", {}))
    refuse, call = Reply(content="No."), Reply((("stop", "{}"),))
    scores = [score(none, refuse), score(none, refuse), score(none, call), score(due, refuse), score(due, call)]
    figures = summarise(scores)
    assert figures["refusal_recall"]["share"] == pytest.approx(2 / 3, abs=1e-4)
    assert figures["refusal_precision"]["share"] == pytest.approx(2 / 3, abs=1e-4)
    assert figures["exact_call"] == {"share": 0.5, "n": 2, "low": pytest.approx(0.0945, abs=1e-3), "high": 0.9055}


def test_failures_are_neither_right_nor_refusals() -> None:
    judged = score(record(answer="No tool fits."), Reply(error="APIError: 500", content="No."))
    assert judged.failed
    assert not judged.refused


@given(count=st.integers(1, 500), data=st.data())
def test_wilson_holds_the_share_and_stays_in_bounds(count: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, count))
    low, high = wilson(successes, count)
    assert 0 <= low <= successes / count + 1e-12
    assert successes / count - 1e-12 <= high <= 1
    wider = wilson(successes * 4, count * 4)
    assert wider[1] - wider[0] < high - low


def test_tokens_per_forward_is_over_all_steps_reported() -> None:
    replies = [
        Reply(completion_tokens=30, denoising_steps=10),
        Reply(completion_tokens=30, denoising_steps=30),
        Reply(),
    ]
    assert tokens_per_forward(replies) == 1.5
    assert tokens_per_forward([Reply(completion_tokens=5)]) is None
