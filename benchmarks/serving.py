"""This gateway against the recipe that people run (see `servers.py`): same weights, same prompts, one run.

    OMP_NUM_THREADS=1 python -m benchmarks.serving [--json OUT] [--plot PNG] [--clock processor]

Random weights of `bench-50m` (or another --config), one token unmasked a step. Measured: short prompts of their own and
agent requests (all with the same 2,000 tokens of system text, each with its own question) at concurrency 1, 4 and 16;
turns of an agent with 2k and 8k tokens of tools, cold and warm; how much slower a running answer gets while a long
prompt is read.

With `--clock processor`, seconds are the server's processor time: what it would take alone on one core, whatever else
the machine does. That holds with one thread only.

    throughput_ratio_16          output tokens/s, ours / recipe, 16 agent requests at once
    ttft_p50_ratio_16            time to first token, ours / recipe, the same
    …_short                      the same for short prompts that share nothing
    warm_ttft_over_short_prompt  time to first token of an agent's second turn, 8k tokens of tools, / of 64 tokens
    gap_growth_ratio             time between pieces of an answer while a 16k prompt is read, / alone
"""

import argparse
import asyncio
import json
import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.load import processor_clock, server
from benchmarks.overhead import CONFIG
from benchmarks.servers import text_parts
from clover_agent.cli.timing import TimedClient, Timing, summarise

CONCURRENCY = (1, 4, 16)
NEW_TOKENS = 32
AGENT_HEAD = 2000
TOOLS = (2000, 8000)
WORDS = ("file", "path", "read", "write", "list", "the", "user", "name", "value", "a", "of", "command", "line", "text")


class Prompts:
    """Requests with text of about so many tokens, never the same twice."""

    def __init__(self) -> None:
        self._rng = random.Random(0)
        self._tokenizer, _ = text_parts()

    def text(self, tokens: int) -> str:
        words = " ".join(self._rng.choice(WORDS) for _ in range(tokens))
        return self._tokenizer.decode(self._tokenizer.encode_text(words)[:tokens])

    def user(self, tokens: int) -> dict[str, str]:
        return {"role": "user", "content": self.text(tokens)}

    def agent(self, head: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": head}, self.user(40)]


def request(messages: Sequence[Mapping[str, str]], max_tokens: int) -> dict[str, Any]:
    rest = {"temperature": 0, "ignore_eos": True, "chat_template_kwargs": {"enable_thinking": False}}
    return {"model": "bench", "messages": messages, "max_tokens": max_tokens, **rest}


async def ask(client: TimedClient, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Timing:
    timing = await client.ask(request(messages, max_tokens))
    if timing.error:
        raise RuntimeError(timing.error)
    return timing


async def sweep(client: TimedClient, prompts: Prompts, levels: Sequence[int]) -> dict[str, dict[str, float]]:
    """Requests at each level of concurrency; the agent's head is new at each level, so that it is read once there."""
    found = {}
    for level in levels:
        head = prompts.text(AGENT_HEAD)
        for kind in ("short", "agent"):
            wishes = [[prompts.user(60)] if kind == "short" else prompts.agent(head) for _ in range(max(level, 2))]
            begun = client.clock()
            answers = await client.together([request(messages, NEW_TOKENS) for messages in wishes], level)
            found[f"{kind}_{level}"] = asdict(summarise(answers, client.clock() - begun))
            print(f"{kind} x {level}: {found[f'{kind}_{level}']}", file=sys.stderr)
            if found[f"{kind}_{level}"]["failed"]:
                raise RuntimeError(next(answer.error for answer in answers if answer.error))
    return found


async def turns(client: TimedClient, prompts: Prompts, tools: int) -> dict[str, float]:
    """Two turns of an agent: the second comes back with an answer in other words and one more message."""
    first = prompts.agent(prompts.text(tools))
    second = [*first, {"role": "assistant", "content": prompts.text(30)}, prompts.user(40)]
    cold, warm = [await ask(client, messages, 2) for messages in (first, second)]
    short = [(await ask(client, [prompts.user(60)], 2)).first for _ in range(3)]
    return {"cold": cold.first, "warm": warm.first, "short": min(short), "warm_cached_tokens": warm.cached_tokens}


async def gaps(client: TimedClient, prompts: Prompts, prompt: int) -> dict[str, float]:
    """A running answer, alone and then while somebody else's long prompt is read."""
    begun, settled = client.clock(), asyncio.Event()
    arrivals: list[float] = []

    def watch(timing: Timing) -> None:
        nonlocal arrivals
        arrivals = timing.arrivals
        if len(arrivals) >= 24:
            settled.set()

    answer = asyncio.create_task(client.ask(request([prompts.user(60)], 900), watch))
    await settled.wait()
    sent = client.clock() - begun
    long = await ask(client, [prompts.user(prompt)], 1)
    read = client.clock() - begun
    answer.cancel()  # hangs up
    alone = [t for t in arrivals if t < sent]
    during = [t for t in arrivals if sent <= t < read]
    rates = [(part[-1] - part[0]) / (len(part) - 1) for part in (alone, during)]
    return {"alone": rates[0], "during": rates[1], "prompt_s": long.first, "pieces": len(during)}


async def measure_server(url: str, pid: int, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    clock = processor_clock(pid) if options.clock == "processor" else time.perf_counter
    prompts = Prompts()  # the same for both
    async with TimedClient(f"{url}/v1", stream=kind == "ours", clock=clock) as client:
        await ask(client, [prompts.user(60)], 2)  # warm up
        result: dict[str, Any] = await sweep(client, prompts, options.levels)
        result["turns"] = {tools: await turns(client, prompts, tools) for tools in options.tools}
        if kind == "ours":
            result["gaps"] = await gaps(client, prompts, options.long)
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"config": options.config.stem, "clock": options.clock, "machine": platform.machine()}
    for kind in ("recipe", "ours"):
        print(f"== {kind}", file=sys.stderr)
        with server("benchmarks.servers", kind, "--config", str(options.config)) as (url, pid):
            result[kind] = asyncio.run(measure_server(url, pid, kind, options))
    last, tools = options.levels[-1], options.tools[-1]
    for kind, suffix in (("agent", ""), ("short", "_short")):
        mine, theirs = result["ours"][f"{kind}_{last}"], result["recipe"][f"{kind}_{last}"]
        result[f"throughput_ratio_{last}{suffix}"] = mine["tokens_per_s"] / theirs["tokens_per_s"]
        result[f"ttft_p50_ratio_{last}{suffix}"] = mine["ttft_p50"] / theirs["ttft_p50"]
    turn = result["ours"]["turns"][tools]
    result["warm_ttft_over_short_prompt"] = turn["warm"] / turn["short"]
    result["gap_growth_ratio"] = result["ours"]["gaps"]["during"] / result["ours"]["gaps"]["alone"]
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
