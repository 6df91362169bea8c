"""A client that measures: when the first and every later piece of an answer came, and a server process to ask."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

Messages = list[dict[str, Any]]


@dataclass
class Answer:
    """Seconds since the request was sent: `arrivals` of pieces with text; `end`. Tokens as `usage` tells them."""

    arrivals: list[float] = field(default_factory=list)
    end: float = 0.0
    new_tokens: int = 0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    text: str = ""

    @property
    def first(self) -> float:
        return self.arrivals[0] if self.arrivals else self.end


@dataclass(frozen=True)
class Client:
    """`stream` is False for a server that cannot: then the whole answer is its first piece."""

    url: str
    stream: bool
    clock: Callable[[], float] = time.perf_counter

    async def ask(self, messages: Messages, max_tokens: int) -> Answer:
        body = {"model": "bench", "messages": messages, "max_tokens": max_tokens, "temperature": 0}
        body |= {"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": False}}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        begun, answer = self.clock(), Answer()
        async with (
            httpx.AsyncClient(timeout=1200) as http,
            http.stream("POST", f"{self.url}/v1/chat/completions", json=body) as response,
        ):
            response.raise_for_status()
            async for line in response.aiter_lines():
                for part in _parts(line):
                    _take(answer, part, self.clock() - begun)
        answer.end = self.clock() - begun
        return answer

    async def together(self, all_messages: Sequence[Messages], concurrency: int, max_tokens: int) -> list[Answer]:
        """All of them, at most `concurrency` at a time."""
        gate = asyncio.Semaphore(concurrency)

        async def one(messages: Messages) -> Answer:
            async with gate:
                return await self.ask(messages, max_tokens)

        return await asyncio.gather(*(one(messages) for messages in all_messages))


def processor_clock(pid: int) -> Callable[[], float]:
    """Seconds of processor time that a process has used (Linux: the clock that `clock_getcpuclockid` names)."""
    return partial(time.clock_gettime, (~pid << 3) | 2)


def _parts(line: str) -> Iterator[dict[str, Any]]:
    data = line.removeprefix("data: ")
    if data.startswith("{"):
        yield json.loads(data)


def _take(answer: Answer, part: dict[str, Any], now: float) -> None:
    if "error" in part:
        raise RuntimeError(part["error"]["message"])
    for choice in part["choices"]:
        piece = choice.get("delta") or choice.get("message") or {}
        if text := (piece.get("content") or piece.get("reasoning_content")):
            answer.arrivals.append(now)
            answer.text += text
    if usage := part.get("usage"):
        answer.new_tokens, answer.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run `python -m …` with a free port appended; its URL and process id once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", *arguments, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            try:
                if httpx.get(f"{url}/health").is_success:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()
