"""`clover-agent evaluate` against an endpoint that answers from a table, over HTTP."""

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
from openai import AsyncOpenAI

from clover_agent.cli.evaluate import ask_all, make_report, read, spaced, wire_message

TOOL = {"type": "function", "function": {"name": "go", "parameters": {"type": "object", "properties": {}}}}


def record(number: int, *, calls: bool = True) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "source": "even" if number % 2 == 0 else "odd",
        "tools": [TOOL] if calls else [],
        "messages": [{"role": "user", "content": str(number)}],
        "calls": [{"name": "go", "arguments": {}}] if calls else [],
        "answer": None if calls else "No.",
    }


def completion(content: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]} if content != "3" else {"role": "assistant"}
    diffusion = {"denoising_steps": 4, "forwards": 5, "forced_tokens": 3, "tokens_per_forward": 2.0}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "No.", **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 8, "total_tokens": 9, "diffusion": diffusion},
    }


class Endpoint(BaseHTTPRequestHandler):
    """Calls `go` for every request, refuses "3", fails on "4"."""

    def do_GET(self) -> None:
        self.answer(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "x"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = body["messages"][-1]["content"]
        wrong = body["model"] != "m" or body["threshold"] != 0.9 or ("tools" in body) != ("tool_choice" in body)
        if said == "4" or wrong:
            self.answer(400, {"error": {"message": "no", "type": "invalid_request_error"}})
        else:
            self.answer(200, completion(said))

    def answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_replies_come_in_order_and_failures_are_counted(url: str) -> None:
    records = [record(number, calls=number != 5) for number in range(6)]
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    ticks: list[None] = []
    replies = asyncio.run(
        ask_all(
            client,
            records,
            model="",
            tool_choice="auto",
            fields={"max_tokens": 9, "extra_body": {"threshold": 0.9}},
            concurrency=2,
            done=lambda: ticks.append(None),
        )
    )
    report = make_report(records, replies)
    assert len(ticks) == len(records)
    assert [outcome["id"] for outcome in report["outcomes"]] == [r["id"] for r in records]
    assert report["all"]["exact_call"]["share"] == 0.6
    assert report["all"]["errors"]["share"] == pytest.approx(1 / 6, abs=1e-4)
    assert report["all"]["refusal_recall"]["share"] == 0.0
    assert report["tokens_per_forward"] == 2.0
    assert report["by_source"]["odd"]["records"] == 3
    assert "BadRequestError" in report["outcomes"][4]["error"]


def test_arguments_of_the_history_go_out_as_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "go", "arguments": {"x": "ü"}}}
    sent = wire_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert sent["tool_calls"][0]["function"]["arguments"] == '{"x": "ü"}'


def test_a_limit_takes_records_from_the_whole_file() -> None:
    records = [record(number) for number in range(10)]
    assert [r["id"] for r in spaced(records, 3)] == ["r0", "r3", "r6"]
    assert spaced(records, 0) == records


def test_a_file_that_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    path.write_text("{}")
    with pytest.raises(typer.BadParameter, match="JSON lines"):
        list(read(path))
