"""What a training run shows and leaves: a progress bar or plain lines, log.jsonl, loss.png."""

import importlib.util
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from .checkpoint import Progress as TrainingProgress
from .objective import KINDS


class Report:
    """Averages the figures of `every` steps into a history entry; shows a bar on a terminal, else a line per entry."""

    def __init__(self, console: Console, every: int) -> None:
        self.console, self.every = console, every
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("training", total=1.0)
        self.recent: list[dict[str, float]] = []
        self.since, self.tokens = time.monotonic(), -1

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def step(self, progress: TrainingProgress, figures: dict[str, float], factor: float, used: float) -> None:
        """Take in one step's figures; every so many steps, append an entry to `progress.history`."""
        self.recent.append(figures)
        self.tokens = progress.tokens if self.tokens < 0 else self.tokens
        if len(self.recent) < self.every:
            self.bar.update(self.task, completed=used)
            return
        means = {name: sum(entry[name] for entry in self.recent) / len(self.recent) for name in figures}
        now = time.monotonic()
        speed = (progress.tokens - self.tokens) / max(now - self.since, 1e-9)
        entry = {"step": progress.step, "tokens": progress.tokens, "seconds": progress.seconds}
        entry |= {"level": progress.place.level, "rate": factor, "tokens_per_second": speed, **means}
        progress.history.append(entry)
        self.recent, self.since, self.tokens = [], now, progress.tokens
        losses = " ".join(f"{kind} {means[kind]:.3f}" for kind in KINDS)
        text = f"step {progress.step} {losses} right {means['accuracy']:.3f} {speed:,.0f} tok/s"
        self.bar.update(self.task, completed=used, description=text)
        if not self.console.is_terminal:
            self.console.print(
                f"{100 * used:5.1f} % {text} level {progress.place.level}", highlight=False, soft_wrap=True
            )


def write_log(out: Path, history: list[dict[str, float]]) -> None:
    """log.jsonl, and loss.png where matplotlib is installed (extra `train`)."""
    (out / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in history), encoding="utf-8")
    if history and importlib.util.find_spec("matplotlib"):
        _plot(out / "loss.png", history)


def _plot(path: Path, history: list[dict[str, float]]) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  only trainers have it

    figure = Figure(figsize=(9, 5))
    axes = figure.add_subplot(xlabel="million tokens", ylabel="cross entropy, nats", yscale="log")
    for kind in KINDS:
        axes.plot([entry["tokens"] / 1e6 for entry in history], [entry[kind] for entry in history], label=kind)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
