"""An engine around a model that can only write whole answers: no grammar, no drafts, no batching, one at a time.

For checkpoints whose blocks cannot be denoised from outside. Same face as `Engine`. Knows no text and no checkpoint.
"""

import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from clover_agent.engine.engine import EngineStats
from clover_agent.engine.outbox import Outbox
from clover_agent.engine.request import GenerationRequest, check
from clover_agent.errors import CloverError, DeadlineExceeded, GenerationFailed, Overloaded, Unavailable
from clover_agent.model.protocol import Generator, Interrupted, ModelSpec
from clover_agent.types import DiffusionStats, Step

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    request: GenerationRequest
    outbox: Outbox[Step | CloverError]
    deadline: float | None
    dropped: threading.Event = field(default_factory=threading.Event)


class GenerateEngine:
    """Answers requests one after another, in the order in which they come; each answer comes as one step."""

    def __init__(self, generator: Generator, *, max_waiting: int) -> None:
        self._generator = generator
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._live: dict[str, _Job] = {}
        self._max_live = max_waiting + 1
        self._gate = threading.Lock()  # holds `_live`, `_open` and `_stats`
        self._open = False
        self._cut = threading.Event()  # the drain time is over: what still runs is interrupted
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="clover-generate", daemon=True)

    @property
    def spec(self) -> ModelSpec:
        return self._generator.spec

    @property
    def healthy(self) -> bool:
        return self._open and self._thread.is_alive()

    def stats(self) -> EngineStats:
        with self._gate:
            running = min(1, len(self._live))
            return replace(self._stats, running=running, waiting=len(self._live) - running)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if ended requests left something behind. For an engine that is closed."""
        if self._live:
            raise RuntimeError(f"{len(self._live)} requests were left behind")

    def start(self) -> None:
        self._open = True
        self._thread.start()

    def close(self, drain_s: float = 0.0) -> None:
        """As `Engine.close`. What its model does not let be interrupted holds it up."""
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(drain_s)
            self._cut.set()
            self._thread.join()

    def cancel(self, id: str) -> None:  # noqa: A002 - the request's own word
        with self._gate:
            job = self._live.get(id)
        if job is not None:
            job.dropped.set()

    async def submit(self, request: GenerationRequest) -> AsyncGenerator[Step]:
        """As `Engine.submit`. Raises `UnsupportedParameter` too, for what a whole answer cannot honour."""
        check(request, self.spec)
        self._generator.check(request.sampling)
        deadline = None if request.deadline_s is None else time.monotonic() + request.deadline_s
        job = _Job(request, Outbox(2, lambda: None), deadline)
        with self._gate:
            if not self.healthy:
                raise Unavailable("The engine is not running or is shutting down; try again later.")
            if len(self._live) >= self._max_live:
                raise Overloaded("The engine's queue is full; try again in a moment.", retry_after_s=1)
            self._live[request.id] = job
            self._jobs.put(job)
        try:
            item = await job.outbox.get()
            if isinstance(item, CloverError):
                raise item
            yield item
        finally:
            job.dropped.set()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            item = self._answer(job)
            with self._gate:
                del self._live[job.request.id]
                ended = "failed" if isinstance(item, CloverError) else "finished"
                ended = "cancelled" if job.dropped.is_set() else ended
                self._stats = replace(self._stats, **{ended: getattr(self._stats, ended) + 1})
            job.outbox.put(item)

    def _answer(self, job: _Job) -> Step | CloverError:
        request = job.request
        budget = min(request.sampling.max_tokens, self.spec.max_context - len(request.prompt_ids))
        try:
            if self._interrupted(job):
                raise Interrupted
            made = self._generator.generate(
                request.prompt_ids, replace(request.sampling, max_tokens=budget), lambda: self._interrupted(job)
            )
        except Interrupted:
            return self._why(job)
        except CloverError as error:
            return error
        except Exception as error:
            log.error("A request failed.", exc_info=error)
            return GenerationFailed("The model failed on this request; the server's log has the details.")
        tokens = made.tokens[:budget]
        stats = DiffusionStats(denoising_steps=made.forwards, forwards=made.forwards, new_tokens=len(tokens))
        cut = len(made.tokens) > budget or (not made.ended and len(tokens) >= budget)
        return Step(tokens, stats, finish="length" if cut else "stop")

    def _interrupted(self, job: _Job) -> bool:
        late = job.deadline is not None and time.monotonic() >= job.deadline
        return late or job.dropped.is_set() or self._cut.is_set()

    def _why(self, job: _Job) -> CloverError:
        if self._cut.is_set():
            return Unavailable("The server is shutting down.")
        if job.dropped.is_set():
            return GenerationFailed("The request was cancelled.")
        return DeadlineExceeded("The request's deadline has passed.")
