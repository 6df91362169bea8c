"""The measuring client against a server whose clock the test turns: figures are exact, nothing waits."""

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.cli.timing import TimedClient, Timing, percentile, summarise

USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}}

TOLD = {"choices": [], "usage": USAGE}


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


ANSWERS: dict[str, list[dict[str, Any]]] = {
    "text": [
        delta(role="assistant", content=""),
        delta(content="ab"),
        delta(content="c"),
        {"choices": [], "usage": USAGE},
    ],
    "calls": [delta(reasoning_content="hm"), delta(tool_calls=[{"index": 0}]), {"choices": [], "usage": USAGE}],
    "no usage": [delta(content="ab"), delta(content="c")],
    "broken": [delta(content="ab"), {"error": {"message": "it broke"}}],
    "empty": [delta(role="assistant", content="")],
}


class Endpoint(BaseHTTPRequestHandler):
    """Answers as the request's model says."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, stream = body["model"], body.get("stream", False)
        if kind == "refused":
            self.answer(429, "application/json", json.dumps({"error": {"message": "too many"}}))
        elif kind == "html":
            self.answer(502, "text/html", "<html>")
        elif stream:
            events = "".join(f"data: {json.dumps(part)}\n\n" for part in ANSWERS[kind])
            self.answer(200, "text/event-stream; charset=utf-8", f": hello\n\n{events}data: [DONE]\n\n")
        else:
            self.answer(
                200, "application/json", json.dumps({"choices": [{"message": {"content": "abc"}}], "usage": USAGE})
            )

    def answer(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Quiet."""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


async def asked(base_url: str, kind: str, *, stream: bool = True) -> Timing:
    ticks = iter(range(100))
    async with TimedClient(base_url, stream=stream, clock=lambda: float(next(ticks))) as client:
        return await client.ask({"model": kind, "messages": []})


async def test_pieces_are_timed_and_usage_read(base_url: str) -> None:
    timing = await asked(base_url, "text")
    assert (timing.arrivals, timing.first, timing.end) == ([2, 3], 2, 5)  # the empty first delta is no piece
    assert (timing.text, timing.error) == ("abc", "")
    assert (timing.new_tokens, timing.prompt_tokens, timing.cached_tokens) == (4, 10, 6)


async def test_thoughts_and_calls_are_pieces_too(base_url: str) -> None:
    timing = await asked(base_url, "calls")
    assert (timing.arrivals, timing.text, timing.error) == ([1, 2], "hm", "")


async def test_pieces_are_counted_where_usage_is_not_told(base_url: str) -> None:
    assert (await asked(base_url, "no usage")).new_tokens == 2


async def test_an_answer_that_is_not_streamed_is_one_piece(base_url: str) -> None:
    timing = await asked(base_url, "text", stream=False)
    assert (timing.arrivals, timing.text, timing.new_tokens) == ([1], "abc", 4)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("broken", "it broke"), ("empty", "an empty answer"), ("refused", "too many"), ("html", "JSONDecodeError")],
)
async def test_trouble_is_told(kind: str, said: str, base_url: str) -> None:
    assert said in (await asked(base_url, kind)).error


async def test_nobody_there_is_trouble(unused_tcp_port: int) -> None:
    assert "ConnectError" in (await asked(f"http://127.0.0.1:{unused_tcp_port}/v1", "text")).error


async def test_no_more_than_so_many_at_once(base_url: str) -> None:
    running, most = 0, 0

    class Counting(TimedClient):
        async def ask(self, *args: Any, **kwargs: Any) -> Timing:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            timing = await super().ask(*args, **kwargs)
            running -= 1
            return timing

    done: list[int] = []
    async with Counting(base_url) as client:
        timings = await client.together([{"model": "text"}] * 9, 3, lambda: done.append(1))
    assert (most, len(timings), len(done)) == (3, 9, 9)


def test_summary_leaves_failures_out() -> None:
    good = Timing(arrivals=[1.0, 2.0, 4.0], end=5.0, new_tokens=9, prompt_tokens=10, cached_tokens=5)
    bad = Timing(arrivals=[0.1], end=0.2, new_tokens=1, error="cut")
    found = summarise([good, bad], 3.0)
    assert (found.requests, found.failed, found.tokens_per_s, found.cached_share) == (2, 1, 3.0, 0.5)
    assert (found.ttft_p50, found.gap_p50, found.tpot_p50) == (1.0, 1.5, 0.5)
    nothing = summarise([bad], 3.0)
    assert (nothing.ttft_p50, nothing.gap_p99, nothing.tokens_per_s) == (None, None, 0.0)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_lie_between_and_rise(values: list[float], share: float) -> None:
    at, higher = percentile(values, share), percentile(values, min(1.0, share + 0.1))
    assert at is not None
    assert higher is not None
    assert min(values) <= at <= higher <= max(values)
    assert (percentile(values, 0), percentile(values, 1)) == (min(values), max(values))
