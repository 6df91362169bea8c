"""`clover-agent bench`: how fast any OpenAI-compatible endpoint answers, at rising concurrency.

Prompts are random words, no two alike, so that nothing is answered from a cache unless `--shared-tokens` asks for a
common beginning, as agents have. Knows nothing of the model behind the URL.
"""

import asyncio
import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from clover_agent.cli.endpoint import json_object, v1_url
from clover_agent.cli.timing import Summary, TimedClient, summarise

WORDS = ("file", "path", "read", "write", "list", "the", "user", "name", "value", "a", "of", "command", "line", "text")
TOKENS_A_WORD = 1.3  # of common English vocabularies; what was really sent is in the table


def bench(
    *,
    url: Annotated[str, typer.Option(help="Base URL of the endpoint, with or without /v1.")],
    model: Annotated[str, typer.Option(help="Model name; empty = the first that the endpoint lists.")] = "",
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "none",
    concurrency: Annotated[str, typer.Option(help="Requests at once, one level after another.")] = "1,4,16",
    requests: Annotated[int, typer.Option(help="Requests a level; 0 = twice the level, at least 8.", min=0)] = 0,
    prompt_tokens: Annotated[int, typer.Option(help="About so many tokens of its own in each prompt.", min=1)] = 256,
    shared_tokens: Annotated[int, typer.Option(help="About so many that all prompts begin with.", min=0)] = 0,
    max_tokens: Annotated[int, typer.Option(min=1)] = 128,
    stream: Annotated[bool, typer.Option(help="Off for an endpoint that cannot stream.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds without a byte.", min=1)] = 600.0,
    extra_body: Annotated[str, typer.Option(help='More request fields, e.g. {"ignore_eos": true}.')] = "{}",
    seed: Annotated[int, typer.Option()] = 0,
    out: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw tokens/s and time to first token here (PNG).")] = None,
) -> None:
    """Measure an OpenAI-compatible endpoint: time to first token, gaps between pieces, tokens per second."""
    levels = _levels(concurrency)
    fields = {"max_tokens": max_tokens, "temperature": 0, **json_object(extra_body, "--extra-body")}
    counts = {level: requests or max(8, 2 * level) for level in levels}
    writer = _Writer(seed, prompt_tokens, shared_tokens)
    console = Console(stderr=True)

    async def measure() -> dict[int, Summary]:
        name = model or await _first_model(v1_url(url), api_key, timeout)
        load = _Load(counts, writer, {"model": name, **fields})
        async with TimedClient(v1_url(url), api_key, stream=stream, timeout_s=timeout) as client:
            return await _run(client, load, console)

    try:
        results = asyncio.run(measure())
    except _Unusable as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from error
    Console().print(_table(results))
    if out is not None:
        out.write_text(json.dumps({str(level): asdict(found) for level, found in results.items()}, indent=1) + "\n")
    if plot is not None:
        draw(results, plot)
    if any(found.failed for found in results.values()):
        raise typer.Exit(1)


class _Unusable(Exception):
    """The endpoint does not answer even one request."""


class _Writer:
    """Prompts of about so many tokens, each with its own text after what all share."""

    def __init__(self, seed: int, own: int, shared: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - words, not secrets
        self._own = own
        self._shared = self._text(shared)

    def messages(self) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self._shared}] if self._shared else []
        return [*head, {"role": "user", "content": self._text(self._own)}]

    def _text(self, tokens: int) -> str:
        return " ".join(self._rng.choices(WORDS, k=math.ceil(tokens / TOKENS_A_WORD)))


@dataclass(frozen=True, slots=True)
class _Load:
    """What is asked of the endpoint: requests per level of concurrency, and what each of them holds."""

    counts: Mapping[int, int]
    writer: _Writer
    fields: Mapping[str, Any]

    def bodies(self, count: int) -> list[dict[str, Any]]:
        return [{"messages": self.writer.messages(), **self.fields} for _ in range(count)]


async def _run(client: TimedClient, load: _Load, console: Console) -> dict[int, Summary]:
    results = {}
    warm = await client.ask(load.bodies(1)[0])
    if warm.error:
        raise _Unusable(f"No answer: {warm.error}. `clover-agent doctor --url …` tells more.")
    with Progress(console=console) as progress:
        for level, count in load.counts.items():
            task = progress.add_task(f"{level} at once", total=count)
            begun = client.clock()
            timings = await client.together(load.bodies(count), level, partial(progress.advance, task))
            results[level] = summarise(timings, client.clock() - begun)
            for error in sorted({timing.error for timing in timings if timing.error}):
                progress.console.print(f"failed: {error}", highlight=False)
    return results


async def _first_model(base_url: str, api_key: str, timeout_s: float) -> str:
    try:
        async with httpx.AsyncClient(timeout=timeout_s, headers={"Authorization": f"Bearer {api_key}"}) as http:
            response = await http.get(f"{base_url}/models")
            response.raise_for_status()
            return str(response.json()["data"][0]["id"])
    except httpx.TransportError as error:
        raise _Unusable(f"{base_url} cannot be reached: {error}. Is the server running?") from error
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise _Unusable(f"{base_url}/models does not tell a model ({error}). Name one with --model.") from error


def _levels(text: str) -> list[int]:
    try:
        levels = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter("must be numbers with commas, e.g. 1,4,16", param_hint="--concurrency") from error
    if min(levels) < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--concurrency")
    return levels


ROWS = (
    ("output tokens/s", "tokens_per_s", 1, "{:.1f}"),
    ("first token, p50, s", "ttft_p50", 1, "{:.2f}"),
    ("first token, p99, s", "ttft_p99", 1, "{:.2f}"),
    ("between pieces, p50, ms", "gap_p50", 1e3, "{:.0f}"),
    ("between pieces, p99, ms", "gap_p99", 1e3, "{:.0f}"),
    ("each further token, p50, ms", "tpot_p50", 1e3, "{:.1f}"),
    ("prompt from cache, %", "cached_share", 100, "{:.0f}"),
)


def _table(results: Mapping[int, Summary]) -> Table:
    table = Table("requests at once")
    for level in results:
        table.add_column(str(level), justify="right")
    table.add_row("answered / failed", *(f"{x.requests - x.failed} / {x.failed}" for x in results.values()))
    for label, key, unit, form in ROWS:
        values = [getattr(found, key) for found in results.values()]
        table.add_row(label, *("-" if value is None else form.format(unit * value) for value in values))
    return table


def draw(results: Mapping[int, Summary], path: Path) -> None:
    """Tokens per second and time to first token against concurrency. Raises `typer.BadParameter` without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - of the extra "train", and only who plots needs it
    except ImportError as error:
        raise typer.BadParameter("needs matplotlib: pip install matplotlib", param_hint="--plot") from error
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (speed, wait) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    levels = list(results)
    speed.plot(levels, [found.tokens_per_s for found in results.values()], "o-")
    for key, label in (("ttft_p50", "p50"), ("ttft_p99", "p99")):
        wait.plot(levels, [getattr(found, key) for found in results.values()], "o-", label=label)
    wait.legend()
    for axis, title in ((speed, "output tokens/s"), (wait, "time to first token, s")):
        axis.set(title=title, xlabel="requests at once", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=100)
