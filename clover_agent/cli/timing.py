"""A client that measures: when the first and every later piece of an answer came, from any OpenAI-compatible endpoint.

Knows nothing of what is asked; `bench` and the benchmarks decide that. Pieces are what the endpoint sends at once: a
token, a block, or the whole answer of an endpoint that does not stream.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


@dataclass(slots=True)
class Timing:
    """One answer. Seconds since the request was sent: `arrivals` of pieces with text, thought or calls; `end`.

    new_tokens   as `usage` tells them; without it the pieces, counted
    error        why there is no whole answer; empty where there is one
    """

    arrivals: list[float] = field(default_factory=list)
    end: float = 0.0
    new_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str = ""

    @property
    def first(self) -> float:
        """Time to first token."""
        return self.arrivals[0] if self.arrivals else self.end

    def take(self, part: Mapping[str, Any], now: float) -> None:
        """One chunk, or a whole answer."""
        if error := part.get("error"):
            self.error = str(error.get("message") if isinstance(error, Mapping) else error)
        for choice in part.get("choices") or ():
            piece = choice.get("delta") or choice.get("message") or {}
            text = (piece.get("content") or "") + (piece.get("reasoning_content") or piece.get("reasoning") or "")
            if text or piece.get("tool_calls"):
                self.arrivals.append(now)
                self.text += text
        if usage := part.get("usage"):
            self.new_tokens, self.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
            self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class TimedClient:
    """Asks one endpoint; use it in an `async with`.

    base_url   with its /v1
    stream     False for an endpoint that cannot: then the whole answer is its first piece
    clock      seconds; processor time of a server, where that is what is measured
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "none",
        *,
        stream: bool = True,
        timeout_s: float = 1200.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self._stream = stream
        self._url = f"{base_url}/chat/completions"
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(timeout=timeout_s, headers=headers, limits=CONNECTIONS)

    async def __aenter__(self) -> "TimedClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, body: Mapping[str, Any], each: Callable[[Timing], None] = lambda _: None) -> Timing:
        """Time one answer; `each` sees it after every part. What goes wrong is its `error`."""
        if self._stream:
            body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        begun, timing = self.clock(), Timing()
        try:
            async with self._http.stream("POST", self._url, json=body) as response:
                async for part in _parts(response):
                    timing.take(part, self.clock() - begun)
                    each(timing)
                if not response.is_success:
                    timing.error = timing.error or f"HTTP {response.status_code}"
        except (httpx.HTTPError, ValueError) as error:
            timing.error = f"{type(error).__name__}: {error}"
        timing.end = self.clock() - begun
        timing.new_tokens = timing.new_tokens or len(timing.arrivals)
        if not timing.arrivals:
            timing.error = timing.error or "an empty answer"
        return timing

    async def together(
        self, bodies: Sequence[Mapping[str, Any]], concurrency: int, done: Callable[[], None] = lambda: None
    ) -> list[Timing]:
        """All of them, in order, at most `concurrency` at a time."""
        gate = asyncio.Semaphore(concurrency)

        async def one(body: Mapping[str, Any]) -> Timing:
            async with gate:
                timing = await self.ask(body)
            done()
            return timing

        return await asyncio.gather(*(one(body) for body in bodies))


async def _parts(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of an answer: of its events, or the one that it is."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        yield json.loads(await response.aread())
        return
    async for line in response.aiter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of many answers; seconds, of whole answers only; None where there is nothing to measure.

    ttft   to the first piece          gap    between pieces          tpot   per token after the first piece
    """

    requests: int
    failed: int
    tokens_per_s: float
    ttft_p50: float | None
    ttft_p99: float | None
    gap_p50: float | None
    gap_p99: float | None
    tpot_p50: float | None
    cached_share: float


def summarise(timings: Sequence[Timing], seconds: float) -> Summary:
    """`seconds` is what all of them took together."""
    whole = [timing for timing in timings if not timing.error]
    gaps = [gap for timing in whole for gap in _gaps(timing)]
    firsts = [timing.first for timing in whole]
    each = [(t.end - t.first) / (t.new_tokens - 1) for t in whole if t.new_tokens > 1 and len(t.arrivals) > 1]
    prompts = sum(timing.prompt_tokens for timing in whole)
    return Summary(
        requests=len(timings),
        failed=len(timings) - len(whole),
        tokens_per_s=sum(timing.new_tokens for timing in whole) / seconds if seconds else 0.0,
        ttft_p50=percentile(firsts, 0.5),
        ttft_p99=percentile(firsts, 0.99),
        gap_p50=percentile(gaps, 0.5),
        gap_p99=percentile(gaps, 0.99),
        tpot_p50=percentile(each, 0.5),
        cached_share=sum(timing.cached_tokens for timing in whole) / prompts if prompts else 0.0,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear between neighbours; None of nothing."""
    if not values:
        return None
    ordered, place = sorted(values), share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _gaps(timing: Timing) -> Iterator[float]:
    return (after - before for before, after in zip(timing.arrivals, timing.arrivals[1:], strict=False))
