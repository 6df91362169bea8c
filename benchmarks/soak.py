"""Mixed load for a while: does memory stay flat, does anything leak?

    python -m benchmarks.soak [--minutes 5] [--cache 4MiB] [--json OUT]

A gateway with sprout in a process of its own, its prefix cache small enough to be full within the first minute. Eight
clients send conversations that grow turn by turn, with and without tools; every fifth hangs up half way, every seventh
request is broken. Sampled each second: the server's resident memory. At the end the server must answer, have nothing
running, and its memory in the last third of the time must be that of the first third.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load import server

CLIENTS = 8
WORDS = ("file", "path", "read", "write", "list", "the", "user", "name", "value", "command", "line", "text", "delete")
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
BROKEN: list[dict[str, Any]] = [
    {"messages": []},
    {"messages": [{"role": "user", "content": "x " * 9000}]},
    {"messages": [{"role": "user", "content": "x"}], "temperature": "hot"},
    {"messages": [{"role": "user", "content": "x"}], "logit_bias": {"99999999": 1}},
]


class Load:
    """One client after another request; `outcomes` counts how they ended."""

    def __init__(self, url: str, until: float) -> None:
        self.url = f"{url}/v1/chat/completions"
        self.until = until
        self.outcomes: Counter[str] = Counter()

    async def client(self, number: int) -> None:
        rng = random.Random(number)
        history: list[dict[str, Any]] = []
        async with httpx.AsyncClient(timeout=300) as http:
            while time.monotonic() < self.until:
                chance = rng.randrange(35)
                if chance % 7 == 0:
                    response = await http.post(self.url, json={"model": "sprout", **rng.choice(BROKEN)})
                    self.outcomes[f"refused {response.status_code}"] += 1
                    continue
                if len(history) > 8 or not history:
                    history = [{"role": "system", "content": f"You are agent {rng.randrange(5)}. " * 20}]
                history.append({"role": "user", "content": " ".join(rng.choices(WORDS, k=20))})
                body = {"model": "sprout", "messages": history, "max_tokens": rng.choice([8, 32, 64]), "stream": True}
                body |= {"tools": [TOOL]} if chance % 2 else {}
                history.append({"role": "assistant", "content": await self.stream(http, body, chance % 5 == 0)})

    async def stream(self, http: httpx.AsyncClient, body: dict[str, Any], hang_up: bool) -> str:
        said = ""
        async with http.stream("POST", self.url, json=body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                part = json.loads(line.removeprefix("data: "))
                if "error" in part:
                    self.outcomes[f"error {part['error']['code']}"] += 1
                    return said
                said += "".join(choice["delta"].get("content") or "" for choice in part["choices"])
                if hang_up and said:
                    self.outcomes["hung up"] += 1
                    return said
        self.outcomes[f"answered {response.status_code}"] += 1
        return said


def resident(pid: int) -> float:
    """MiB."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def watch(pid: int, until: float) -> list[float]:
    samples = []
    while time.monotonic() < until:
        samples.append(resident(pid))
        await asyncio.sleep(1)
    return samples


def metric(url: str, name: str) -> float:
    text = httpx.get(f"{url}/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"clover:{name}{{"))


def state_of(url: str) -> dict[str, Any]:
    return {
        "still_running": metric(url, "num_requests_running") + metric(url, "num_requests_waiting"),
        "cached_tokens": metric(url, "prefix_cache_hits_total"),
        "looked_up_tokens": metric(url, "prefix_cache_queries_total"),
        "healthy": httpx.get(f"{url}/health").is_success,
    }


async def soak(url: str, pid: int, minutes: float, warm_up_s: float) -> dict[str, Any]:
    until = time.monotonic() + 60 * minutes + warm_up_s
    load = Load(url, until)
    watcher = asyncio.create_task(watch(pid, until))
    await asyncio.gather(*(load.client(n) for n in range(CLIENTS)))
    samples = (await watcher)[int(warm_up_s) :]
    third = max(1, len(samples) // 3)
    first, last = statistics.mean(samples[:third]), statistics.mean(samples[-third:])
    return {
        "minutes": minutes,
        "outcomes": dict(load.outcomes),
        "resident_mib_first_third": first,
        "resident_mib_last_third": last,
        "growth": last / first - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="after a minute of warming up")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds")
    parser.add_argument("--cache", default="4MiB", help="limit of the prefix cache")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    flags = ("serve", "--model", "sprout", "--prefix-cache-bytes", options.cache, "--log-level", "warning")
    with server("clover_agent", *flags) as (url, pid):
        result = asyncio.run(soak(url, pid, options.minutes, options.warm_up))
        time.sleep(2)  # what was hung up on is noticed at the next step
        result |= state_of(url)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
