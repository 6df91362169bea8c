"""Log lines and metrics. No line and no metric ever holds a prompt, an answer or a key.

Knows nothing of HTTP: the gateway tells a `RequestMeter` what happens to its request.
"""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from clover_agent.types import Event, Finished, Started, Usage

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TOKENS_PER_FORWARD = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class _Formatter(logging.Formatter):
    """One line a record: time, level, request id, event, and the fields given as `extra={"fields": {…}}`."""

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if identity := request_id.get():
            line["request_id"] = identity
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str) if self._json else _as_text(line)


def _as_text(line: dict[str, Any]) -> str:
    head = f"{line.pop('time')} {line.pop('level'):<7} {line.pop('event')}"
    line.pop("logger")
    trace = line.pop("exception", None)
    fields = "".join(f" {name}={value}" for name, value in line.items())
    return f"{head}{fields}\n{trace}" if trace else f"{head}{fields}"


def setup_logging(level: str, form: Literal["text", "json"]) -> None:
    """Send the records of this process to stderr. `sse_starlette` stays above debug: its debug lines are answers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("sse_starlette").setLevel(max(logging.INFO, logging.getLogger().level))


class Metrics:
    """The metrics of one gateway, in a registry of its own. Names are vLLM's, with `clover:` in front."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = self._gauge("num_requests_running", "Requests that are being generated.")
        self.waiting = self._gauge("num_requests_waiting", "Requests that wait for their first token.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of finished requests.")
        self.generation_tokens = self._counter("generation_tokens", "New tokens of finished requests.")
        self.cache_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.cache_hits = self._counter("prefix_cache_hits", "Prompt tokens taken from the prefix cache.")
        self.denoising_steps = self._counter("denoising_steps", "Forward passes over a block.")
        self.forwards = self._counter("forwards", "All forward passes.")
        self.forced_tokens = self._counter("forced_tokens", "Tokens that a grammar wrote without a forward pass.")
        self.grammar = self._counter("grammar", "Accepted requests, by how their output is held.", "exactness")
        self.success = self._counter("request_success", "Finished requests.", "finished_reason")
        self.failure = self._counter("request_failure", "Requests that ended in an error, by its code.", "code")
        self.cancelled = self._counter("request_cancelled", "Requests whose client went away.")
        self.first_token_s = self._histogram("time_to_first_token_seconds", "Until the first event.", LATENCY_S)
        self.per_token_s = self._histogram("time_per_output_token_seconds", "After the first event.", LATENCY_S)
        self.latency_s = self._histogram("e2e_request_latency_seconds", "Whole request.", LATENCY_S)
        self.tokens_per_forward = self._histogram(
            "tokens_per_forward", "New tokens per denoising step of a request.", TOKENS_PER_FORWARD
        )

    def meter(self, model: str) -> "RequestMeter":
        """The meter of a new request. `model` must be a served name: it becomes a label."""
        return RequestMeter(self, model)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"clover:{name}", help_, ("model_name", *labels), registry=self.registry)

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(f"clover:{name}", help_, ("model_name",), registry=self.registry)

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"clover:{name}", help_, ("model_name",), registry=self.registry, buckets=buckets)


class RequestMeter:
    """Follows one request: `event` for each event, `failed` for its error, `close` in any case at the end."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model
        self._began = time.monotonic()
        self._first: float | None = None
        self._outcome: str | None = None
        metrics.waiting.labels(model).inc()

    def event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._metrics.grammar.labels(self._model, event.grammar or "none").inc()
        if self._first is None and not isinstance(event, Started):
            self._first = time.monotonic()
            self._metrics.waiting.labels(self._model).dec()
            self._metrics.running.labels(self._model).inc()
            self._metrics.first_token_s.labels(self._model).observe(self._first - self._began)
        if isinstance(event, Finished):
            self._outcome = event.reason
            self._metrics.success.labels(self._model, event.reason).inc()
            self._count(event.usage)

    def failed(self, code: str) -> None:
        self._outcome = code
        self._metrics.failure.labels(self._model, code).inc()

    def close(self) -> dict[str, Any]:
        """End of the request. Returns the fields of its log line."""
        elapsed = time.monotonic() - self._began
        if self._first is None:
            self._metrics.waiting.labels(self._model).dec()
        else:
            self._metrics.running.labels(self._model).dec()
        if self._outcome is None:
            self._outcome = "cancelled"
            self._metrics.cancelled.labels(self._model).inc()
        self._metrics.latency_s.labels(self._model).observe(elapsed)
        return {"model": self._model, "outcome": self._outcome, "seconds": round(elapsed, 3)}

    def _count(self, usage: Usage) -> None:
        metrics, model, stats = self._metrics, self._model, usage.diffusion
        metrics.prompt_tokens.labels(model).inc(usage.prompt_tokens)
        metrics.generation_tokens.labels(model).inc(usage.completion_tokens)
        metrics.cache_queries.labels(model).inc(usage.prompt_tokens)
        metrics.cache_hits.labels(model).inc(stats.cached_tokens)
        metrics.denoising_steps.labels(model).inc(stats.denoising_steps)
        metrics.forwards.labels(model).inc(stats.forwards)
        metrics.forced_tokens.labels(model).inc(stats.forced_tokens)
        if stats.denoising_steps:
            metrics.tokens_per_forward.labels(model).observe(stats.tokens_per_forward)
        if self._first is not None and usage.completion_tokens > 1:
            per_token = (time.monotonic() - self._first) / (usage.completion_tokens - 1)
            metrics.per_token_s.labels(model).observe(per_token)
