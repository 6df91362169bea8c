"""Cost against context length and batch: one denoising step, one prefill chunk, one restored snapshot.

    OMP_NUM_THREADS=1 python -m benchmarks.scaling [--config CONFIG] [--longest 131072] [--json OUT] [--plot PNG]

Contexts are not computed: a state is restored from a snapshot of random keys and values, which costs the same to read.
The default is a toy of eight layers in the proportions of the real model (three of four are Gated DeltaNet).
Processor time, best of several rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from clover_agent.model.config import ModelConfig
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import Work
from clover_agent.model.state import NativeSnapshot, NativeState
from clover_agent.model.transformer import HybridTransformer

CONFIG = Path(__file__).parent / "configs" / "toy-131k.json"
CHUNK = 256
BATCHES = (1, 2, 4, 8, 16)


def best(call: Callable[[], object], rounds: int = 4) -> float:
    """Milliseconds of processor time."""
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return 1e3 * min(times)


class Bench:
    def __init__(self, raw: dict[str, Any]) -> None:
        transformer = HybridTransformer(ModelConfig.from_dict(raw))
        transformer.initialise()
        self.model = NativeModel(transformer)
        self.block = [self.model.spec.mask_token_id] * self.model.spec.block_size

    def snapshot(self, context: int) -> NativeSnapshot:
        """Of a state that has seen one token, with random keys and values for `context`."""
        state = self.model.new_state()
        self.model.forward([Work(state, [5])])
        seen = state.snapshot()
        shape = (*seen.keys.shape[:3], context, seen.keys.shape[4])
        return NativeSnapshot(context, None, torch.randn(shape), seen.recurrent, seen.last_hidden)

    def state(self, snapshot: NativeSnapshot) -> NativeState:
        state = self.model.new_state()
        state.restore(snapshot)
        return state

    def step(self, states: list[NativeState]) -> None:
        hidden = self.model.forward([Work(state, block=self.block) for state in states])
        self.model.logits(hidden, range(hidden.rows))

    def context(self, length: int) -> dict[str, float]:
        snapshot = self.snapshot(length)
        state, tokens = self.state(snapshot), [5] * CHUNK
        self.step([state])
        return {
            "context": length,
            "step_ms": best(lambda: self.step([state])),
            "prefill_ms_per_token": best(lambda: self.model.forward([Work(self.state(snapshot), tokens)])) / CHUNK,
            "restore_ms": best(lambda: self.state(snapshot)),
            "snapshot_mib": snapshot.nbytes / 2**20,
        }

    def batch(self, size: int, length: int) -> dict[str, float]:
        snapshot = self.snapshot(length)
        states = [self.state(snapshot) for _ in range(size)]
        self.step(states)
        return {"batch": size, "step_ms_per_request": best(lambda: self.step(states)) / size}


@torch.inference_mode()
def measure(raw: dict[str, Any], longest: int) -> dict[str, Any]:
    torch.manual_seed(0)
    bench = Bench(raw)
    lengths = [1024 << i for i in range(8) if 1024 << i <= longest]
    return {
        "contexts": [bench.context(length) for length in lengths],
        "batches": [bench.batch(size, 2048) for size in BATCHES],
    }


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - only who plots needs it

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    lengths = [row["context"] for row in result["contexts"]]
    for key in ("step_ms", "prefill_ms_per_token", "restore_ms"):
        left.plot(lengths, [row[key] for row in result["contexts"]], "o-", label=key)
    left.set(title="against context", xlabel="tokens", xscale="log", yscale="log")
    left.legend()
    right.plot(BATCHES, [row["step_ms_per_request"] for row in result["batches"]], "o-")
    right.set(title="denoising step, ms per request", xlabel="batch", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--longest", type=int, default=131_072)
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--plot", type=Path, help="draw it here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {"config": options.config.stem, **measure(json.loads(options.config.read_text()), options.longest)}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if options.plot:
        plot(result, options.plot)


if __name__ == "__main__":
    main()
