"""Accuracy against tokens per forward: thresholds, with and without the grammar, over real HTTP.

    python -m benchmarks.decoding --data FILE.jsonl[.gz] [--model sprout] [--limit N] [--json OUT] [--plot PNG]

Every setting answers the same records, greedy, in one run. Without the grammar a call that does not satisfy its schema
is an error; it counts as a wrong call. `--data` defaults to the sample of the training records inside the package,
which shows the speed honestly but not the accuracy; the README's figures are from held-out records.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich.progress import Progress, TaskID

from clover_agent.cli.evaluate import ask_all, make_report, read, spaced
from clover_agent.cli.local import local_gateway
from clover_agent.sprout.sample import records_path

THRESHOLDS = (0.8, 0.9, 0.95, 0.99, 1.0)
FIGURES = ("tool_name", "exact_call", "valid_calls", "unfinished")


def measure(url: str, records: list[Any], extra: dict[str, Any], progress: Progress, task: TaskID) -> dict[str, Any]:
    """One setting over all records."""
    replies = asyncio.run(
        ask_all(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0),
            records,
            model="",
            tool_choice="required" if extra.pop("required") else "auto",
            fields={"max_tokens": 160, "temperature": 0, "extra_body": extra},
            concurrency=8,
            done=lambda: progress.advance(task),
        )
    )
    report = make_report(records, replies)
    calls = [reply.denoising_steps for reply in replies if reply.denoising_steps]
    return {
        **{name: report["all"].get(name) for name in FIGURES},
        "tokens_per_forward": report["tokens_per_forward"],
        "forwards_per_answer": round(sum(calls) / max(1, len(calls)), 2),
        "errors": sum(reply.error is not None for reply in replies),
    }


def run(model: str, data: Path, limit: int) -> list[dict[str, Any]]:
    records = spaced([record for record in read(data) if record["calls"]], limit)
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        task = progress.add_task("answering", total=2 * len(THRESHOLDS) * len(records))
        for grammar in (True, False):
            with local_gateway(model, grammar=grammar) as url:
                for threshold in THRESHOLDS:
                    extra = {"threshold": threshold, "required": grammar}
                    figures = measure(url, records, extra, progress, task)
                    rows.append({"grammar": grammar, "threshold": threshold, "records": len(records), **figures})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'grammar':8} {'threshold':9} {'name':>6} {'exact':>6} {'valid':>6} {'tok/fwd':>8} {'fwd/call':>9} errors")
    for row in rows:
        name, exact, valid = (100 * row[key]["share"] if row[key] else 0.0 for key in FIGURES[:3])
        print(
            f"{'yes' if row['grammar'] else 'no':8} {row['threshold']:<9} {name:6.1f} {exact:6.1f} {valid:6.1f} "
            f"{row['tokens_per_forward'] or 0:8.2f} {row['forwards_per_answer']:9.2f} {row['errors']}"
        )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib  # noqa: PLC0415 - only for the picture

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for grammar, label in ((True, "with the grammar"), (False, "without")):
        mine = [row for row in rows if row["grammar"] is grammar]
        speed = [row["tokens_per_forward"] or 0 for row in mine]
        exact = [100 * row["exact_call"]["share"] for row in mine]
        axes.plot(speed, exact, marker="o", label=label)
        for row, x, y in zip(mine, speed, exact, strict=True):
            axes.annotate(str(row["threshold"]), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="tokens per forward", ylabel="calls exactly right, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=records_path())
    parser.add_argument("--model", default="sprout")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--json", type=Path, dest="out")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows = run(options.model, options.data, options.limit)
    show(rows)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
