"""The training mix, built into shards; and the synthetic evaluation set.

    python -m clover_agent.sprout.dataset build --records FILE… --schemas FILE… --tokenizer FILE --out DIR
    python -m clover_agent.sprout.dataset evalset --schemas FILE… --out FILE.jsonl.gz

An example's difficulty is its number of tools: 0 = one, 1 = up to three, 2 = more. Everything is drawn from the seed.
"""

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from typing import Any

from rich.progress import track

from clover_agent.sprout.corpus import Example, read_records, record_of
from clover_agent.sprout.records import RecordMix
from clover_agent.sprout.rendering import Renderer
from clover_agent.sprout.rewording import broad_words
from clover_agent.sprout.shards import pack, save_shards
from clover_agent.sprout.synthetic import Boxes, Synthesizer
from clover_agent.sprout.toolbox import AgentBox, SchemaBox, split_schemas

SYNTHETIC: Mapping[str, float] = {"single": 44, "pair": 9, "none": 14, "answer": 8, "chat": 2, "history": 4}
RECORDS: Mapping[str, float] = {"snips": 6, "nlued": 6, "tm4": 4, "polyai": 1.5, "sealtools": 1.5, "clinc": 2}
DISTRACTORS = (16, 26, 22, 15, 9, 7, 5)  # weight of 0, 1, … distractor tools
MAX_TOKENS = 448
EVALUATION: Mapping[str, int] = {"single": 400, "pair": 100, "none": 150, "answer": 150}


@dataclass(frozen=True, slots=True)
class MixOptions:
    """What the training mix is made of. `records` and `schemas` are files of the shared formats."""

    records: tuple[Path, ...]
    schemas: tuple[Path, ...]
    count: int
    seed: int = 0


def examples(options: MixOptions) -> Iterator[tuple[Example, int]]:
    """`count` examples of the mix with their difficulty."""
    rng = random.Random(options.seed)
    training, _ = split_schemas([r for path in options.schemas for r in read_records(path)])
    words = broad_words(training)
    synthesizer = Synthesizer(rng, Boxes(SchemaBox(rng, training, words=words), AgentBox(rng, words=words)))
    names = frozenset(tool.name for _, tool in training)
    real = RecordMix(rng, [r for path in options.records for r in read_records(path)], synthesizer, names)
    weights = {**SYNTHETIC, **{source: weight for source, weight in RECORDS.items() if source in real.sources}}
    for kind in rng.choices(list(weights), list(weights.values()), k=options.count):
        distractors = rng.choices(range(len(DISTRACTORS)), DISTRACTORS)[0]
        example = real.example(kind, distractors) if kind in RECORDS else synthesizer.example(kind, distractors)
        yield example, difficulty(example)


def difficulty(example: Example) -> int:
    return 0 if len(example.tools) <= 1 else 1 if len(example.tools) <= 3 else 2


def build(options: MixOptions, tokenizer: Path, out: Path) -> Counter[str]:
    """Write shards, the tokenizer and its neighbour generation_config.json to `out`; too long examples are left out.

    Returns counts by source and kind.
    """
    renderer = Renderer(tokenizer)
    counts: Counter[str] = Counter()
    rows: list[tuple[list[int], list[int], int]] = []
    for example, level in track(examples(options), "building shards", total=options.count):
        tokens = renderer.tokens(example)
        if len(tokens.prompt) + len(tokens.response) > MAX_TOKENS:
            counts["too long"] += 1
            continue
        counts[f"{example.source}/{example.kind}"] += 1
        rows.append((tokens.prompt, tokens.response, level))
    save_shards(out, pack(rows))
    for name in ("tokenizer.json", "generation_config.json"):
        if (tokenizer.parent / name).exists():
            copyfile(tokenizer.parent / name, out / name)
    return counts


def evaluation_set(schemas: Sequence[Mapping[str, Any]], seed: int = 20_000) -> Iterator[Example]:
    """Synthetic requests over schemas, tools and words that the mix never trains on: 2 distractors, no styles held."""
    rng = random.Random(seed)
    _, held_out = split_schemas(schemas)
    boxes = Boxes(SchemaBox(rng, held_out, held_out=True), AgentBox(rng, held_out=True), agent_share=0.2)
    synthesizer = Synthesizer(rng, boxes, held_out=True)
    for kind, count in EVALUATION.items():
        made = 0
        while made < count:
            example = synthesizer.example(kind, 2)
            if example.kind == kind:
                yield replace(example, thought=None, id=f"synthetic/{kind}/{made}")
                made += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="training shards")
    builder.add_argument("--records", type=Path, nargs="+", required=True, help="records in the shared format")
    builder.add_argument("--tokenizer", type=Path, required=True)
    builder.add_argument("--examples", type=int, default=160_000)
    builder.add_argument("--seed", type=int, default=0)
    evalset = commands.add_parser("evalset", help="records of held-out schemas")
    for command in (builder, evalset):
        command.add_argument("--schemas", type=Path, nargs="+", required=True, help="tool schemas, one a line")
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "build":
        options = MixOptions(tuple(arguments.records), tuple(arguments.schemas), arguments.examples, arguments.seed)
        for name, count in sorted(build(options, arguments.tokenizer, arguments.out).items()):
            print(f"{count:8,}  {name}")  # noqa: T201
    else:
        records = [record for path in arguments.schemas for record in read_records(path)]
        with gzip.open(arguments.out, "wt", encoding="utf-8") as out:
            for example in evaluation_set(records):
                out.write(json.dumps(record_of(example), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
