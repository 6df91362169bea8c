"""Engine: one thread that owns the model, and the asyncio side of it.

Requests and cancels go in through one queue, steps come out through one bounded outbox per request; nothing else is
shared. Any number of event loops may submit. Knows no text: ids in, ids out.
"""

import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import astuple, dataclass, field, replace

import torch

from clover_agent.engine.options import EngineOptions
from clover_agent.engine.outbox import Outbox
from clover_agent.engine.prefix_cache import CacheStats
from clover_agent.engine.request import GenerationRequest, Sequence, check
from clover_agent.engine.runner import Runner
from clover_agent.engine.scheduler import Scheduler
from clover_agent.errors import CloverError, DeadlineExceeded, GenerationFailed, InvalidRequest, Unavailable
from clover_agent.model.protocol import BlockModel, ModelSpec
from clover_agent.types import DiffusionStats, Step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A look at the engine. `running` and `waiting` are now, the rest since the start; `work` is of ended requests."""

    running: int = 0
    waiting: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    work: DiffusionStats = field(default_factory=DiffusionStats)
    cache: CacheStats = field(default_factory=CacheStats)


@dataclass(frozen=True, slots=True)
class _Submit:
    request: GenerationRequest
    outbox: Outbox[Step | CloverError]
    deadline: float | None


@dataclass(frozen=True, slots=True)
class _Cancel:
    """Of `id`; with `outbox` only if the request is still the one that it belongs to."""

    id: str
    outbox: Outbox[Step | CloverError] | None = None


@dataclass(frozen=True, slots=True)
class _Wake:
    """Look again: a paused request has room, or the engine is to close."""


@dataclass(slots=True)
class _Stream:
    seq: Sequence
    outbox: Outbox[Step | CloverError]


class Engine:
    """Answers `GenerationRequest`s with streams of `Step`s. `start` before the first `submit`, `close` at the end."""

    def __init__(self, model: BlockModel, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._runner = Runner(model, self.options)
        self._scheduler = Scheduler(self.options)
        self._streams: dict[str, _Stream] = {}
        self._inbox: queue.SimpleQueue[_Submit | _Cancel | _Wake] = queue.SimpleQueue()
        self._totals = EngineStats()  # written by the engine's thread only
        self._gate = threading.Lock()  # holds `_open` still while a request passes into the inbox
        self._open = False
        self._close_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="clover-engine", daemon=True)

    @property
    def spec(self) -> ModelSpec:
        return self._runner.spec

    @property
    def healthy(self) -> bool:
        """Requests are accepted: started, not closing, and the thread is alive."""
        return self._open and self._thread.is_alive()

    def stats(self) -> EngineStats:
        return replace(
            self._totals,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            cache=self._runner.reuse.cache.stats(),
        )

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if ended requests left something behind. For an engine that is closed."""
        self._runner.reuse.cache.check_integrity(idle=True)

    def start(self) -> None:
        """Start the engine's thread. Once only."""
        self._open = True
        self._thread.start()

    def close(self, drain_s: float = 0.0) -> None:
        """Refuse new requests, give running ones `drain_s` seconds, end the rest with `Unavailable`. Blocks until the
        thread has ended; closing twice does nothing."""
        with self._gate:
            self._open = False
        if not self._thread.is_alive():
            return
        self._close_at = time.monotonic() + drain_s
        self._inbox.put(_Wake())
        self._thread.join()

    def cancel(self, id: str) -> None:  # noqa: A002 - the request's own word
        """End a request; whoever still reads its stream gets `GenerationFailed`. Unknown and ended ids are ignored."""
        self._inbox.put(_Cancel(id))

    async def submit(self, request: GenerationRequest) -> AsyncGenerator[Step]:
        """The steps of a request as they come; the last one has `finish`. Closing the iterator cancels the request.

        Raises the errors of `errors.py`: `InvalidRequest`, `ContextLengthExceeded`, `Overloaded` and `Unavailable`
        before the first step, `GenerationFailed` and its kin at any time.
        """
        check(request, self.spec)
        deadline = None if request.deadline_s is None else time.monotonic() + request.deadline_s
        outbox: Outbox[Step | CloverError] = Outbox(self.options.outbox_size, lambda: self._inbox.put(_Wake()))
        with self._gate:
            if not self.healthy:
                raise Unavailable("The engine is not running or is shutting down; try again later.")
            self._inbox.put(_Submit(request, outbox, deadline))
        try:
            while True:
                item = await outbox.get()
                if isinstance(item, CloverError):
                    raise item
                yield item
                if item.finish is not None:
                    return
        finally:
            self._inbox.put(_Cancel(request.id, outbox))

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._close_at is None or (self._streams and time.monotonic() < self._close_at):
                    self._turn()
            reason = "The server is shutting down."
        except BaseException:
            log.exception("The engine's thread died.")
            reason = "The engine has failed and must be restarted."
        finally:
            with self._gate:
                self._open = False
        self._abandon(reason)

    def _turn(self) -> None:
        """Take what came in, run one forward, hand out what became final."""
        self._receive()
        for seq in self._scheduler.expired(time.monotonic()):
            self._fail(seq, DeadlineExceeded("The request's deadline has passed."))
        for seq in self._scheduler.admit():
            self._start(seq)
        self._runner.reuse.catch_up(self._scheduler.running)
        turns = self._scheduler.batch(self._paused())
        if not turns:
            return
        failures = self._runner.step(turns)
        for turn in turns:
            if failure := failures.get(turn.seq.id):
                self._fail(turn.seq, failure)
            else:
                self._deliver(turn.seq)

    def _paused(self) -> set[str]:
        return {id_ for id_, stream in self._streams.items() if stream.outbox.full}

    def _receive(self) -> None:
        """Handle every command; wait for one if there is nothing to run."""
        try:
            if self._scheduler.stalled(self._paused()):
                if not self._streams:
                    self._runner.reuse.check_idle()
                self._handle(self._inbox.get(timeout=self._patience()))
            while True:
                self._handle(self._inbox.get_nowait())
        except queue.Empty:
            return

    def _patience(self) -> float | None:
        """Seconds until something is due by the clock; None = nothing is."""
        due = [t for t in (self._scheduler.next_deadline(), self._close_at) if t is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _handle(self, command: _Submit | _Cancel | _Wake) -> None:
        if isinstance(command, _Submit):
            self._accept(command)
        elif isinstance(command, _Cancel):
            stream = self._streams.get(command.id)
            if stream is not None and command.outbox in (None, stream.outbox):
                self._drop(stream.seq, cancelled=1)
                stream.outbox.put(GenerationFailed("The request was cancelled."))

    def _accept(self, submit: _Submit) -> None:
        request = submit.request
        if request.id in self._streams:
            submit.outbox.put(InvalidRequest(f"A request with the id {request.id!r} is running."))
            return
        seq = Sequence(request, self.spec, submit.deadline)
        try:
            self._scheduler.add(seq)
        except CloverError as refusal:
            submit.outbox.put(refusal)
            return
        self._streams[request.id] = _Stream(seq, submit.outbox)

    def _start(self, seq: Sequence) -> None:
        failure = self._runner.start(seq)
        if failure is not None:
            self._fail(seq, failure)
        else:
            self._deliver(seq)

    def _deliver(self, seq: Sequence) -> None:
        """Hand out what is new. A reader who sees the end finds the slot free already."""
        outbox = self._streams[seq.id].outbox
        step = seq.take()
        if seq.finished:
            self._drop(seq, finished=1)
        if step is not None and not outbox.put(step) and not seq.finished:
            self._drop(seq, cancelled=1)

    def _fail(self, seq: Sequence, error: CloverError) -> None:
        outbox = self._streams[seq.id].outbox
        self._drop(seq, failed=1)
        outbox.put(error)

    def _drop(self, seq: Sequence, *, finished: int = 0, cancelled: int = 0, failed: int = 0) -> None:
        """Forget a sequence and give its slot and memory back."""
        del self._streams[seq.id]
        self._scheduler.remove(seq)
        self._runner.reuse.end(seq)
        seq.free()
        totals = self._totals
        self._totals = replace(
            totals,
            finished=totals.finished + finished,
            cancelled=totals.cancelled + cancelled,
            failed=totals.failed + failed,
            prompt_tokens=totals.prompt_tokens + len(seq.request.prompt_ids),
            work=_sum(totals.work, seq.stats),
        )

    def _abandon(self, reason: str) -> None:
        """The thread ends: whoever still waits is told."""
        for stream in list(self._streams.values()):
            self._fail(stream.seq, Unavailable(reason))
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, _Submit):
                command.outbox.put(Unavailable(reason))


def _sum(a: DiffusionStats, b: DiffusionStats) -> DiffusionStats:
    return DiffusionStats(*(x + y for x, y in zip(astuple(a), astuple(b), strict=True)))
