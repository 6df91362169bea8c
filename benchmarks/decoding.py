"""Accuracy against tokens per forward for the choices that the engine leaves open, over real HTTP.

    python -m benchmarks.decoding --data FILE.jsonl[.gz] [--model sprout] [--limit N] [--only GROUP] \
        [--json OUT] [--plot PNG]

Every setting answers the same records that want calls, greedy, `tool_choice: auto`; the requests differ in nothing but
the setting. Without the grammar a call that does not satisfy its schema is an error; it counts as a wrong call.
`--data` defaults to the sample of the training records inside the package, which shows the speed honestly but not the
accuracy; figures that are published are from held-out records.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from openai import AsyncOpenAI
from rich.progress import Progress, TaskID

from benchmarks.paired import mcnemar, ratio
from clover_agent.cli.evaluate import ask_all, read, spaced
from clover_agent.cli.local import local_gateway
from clover_agent.cli.scoring import figure, score, tokens_per_forward
from clover_agent.loading import EMBEDDED
from clover_agent.settings import EngineSettings
from clover_agent.sprout.sample import records_path

THRESHOLDS = (0.8, 0.9, 0.95, 0.99, 1.0)
BLOCK_SIZES = (8, 16, 64)
PENALTIES: tuple[Mapping[str, float], ...] = (
    {"repetition_penalty": 1.1},
    {"frequency_penalty": 0.5},
    {"presence_penalty": 0.5},
)
LABELS: Mapping[str, str] = {
    "threshold": "grammar, by threshold",
    "no grammar": "no grammar, by threshold",
    "fallback": "no grammar, most confident first, by threshold",
    "block size": "grammar, by block size",
    "penalties": "grammar, penalties",
    "strategy": "grammar, any order",
    "in-block scheme": "grammar, causal in-block scan",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A way to decode. fallback and in_block are the checkpoint's, strategy is the server's, the rest the request's;
    None leaves the checkpoint's own."""

    group: str
    grammar: bool = True
    strategy: Literal["prefix", "any_order"] = "prefix"
    fallback: str | None = None
    in_block: str | None = None
    request: Mapping[str, float] = field(default_factory=lambda: {"threshold": 0.95})

    @property
    def label(self) -> str:
        named = [] if self.grammar else ["no grammar"]
        named += [self.strategy.replace("_", " ")] if self.strategy != "prefix" else []
        named += [value.replace("_", " ") for value in (self.fallback, self.in_block) if value]
        return ", ".join([*named, *(f"{name.replace('_', ' ')} {value:g}" for name, value in self.request.items())])


def settings() -> list[Setting]:
    """All settings, those of one server together."""
    high = {"threshold": 0.95}
    found = [Setting("threshold", request={"threshold": t}) for t in THRESHOLDS]
    found += [Setting("block size", request={**high, "block_size": size}) for size in BLOCK_SIZES]
    found += [Setting("penalties", request={**high, **penalty}) for penalty in PENALTIES]
    found += [Setting("strategy", strategy="any_order", request={"threshold": t}) for t in (0.8, 0.95)]
    found += [Setting("strategy", strategy="any_order", fallback="max_confidence")]
    found += [Setting("in-block scheme", in_block="causal")]
    found += [Setting("no grammar", grammar=False, request={"threshold": t}) for t in THRESHOLDS]
    found += [Setting("penalties, no grammar", grammar=False, request={**high, **penalty}) for penalty in PENALTIES]
    most = {"grammar": False, "fallback": "max_confidence"}
    found += [Setting("fallback", **most, request={"threshold": t}) for t in (0.8, 0.95, 0.99)]  # type: ignore[arg-type]
    return found


def checkpoint(base: Path, setting: Setting, scratch: Path) -> Path:
    """A directory that shares the files of `base` but what the setting changes in the configuration."""
    made = scratch / f"{setting.fallback}-{setting.in_block}"
    if made.exists():
        return made
    made.mkdir()
    for file in base.iterdir():
        (made / file.name).symlink_to(file.resolve())
    for name, change in (
        ("generation_config.json", {"fallback": setting.fallback} if setting.fallback else {}),
        ("config.json", {"gdn_in_block": setting.in_block} if setting.in_block else {}),
    ):
        content = json.loads((base / name).read_text())
        content |= change if name != "config.json" else {"clover": {**content["clover"], **change}}
        (made / name).unlink()
        (made / name).write_text(json.dumps(content))
    return made


def measure(url: str, records: list[Any], setting: Setting, progress: Progress, task: TaskID) -> dict[str, Any]:
    """One setting over all records."""
    replies = asyncio.run(
        ask_all(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=1200),
            records,
            model="",
            tool_choice="auto",
            fields={"max_tokens": 160, "temperature": 0, "extra_body": dict(setting.request)},
            concurrency=8,
            done=lambda: progress.advance(task),
        )
    )
    scores = [score(record, reply) for record, reply in zip(records, replies, strict=True)]
    valid = [bool(found.valid and reply.calls) for found, reply in zip(scores, replies, strict=True)]
    outcomes = {
        "name": [bool(found.name) for found in scores],
        "exact": [bool(found.exact) for found in scores],
        "valid": valid,
        "unfinished": [found.unfinished for found in scores],
    }
    return {
        "label": setting.label,
        **asdict(setting),
        "n": len(records),
        **{name: figure(flags) for name, flags in outcomes.items()},
        "tokens_per_forward": tokens_per_forward(replies),
        "forwards_per_answer": sum(reply.denoising_steps for reply in replies) / len(replies),
        "forced": sum(r.forced_tokens for r in replies) / max(1, sum(r.completion_tokens for r in replies)),
        "forwards": [reply.denoising_steps for reply in replies],
        "outcomes": outcomes,
    }


def run(model: str, records: list[Any], wanted: Sequence[Setting], out: Path | None) -> list[dict[str, Any]]:
    """All settings, written to `out` as they come."""
    rows: list[dict[str, Any]] = []
    base = EMBEDDED if model == "sprout" else Path(model)
    servers = dict.fromkeys((s.grammar, s.strategy, s.fallback, s.in_block) for s in wanted)
    with Progress() as progress, tempfile.TemporaryDirectory() as scratch:
        task = progress.add_task("answering", total=len(wanted) * len(records))
        for server in servers:
            mine = [s for s in wanted if (s.grammar, s.strategy, s.fallback, s.in_block) == server]
            path = checkpoint(base, mine[0], Path(scratch))
            engine = EngineSettings(strategy=mine[0].strategy)
            with local_gateway(str(path), grammar=mine[0].grammar, engine=engine) as url:
                for setting in mine:
                    rows.append(measure(url, records, setting, progress, task))
                    if out:
                        out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """All settings as a Markdown table."""
    lines = [
        "| | right tool | exact call | valid call | tokens per forward | forwards per answer |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name, exact, valid = (
            f"{100 * f['share']:.0f} % [{100 * f['low']:.0f}-{100 * f['high']:.0f}]"
            for f in (row["name"], row["exact"], row["valid"])
        )
        speed = f"{row['tokens_per_forward'] or 0:.2f} | {row['forwards_per_answer']:.1f}"
        lines.append(f"| {row['label']} | {name} | {exact} | {valid} | {speed} |")
    return "\n".join(lines)


def comparisons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each setting against the default, record by record; and the grammar's cost in forwards where both called."""
    by_label = {row["label"]: row for row in rows}
    default = by_label.get("threshold 0.95")
    lines = []
    for row in rows if default else ():
        parts = []
        for what in ("name", "exact"):
            pairs = mcnemar(row["outcomes"][what], default["outcomes"][what])  # type: ignore[index]
            parts.append(f"{what} +{pairs.first_only} -{pairs.second_only} p={pairs.p:.3f}")
        lines.append(f"{row['label']} against the default: {', '.join(parts)} (n={row['n']})")
    for threshold in THRESHOLDS:
        held, bare = (by_label.get(f"{kind}threshold {threshold:g}") for kind in ("", "no grammar, "))
        if held and bare:
            both = [a and b for a, b in zip(held["outcomes"]["valid"], bare["outcomes"]["valid"], strict=True)]
            forwards = [[f for f, ok in zip(row["forwards"], both, strict=True) if ok] for row in (held, bare)]
            share, error = ratio(*forwards)
            found = f"{share:.3f} ± {1.96 * error:.3f} (n={sum(both)})"
            lines.append(f"threshold {threshold:g}, forwards with / without the grammar, both valid: {found}")
    return lines


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Calls exactly right against tokens per forward; the thresholds of a way to decode are joined by a line."""
    import matplotlib  # noqa: PLC0415 - only for the picture

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure_, axes = pyplot.subplots(figsize=(7.2, 4.5))
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        varied = "block_size" if group == "block size" else "threshold"
        joined = len({row["request"][varied] for row in mine}) == len(mine) > 2
        speed = [row["tokens_per_forward"] or 0 for row in mine]
        exact = [100 * row["exact"]["share"] for row in mine]
        axes.plot(speed, exact, marker="o", linestyle="-" if joined else "", label=LABELS.get(group, group))
        for row, x, y in zip(mine, speed, exact, strict=True):
            number = f"{row['request'][varied]:g}" if joined else ""
            axes.annotate(number, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.set(xlabel="tokens per forward", ylabel="calls exactly right, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure_.tight_layout()
    figure_.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=records_path())
    parser.add_argument("--model", default="sprout")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--only", action="append", help="a group of settings or the label of one; may repeat")
    parser.add_argument("--json", type=Path, dest="out")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    records = spaced([record for record in read(options.data) if record["calls"]], options.limit)
    wanted = [s for s in settings() if not options.only or {s.group, s.label} & set(options.only)]
    rows = run(options.model, records, wanted, options.out)
    print(table(rows))
    print("\n".join(comparisons(rows)))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
