"""The inner loop in figures: the engine against the bare model, the native model against transformers.

OMP_NUM_THREADS=1 python -m benchmarks.kernel [--config CONFIG] [--rounds 5] [--json OUT]

step_overhead                       a step through the engine / forward and head alone, batch 1 (`overhead.py`)
native_over_transformers_block      a block of 32 on 2k tokens of context (`forward.py`)
native_over_transformers_prefill    4k tokens
extra_forwards_per_block            forwards beyond prefill and denoising steps, per finished block but the last
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.forward import Native, Transformers, compare
from benchmarks.overhead import CONFIG, measure, random_model, through_the_engine
from clover_agent.model.protocol import BlockModel

BLOCKS = 4


def extra_forwards(model: BlockModel) -> float:
    calls = through_the_engine(model, 1, BLOCKS * model.spec.block_size)
    extra = [call for call in calls[1:] if not any(block for _, _, block in call.works)]
    return len(extra) / (BLOCKS - 1)


def against_transformers(raw: dict[str, Any], rounds: int) -> dict[str, float]:
    found = dict[str, float]()
    for length, keys in ((2048, {"step": "block"}), (4096, {"prefill": "prefill"})):
        context = torch.randint(4, raw["vocab_size"], (length,)).tolist()
        times = compare(Native(raw, context), Transformers(raw, context), rounds if "step" in keys else 0)
        found |= {f"native_over_transformers_{name}": times[key][0] / times[key][1] for key, name in keys.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = random_model(options.config, "cpu")
    overhead = measure(model, 1, options.rounds, 16)
    result: dict[str, Any] = {
        "config": options.config.stem,
        "step_overhead": overhead["step_overhead_cpu_batch1"],
        **overhead,
        "extra_forwards_per_block": extra_forwards(model),
    }
    with torch.inference_mode():
        result |= against_transformers(json.loads(options.config.read_text()), options.rounds)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
