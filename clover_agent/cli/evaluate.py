"""`clover-agent evaluate`: score any OpenAI-compatible endpoint on tool-calling records.

Every record is one chat completion: its tools and messages go out, the reply is compared with the right calls or the
right answer. Knows nothing of the model behind the URL; `scoring` judges.
"""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from openai import AsyncOpenAI, OpenAIError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from clover_agent.cli.endpoint import json_object, v1_url
from clover_agent.cli.scoring import Record, Reply, Score, kind_of, score, summarise, tokens_per_forward

ToolChoice = Literal["auto", "required"]
COLUMNS = ("tool_name", "exact_call", "arguments", "valid_calls", "refusal_recall", "answer_has_values", "unfinished")


def evaluate(
    *,
    url: Annotated[str, typer.Option(help="Base URL of the endpoint, with or without /v1.")],
    data: Annotated[Path, typer.Option(help="Records, .jsonl or .jsonl.gz.", exists=True, dir_okay=False)],
    model: Annotated[str, typer.Option(help="Model name; empty = the first that the endpoint lists.")] = "",
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "none",
    limit: Annotated[int, typer.Option(help="Use only so many records (evenly spaced); 0 = all.", min=0)] = 0,
    source: Annotated[list[str] | None, typer.Option(help="Only records of this source; may repeat.")] = None,
    tool_choice: Annotated[str, typer.Option(help="auto, or required (records with calls only).")] = "auto",
    max_tokens: Annotated[int, typer.Option(min=1)] = 256,
    concurrency: Annotated[int, typer.Option(min=1)] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds per request.", min=1)] = 300.0,
    extra_body: Annotated[str, typer.Option(help="More request fields, as a JSON object.")] = "{}",
    out: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Score an OpenAI-compatible endpoint on tool-calling records, with 95 % intervals."""
    if tool_choice not in ("auto", "required"):
        raise typer.BadParameter("must be auto or required", param_hint="--tool-choice")
    extra = json_object(extra_body, "--extra-body")
    records: list[Record] = [r for r in read(data) if not source or r["source"] in source]
    if tool_choice == "required":
        records = [record for record in records if record.get("calls")]
    records = spaced(records, limit)
    if not records:
        raise typer.BadParameter("no record is left to score", param_hint="--data")
    console = Console()
    fields = {"max_tokens": max_tokens, "temperature": 0, "extra_body": extra}
    client = AsyncOpenAI(base_url=v1_url(url), api_key=api_key, timeout=timeout, max_retries=2)
    with Progress(console=console) as progress:
        task = progress.add_task("scoring", total=len(records))
        replies = asyncio.run(
            ask_all(
                client,
                records,
                model=model,
                tool_choice=tool_choice,
                fields=fields,
                concurrency=concurrency,
                done=lambda: progress.advance(task),
            )
        )
    report = make_report(records, replies)
    _print(console, report)
    if out is not None:
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file. Raises `typer.BadParameter` if it is damaged."""
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise typer.BadParameter(f"not a readable JSON lines file: {error}", param_hint="--data") from error


def spaced(records: Sequence[Record], limit: int) -> list[Record]:
    """`limit` of the records, evenly spaced; all for 0."""
    if not limit or limit >= len(records):
        return list(records)
    return [records[index * len(records) // limit] for index in range(limit)]


async def ask_all(
    client: AsyncOpenAI,
    records: Sequence[Record],
    *,
    model: str,
    tool_choice: str,
    fields: Mapping[str, Any],
    concurrency: int,
    done: Callable[[], None],
) -> list[Reply]:
    """The replies to all records, in order, at most `concurrency` requests at a time."""
    async with client:
        name = model or (await client.models.list()).data[0].id
        slots = asyncio.Semaphore(concurrency)

        async def one(record: Record) -> Reply:
            async with slots:
                reply = await ask(client, record, name, tool_choice, fields)
            done()
            return reply

        return list(await asyncio.gather(*(one(record) for record in records)))


async def ask(client: AsyncOpenAI, record: Record, model: str, tool_choice: str, fields: Mapping[str, Any]) -> Reply:
    """One completion. A failed request is a reply with `error`."""
    tools = {"tools": record["tools"], "tool_choice": tool_choice} if record["tools"] else {}
    began = time.monotonic()
    try:
        answer = await client.chat.completions.create(
            model=model, messages=[wire_message(m) for m in record["messages"]], **tools, **fields
        )
    except OpenAIError as error:
        return Reply(error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    choice, usage = answer.choices[0], answer.usage
    diffusion = ((usage.model_extra or {}).get("diffusion") if usage else None) or {}
    calls = [call for call in choice.message.tool_calls or () if call.type == "function"]
    return Reply(
        calls=tuple((call.function.name, call.function.arguments) for call in calls),
        content=choice.message.content or "",
        finish=choice.finish_reason,
        completion_tokens=usage.completion_tokens if usage else 0,
        denoising_steps=diffusion.get("denoising_steps", 0),
        forced_tokens=diffusion.get("forced_tokens", 0),
        seconds=time.monotonic() - began,
    )


def wire_message(message: Mapping[str, Any]) -> Any:
    """A record's message as OpenAI's API wants it: arguments as JSON text."""
    if not message.get("tool_calls"):
        return dict(message)
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}


def make_report(records: Sequence[Record], replies: Sequence[Reply]) -> dict[str, Any]:
    """Figures over all records, by source and by kind, and each record's outcome."""
    scores = [score(record, reply) for record, reply in zip(records, replies, strict=True)]
    return {
        "all": summarise(scores),
        "by_source": _grouped(scores, lambda s: s.source),
        "by_kind": _grouped(scores, lambda s: s.kind),
        "tokens_per_forward": tokens_per_forward(replies),
        "mean_seconds": round(sum(reply.seconds for reply in replies) / len(replies), 3),
        "outcomes": [
            {
                "id": record.get("id"),
                "kind": kind_of(record),
                "name": judged.name,
                "exact": judged.exact,
                "calls": [{"name": name, "arguments": arguments} for name, arguments in reply.calls],
                "content": reply.content,
                "finish": reply.finish,
                "error": reply.error,
            }
            for record, reply, judged in zip(records, replies, scores, strict=True)
        ],
    }


def _grouped(scores: Sequence[Score], key: Callable[[Score], str]) -> dict[str, Any]:
    names = sorted({key(item) for item in scores})
    return {name: summarise([item for item in scores if key(item) == name]) for name in names}


def _print(console: Console, report: Mapping[str, Any]) -> None:
    table = Table("group", "records", *COLUMNS)
    groups = {"all": report["all"], **report["by_source"], **{f"kind {k}": v for k, v in report["by_kind"].items()}}
    for name, group in groups.items():
        table.add_row(name, str(group["records"]), *(_cell(group.get(column)) for column in COLUMNS))
    console.print(table)
    console.print(f"tokens per forward: {report['tokens_per_forward'] or 'not reported'}; ", end="")
    console.print(f"mean seconds per request: {report['mean_seconds']}")


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{100 * found['share']:.0f} % [{100 * found['low']:.0f}–{100 * found['high']:.0f}] n={found['n']}"
