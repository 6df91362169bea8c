"""This gateway against the recipe that people run (see `servers.py`): same weights, same prompts, one run.

    OMP_NUM_THREADS=1 python -m benchmarks.serving [--json OUT] [--plot PNG] [--clock processor]

Random weights of `bench-50m` (or another --config), one token unmasked a step. Measured: short prompts of their own and
agent requests (all with the same long system text, each with its own question) at concurrency 1, 4 and 16; turns of an
agent with 2k and 8k tokens of tools, cold and warm; how much slower a running answer gets while a long prompt is read.

With `--clock processor`, seconds are the server's processor time: what it would take alone on one core, whatever else
the machine does. That holds with one thread only.

    throughput_ratio_16          output tokens/s, ours / recipe, 16 agent requests at once
    ttft_p50_ratio_16            time to first token, ours / recipe, the same
    …_short                      the same for short prompts that share nothing
    warm_ttft_over_short_prompt  time to first token of an agent's second turn, 8k tokens of tools, / of 64 tokens
    gap_growth_ratio             time between pieces of an answer while a 16k prompt is read, / before
"""

import argparse
import asyncio
import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import Answer, Client, Messages, processor_clock, server
from benchmarks.overhead import CONFIG
from benchmarks.servers import text_parts

CONCURRENCY = (1, 4, 16)
NEW_TOKENS = 32
AGENT_HEAD = 1000
TOOLS = (2000, 8000)
WORDS = ("file", "path", "read", "write", "list", "the", "user", "name", "value", "a", "of", "command", "line", "text")


class Writer:
    """Text of about so many tokens, never the same twice."""

    def __init__(self) -> None:
        self._rng = random.Random(0)
        self._tokenizer, _ = text_parts()

    def text(self, tokens: int) -> str:
        words = " ".join(self._rng.choice(WORDS) for _ in range(tokens))
        return self._tokenizer.decode(self._tokenizer.encode_text(words)[:tokens])

    def short(self) -> Messages:
        return [{"role": "user", "content": self.text(60)}]

    def agent(self, head: str) -> Messages:
        return [{"role": "system", "content": head}, {"role": "user", "content": self.text(40)}]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(answers: list[Answer], seconds: float) -> dict[str, float]:
    gaps = [b - a for answer in answers for a, b in zip(answer.arrivals, answer.arrivals[1:], strict=False)]
    firsts = [answer.first for answer in answers]
    return {
        "tokens_per_s": sum(answer.new_tokens for answer in answers) / seconds,
        "ttft_p50": statistics.median(firsts),
        "ttft_p99": percentile(firsts, 0.99),
        "gap_p50": statistics.median(gaps) if gaps else 0.0,
    }


def sweep(client: Client, writer: Writer, levels: Sequence[int]) -> dict[str, dict[str, float]]:
    """Requests at each level of concurrency; the agent's head is new at each level, so that it is read once there."""
    found = {}
    for level in levels:
        head = writer.text(AGENT_HEAD)
        for kind in ("short", "agent"):
            wishes = [writer.short() if kind == "short" else writer.agent(head) for _ in range(max(level, 2))]
            begun = client.clock()
            answers = asyncio.run(client.together(wishes, level, NEW_TOKENS))
            found[f"{kind}_{level}"] = summary(answers, client.clock() - begun)
    return found


def turns(client: Client, writer: Writer, tools: int) -> dict[str, float]:
    """Two turns of an agent: the second comes back with an answer in other words and one more message."""
    first = writer.agent(writer.text(tools))
    second = [*first, {"role": "assistant", "content": writer.text(30)}, {"role": "user", "content": writer.text(40)}]
    cold, warm = (asyncio.run(client.ask(messages, 2)) for messages in (first, second))
    again = min(asyncio.run(client.ask(writer.short(), 2)).first for _ in range(3))
    return {"cold": cold.first, "warm": warm.first, "short": again, "warm_cached_tokens": warm.cached_tokens}


async def gaps(client: Client, writer: Writer, prompt: int) -> dict[str, float]:
    """A running answer, before and while somebody else's long prompt is read."""
    running = asyncio.create_task(client.ask(writer.short(), 600))
    await asyncio.sleep(0)
    begun = client.clock()
    await client.ask(writer.short(), 16)
    sent = client.clock() - begun
    long = await client.ask([{"role": "user", "content": writer.text(prompt)}], 1)
    answer = await running
    before = [t for t in answer.arrivals if t < sent]
    during = [t for t in answer.arrivals if sent <= t < sent + long.first]
    rates = [(part[-1] - part[0]) / (len(part) - 1) for part in (before, during)]
    return {"before": rates[0], "during": rates[1], "prompt_s": long.first, "pieces": len(during)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    config, levels, sizes = options.config, options.levels, options.tools
    result: dict[str, Any] = {"config": config.stem, "clock": options.clock, "machine": platform.machine()}
    for kind in ("recipe", "ours"):
        writer = Writer()  # the same prompts for both
        with server("benchmarks.servers", kind, "--config", str(config)) as (url, pid):
            clock = processor_clock(pid) if options.clock == "processor" else time.perf_counter
            client = Client(url, kind == "ours", clock)
            asyncio.run(client.ask(writer.short(), 2))  # warm up
            result[kind] = sweep(client, writer, levels)
            result[kind]["turns"] = {tools: turns(client, writer, tools) for tools in sizes}
            if kind == "ours":
                result["gaps"] = asyncio.run(gaps(client, writer, options.long))
    last, tools = levels[-1], sizes[-1]
    for kind, suffix in (("agent", ""), ("short", "_short")):
        mine, theirs = result["ours"][f"{kind}_{last}"], result["recipe"][f"{kind}_{last}"]
        result[f"throughput_ratio_{last}{suffix}"] = mine["tokens_per_s"] / theirs["tokens_per_s"]
        result[f"ttft_p50_ratio_{last}{suffix}"] = mine["ttft_p50"] / theirs["ttft_p50"]
    turn = result["ours"]["turns"][tools]
    result["warm_ttft_over_short_prompt"] = turn["warm"] / turn["short"]
    result["gap_growth_ratio"] = result["gaps"]["during"] / result["gaps"]["before"]
    return result


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - only who plots needs it

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5))
    levels = [level for level in CONCURRENCY if f"agent_{level}" in result["ours"]]
    for kind in ("recipe", "ours"):
        for axis, key in zip(axes, ("tokens_per_s", "ttft_p50"), strict=True):
            axis.plot(levels, [result[kind][f"agent_{level}"][key] for level in levels], "o-", label=kind)
    for axis, title in zip(axes, ("output tokens/s", "time to first token, p50, s"), strict=True):
        axis.set(title=title, xlabel="requests at once", ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--plot", type=Path, help="draw it here")
    parser.add_argument("--levels", type=int, nargs="+", default=CONCURRENCY, help="requests at once")
    parser.add_argument("--tools", type=int, nargs="+", default=TOOLS, help="tokens of an agent's tools")
    parser.add_argument("--long", type=int, default=16000, help="tokens of the long prompt")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="whose time is measured")
    options = parser.parse_args()
    result = measure(options)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.plot:
        plot(result, options.plot)


if __name__ == "__main__":
    main()
