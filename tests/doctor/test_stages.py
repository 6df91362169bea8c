"""The doctor against servers that do one thing wrong: it names the stage and what is wrong, and goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_agent.cli.local import local_gateway
from clover_agent.doctor import STAGES, Endpoint, Result, examine
from tests.doctor.servers import GoodServer, Hanging, Json, serving

ALL = ["reachable", *(stage.name for stage in STAGES)]


def results(server: GoodServer, model: str | None = None, timeout_s: float = 20) -> dict[str, Result]:
    with serving(server) as url, Endpoint(url, "k", timeout_s) as endpoint:
        return {result.stage: result for result in examine(endpoint, model)}


def failed(found: dict[str, Result]) -> set[str]:
    return {name for name, result in found.items() if result.status == "fail"}


def test_a_good_server_passes_and_what_it_lacks_is_skipped() -> None:
    found = results(GoodServer())
    assert list(found) == ALL
    assert failed(found) == set()
    assert {name for name, result in found.items() if result.status == "skipped"} == {"responses", "messages"}


class WrongFinish(GoodServer):
    def finish(self, message: Json) -> str | None:
        return "stop"


class EmptyFinish(GoodServer):
    def delta(self, delta: Json, finish: str | None = None) -> Json:
        return super().delta(delta, finish or "")


class NoFinish(GoodServer):
    def delta(self, delta: Json, finish: str | None = None) -> Json:
        return super().delta(delta, None)


class ObjectArguments(GoodServer):
    def message(self, body: Json) -> Json:
        message = super().message(body)
        for made in message.get("tool_calls") or ():
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])
        return message


class CutArguments(GoodServer):
    def message(self, body: Json) -> Json:
        message = super().message(body)
        for made in message.get("tool_calls") or ():
            made["function"]["arguments"] = made["function"]["arguments"][:-2]
        return message


class NoDone(GoodServer):
    def end(self) -> list[str]:
        return []


class NoIndex(GoodServer):
    def call(self, index: int, made: Json) -> Iterator[Any]:
        yield self.delta({"tool_calls": [made]})


class SameIndex(GoodServer):
    def call(self, index: int, made: Json) -> Iterator[Any]:
        yield from super().call(0, made)


class NoId(GoodServer):
    def message(self, body: Json) -> Json:
        message = super().message(body)
        for made in message.get("tool_calls") or ():
            made["id"] = None
        return message


class TwiceNamed(GoodServer):
    def call(self, index: int, made: Json) -> Iterator[Any]:
        for _ in range(2):
            yield self.delta({"tool_calls": [{"index": index, **made}]})


class UsageUnasked(GoodServer):
    def chunks(self, body: Json) -> Iterator[Any]:
        return super().chunks({**body, "stream_options": {"include_usage": True}})


class IgnoresToolChoice(GoodServer):
    def message(self, body: Json) -> Json:
        if "tool_choice" in body:
            return {"role": "assistant", "content": "Hello."}
        return super().message(body)


class IgnoresSchema(GoodServer):
    def message(self, body: Json) -> Json:
        if "response_format" in body:
            return {"role": "assistant", "content": "Ada is 36."}
        return super().message(body)


class NoContext(GoodServer):
    def models(self) -> Any:
        return {"object": "list", "data": [{"id": "m"}]}


class ErrorsAre500(GoodServer):
    def error(self, status: int, message: str) -> tuple[int, str, bytes]:
        return (500, "text/plain", b"oops") if status == 400 else super().error(status, message)


class ErrorInMidStream(GoodServer):
    def chunks(self, body: Json) -> Iterator[Any]:
        yield {"error": {"message": "out of memory"}}


class WebPage(GoodServer):
    def post(self, path: str, body: Json) -> tuple[int, str, bytes]:
        return 200, "text/html", b"<html><body>Welcome to nginx</body></html>"


@pytest.mark.parametrize(
    ("server", "stages", "said"),
    [
        (WrongFinish, {"one tool call"}, "finish_reason is 'stop'"),
        (EmptyFinish, {"streaming", "one tool call"}, "finish_reason is ''"),
        (NoFinish, {"streaming", "one tool call"}, "without a finish_reason"),
        (ObjectArguments, {"one tool call", "required, named"}, "`arguments` is dict"),
        (CutArguments, {"one tool call", "required, named"}, "no JSON object"),
        (NoDone, {"streaming", "one tool call"}, "[DONE]"),
        (NoIndex, {"one tool call"}, "no integer `index`"),
        (SameIndex, {"parallel calls"}, "sent twice"),
        (NoId, {"one tool call", "required, named"}, "no `id`"),
        (TwiceNamed, {"one tool call"}, "sent twice"),
        (UsageUnasked, {"streaming", "one tool call"}, "unasked"),
        (IgnoresToolChoice, {"required, named"}, "no call came"),
        (IgnoresSchema, {"json_schema"}, "no JSON object"),
        (NoContext, {"context length"}, "no context length"),
        (ErrorsAre500, {"errors"}, "answered with 500"),
        (ErrorInMidStream, {"streaming", "one tool call"}, "out of memory"),
        (WebPage, {"plain chat"}, "Welcome to nginx"),
    ],
)
def test_what_is_wrong_is_named(server: type[GoodServer], stages: set[str], said: str) -> None:
    found = results(server())
    assert list(found) == ALL
    assert failed(found) == stages
    assert said in found[next(name for name in ALL if name in stages)].detail


def test_a_hanging_server_is_given_up() -> None:
    found = results(Hanging(), timeout_s=0.2)
    assert failed(found) == {"plain chat"}
    assert "not complete after 0.2 s" in found["plain chat"].detail
    assert found["streaming"].detail == "needs: plain chat"


def test_nobody_there() -> None:
    with Endpoint("127.0.0.1:9", "k", 5) as endpoint:
        found = list(examine(endpoint))
    assert [result.status for result in found] == ["fail", *["skipped"] * len(STAGES)]
    assert "Nothing answers at http://127.0.0.1:9/v1/models" in found[0].detail


def test_a_model_that_is_not_listed_is_tried_nevertheless() -> None:
    found = results(GoodServer(), model="other")
    assert failed(found) == {"model"}
    assert found["plain chat"].status == "pass"


def test_a_server_that_lists_nothing_needs_a_name() -> None:
    class ListsNothing(GoodServer):
        def models(self) -> Any:
            return {"data": []}

    found = results(ListsNothing())
    assert list(found) == ALL
    assert failed(found) == {"model"}
    assert {result.status for name, result in found.items() if name not in ("reachable", "model")} == {"skipped"}


def test_the_gateway_passes(tmp_path: Path) -> None:
    weather = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Lisbon", "Oslo")]
    rules = [
        {"when": {"contains": "36 years"}, "reply": {"content": '{"name": "Ada", "age": 36}'}},
        {"when": {"contains": "both at once"}, "reply": {"tool_calls": weather}},
        {"when": {"has_tools": True, "turn": 1}, "reply": {"tool_calls": weather[:1]}},
        {"reply": {"content": "Hello."}},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(rule) for rule in rules))
    with local_gateway(f"replay:{path}") as url, Endpoint(url, "k", 60) as endpoint:
        found = {result.stage: result for result in examine(endpoint)}
    assert failed(found) == set()
    assert found["parallel calls"].status == "pass"
    assert found["messages"].status == "pass"
