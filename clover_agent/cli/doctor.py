"""`clover-agent doctor`: what works and what does not at an OpenAI-compatible endpoint, and what to do about it."""

import json
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clover_agent.doctor import Endpoint, Result, as_dicts, examine, exit_code

COLOURS = {"pass": "green", "fail": "bold red", "skipped": "yellow"}


def doctor(
    url: Annotated[str, typer.Option(help="Base URL of the endpoint, with or without /v1.")],
    model: Annotated[str | None, typer.Option(help="Model name. Default: the first that the endpoint lists.")] = None,
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY", show_default=False)] = "none",
    timeout: Annotated[float, typer.Option(help="Seconds for one request.", min=0.1)] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Check an OpenAI-compatible endpoint stage by stage, as an agent would use it. Exit code 1 if a stage fails."""
    with Endpoint(url, api_key, timeout) as endpoint:
        results = list(examine(endpoint, model))
    if as_json:
        typer.echo(json.dumps(as_dicts(results), indent=1, ensure_ascii=False))
    else:
        show(results, Console())
    raise typer.Exit(exit_code(results))


def show(results: Iterable[Result], console: Console) -> None:
    """The results as a table, and below it what to do."""
    table = Table("stage", "result", "seen", box=None, pad_edge=False)
    advised: list[Result] = []
    for result in results:
        colour = COLOURS[result.status]
        table.add_row(result.stage, f"[{colour}]{result.status}[/]", _plain(result.detail))
        if result.status == "fail" and result.advice:
            advised.append(result)
    console.print(table)
    for result in advised:
        console.print(f"\n[bold]{result.stage}[/]: {_plain(result.advice)}")


def _plain(text: str) -> str:
    """Text of a server, without control characters and without rich's markup."""
    return "".join(char if char.isprintable() else " " for char in text).replace("[", "\\[")
