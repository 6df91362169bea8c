"""SIGTERM on a real process: new work is refused, running answers end, what is left gets an error."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tests.api.fakes import body

CHAT = "/v1/chat/completions"
ROOT = Path(__file__).parents[2]


class Process:
    """The server process, and the stream that is open while it drains."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.api.drain_server"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.line()}", timeout=30)

    def line(self) -> str:
        return self._pipe(self.process.stdout).readline().strip()

    def tell(self, line: str) -> None:
        pipe = self._pipe(self.process.stdin)
        pipe.write(line + "\n")
        pipe.flush()

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.line() == "draining"

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.communicate()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


@contextmanager
def open_stream(server: Process) -> Iterator[Any]:
    """A stream that has begun: the lines that follow the first two."""
    with server.client.stream("POST", CHAT, json=body(stream=True)) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        assert '"role"' in next(lines)
        assert '"x"' in next(lines)
        yield lines


@pytest.fixture
def server() -> Iterator[Process]:
    process = Process()
    yield process
    process.close()


def test_new_requests_are_refused_and_running_answers_end(server: Process) -> None:
    with open_stream(server) as lines:
        server.drain()
        refused = server.client.post(CHAT, json=body())
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert server.client.get("/health").status_code == 503
        server.tell("end")
        rest = list(lines)
    assert '"y"' in rest[0]
    assert rest[-1] == "data: [DONE]"
    assert server.process.wait(timeout=30) == 0


def test_what_is_left_gets_an_error(server: Process) -> None:
    with open_stream(server) as lines:
        server.drain()
        server.tell("cut")
        rest = list(lines)
    assert len(rest) == 1
    assert '"service_unavailable"' in rest[0]
    assert server.process.wait(timeout=30) == 0


def test_a_second_signal_cuts_the_drain_short(server: Process) -> None:
    with open_stream(server):
        server.drain()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == -signal.SIGTERM
