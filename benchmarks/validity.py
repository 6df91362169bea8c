"""Many streamed tool-call requests over HTTP: does an invalid or cut call ever leave the gateway?

    python -m benchmarks.validity [--requests 1000] [--concurrency 8] [--model sprout] [--seed 0] [--json OUT]

Requests are drawn at random: one to eight tools from the schema sample in the package, among them hand-written ones
with nested, recursive and loosened schemas, any tool_choice, one or more calls, greedy or not, `max_tokens` from 1 to
400. A small model that guesses is a hard test here: what it writes is seldom what it should. Every emitted call is
checked with a plain jsonschema validator; an answer that was cut must end in "length", and then the last call that had
begun is not there.
"""

import argparse
import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from openai import APIError, AsyncOpenAI
from rich.progress import Progress

from clover_agent.cli.local import local_gateway
from clover_agent.sprout.sample import schemas_path

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}, "required": ["v"]}
HAND_WRITTEN: dict[str, dict[str, Any]] = {
    "edit": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 40},
            "edits": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "new": {"type": ["string", "null"]}},
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
    "chain": {"type": "object", "properties": {"head": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}},
    "pick": {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green", 3, None]},
            "code": {"type": "string", "pattern": "^[A-Z]{2}\\d{3}$"},
        },
        "required": ["colour", "code"],
    },
    "loosened": {
        "type": "object",
        "properties": {"word": {"type": "string", "not": {"const": "no"}}},
        "required": ["word"],
    },
    "ranged": {
        "type": "object",
        "properties": {
            "n": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["n", "day"],
    },
    "nothing": {},
}


def tools() -> list[dict[str, Any]]:
    with gzip.open(schemas_path(), "rt", encoding="utf-8") as lines:
        functions = [json.loads(line)["tool"]["function"] for line in lines]
    functions += [{"name": name, "parameters": schema} for name, schema in HAND_WRITTEN.items()] * 10
    return functions


def draw(rng: random.Random, functions: list[dict[str, Any]]) -> dict[str, Any]:
    """A request body."""
    chosen = {function["name"]: function for function in rng.sample(functions, rng.randint(1, 8))}
    named = {"type": "function", "function": {"name": rng.choice(list(chosen))}}
    return {
        "messages": [
            {"role": "user", "content": f"Use {rng.choice(list(chosen))} with {rng.randint(0, 999)} and 'x y'."}
        ],
        "tools": [{"type": "function", "function": function} for function in chosen.values()],
        "tool_choice": rng.choice(["auto", "required", "required", named]),
        "parallel_tool_calls": rng.random() < 0.5,
        "max_tokens": rng.randint(1, 400),
        "temperature": rng.choice([0, 0, 1]),
        "seed": rng.randint(0, 2**31),
    }


async def ask(client: AsyncOpenAI, model: str, body: Mapping[str, Any]) -> Counter[str]:
    """What one answer was, as counts."""
    calls: dict[int, dict[str, str]] = {}
    finish = None
    try:
        stream: Any = await client.chat.completions.create(model=model, stream=True, **body)
        async for chunk in stream:
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for delta in choice.delta.tool_calls or ():
                    call = calls.setdefault(delta.index, {"name": "", "arguments": ""})
                    call["name"] += delta.function.name or ""
                    call["arguments"] += delta.function.arguments or ""
    except APIError as error:
        return Counter({f"error {error.code}": 1})
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body["tools"]}
    valid = sum(is_valid(schemas, call) for call in calls.values())
    counts = Counter({f"finish {finish}": 1, "calls": len(calls), "invalid calls": len(calls) - valid})
    counts["finish that does not fit"] = int(bool(calls) != (finish == "tool_calls") and finish != "length")
    return counts


def is_valid(schemas: Mapping[str, Any], call: Mapping[str, str]) -> bool:
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False
    return call["name"] in schemas and Draft202012Validator(schemas[call["name"]]).is_valid(arguments)


async def run(url: str, requests: int, concurrency: int, seed: int, progress: Progress) -> Counter[str]:
    rng, functions = random.Random(seed), tools()
    task = progress.add_task("asking", total=requests)
    slots = asyncio.Semaphore(concurrency)
    total: Counter[str] = Counter()
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        model = (await client.models.list()).data[0].id

        async def one(body: Mapping[str, Any]) -> None:
            async with slots:
                total.update(await ask(client, model, body))
                progress.advance(task)

        await asyncio.gather(*(one(draw(rng, functions)) for _ in range(requests)))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--model", default="sprout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, dest="out")
    options = parser.parse_args()
    with local_gateway(options.model) as url, Progress() as progress:
        total = asyncio.run(run(url, options.requests, options.concurrency, options.seed, progress))
    for name, count in sorted(total.items()):
        print(f"{name:28} {count}")
    if options.out:
        options.out.write_text(json.dumps(dict(total), indent=1) + "\n")


if __name__ == "__main__":
    main()
