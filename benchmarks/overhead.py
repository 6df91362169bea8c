"""What the engine adds to the model: wall time per denoising step through the engine / bare forward + head.

    python -m benchmarks.overhead [--config benchmarks/configs/bench-50m.json] [--rounds 5] [--json OUT]

A model with random weights answers a batch of requests through the engine, run as in the gateway: with its own
thread, asyncio readers. Every call of the model is recorded; then the same works and rows are given to the model
directly. Both take turns in one process, so that whatever else the machine does hits both. Each step is compared with
its own repetition; the result is the median over all steps of all rounds. The `cpu` figures compare the thread's
processor time instead, which a busy machine does not disturb; they mean something with OMP_NUM_THREADS=1.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from clover_agent.engine import Engine, GenerationRequest
from clover_agent.model.config import ModelConfig
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import BlockModel, Hidden, Logits, ModelSpec, State, Work
from clover_agent.model.transformer import HybridTransformer
from clover_agent.types import SamplingParams

BATCHES = (1, 8)
CONFIG = Path(__file__).parent / "configs" / "bench-50m.json"


@dataclass
class Call:
    """One forward and its head: the works by number of their state, the rows, and the thread's clocks when it began."""

    works: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
    begun: float
    cpu: float
    rows: list[int] = field(default_factory=list)

    @property
    def denoises(self) -> int:
        """Sequences that denoise a block and do nothing else."""
        return sum(1 for _, advance, block in self.works if block and not advance)


class Recorder:
    """A BlockModel that passes everything on and remembers it."""

    def __init__(self, model: BlockModel) -> None:
        self._model = model
        self._states: list[State] = []
        self.calls: list[Call] = []

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    def new_state(self) -> State:
        self._states.append(self._model.new_state())
        return self._states[-1]

    def forward(self, work: Sequence[Work]) -> Hidden:
        numbers = {id(state): number for number, state in enumerate(self._states)}
        works = [(numbers[id(w.state)], tuple(w.advance), tuple(w.block)) for w in work]
        self.calls.append(Call(works, time.perf_counter(), time.thread_time()))
        return self._model.forward(work)

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> Logits:
        self.calls[-1].rows = list(rows)
        return self._model.logits(hidden, rows)


def through_the_engine(model: BlockModel, batch: int, tokens: int) -> list[Call]:
    """Answer `batch` requests of `tokens` new tokens, none ending early."""
    rng = random.Random(batch)
    ordinary = [i for i in range(min(model.spec.vocab_size, 1000)) if i != model.spec.mask_token_id]
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, threshold=1.0)
    recorder = Recorder(model)
    engine = Engine(recorder)

    async def read(number: int) -> None:
        prompt = tuple(rng.choices(ordinary, k=64))
        async for _ in engine.submit(GenerationRequest(str(number), prompt, params)):
            pass

    async def everybody() -> None:
        await asyncio.gather(*(read(number) for number in range(batch)))

    engine.start()
    asyncio.run(everybody())
    engine.close()
    return recorder.calls


def bare(model: BlockModel, calls: Sequence[Call]) -> list[Call]:
    """The same works and rows, one call of the model after another. On a thread of its own, as in the engine: torch's
    worker threads belong to the thread that calls."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(_replay, model, calls).result()


@torch.inference_mode()
def _replay(model: BlockModel, calls: Sequence[Call]) -> list[Call]:
    states: dict[int, State] = {}
    again: list[Call] = []
    for call in calls:
        for number, _, _ in call.works:
            states.setdefault(number, model.new_state())
        works = [Work(states[number], advance, block) for number, advance, block in call.works]
        again.append(Call(call.works, time.perf_counter(), time.thread_time()))
        model.logits(model.forward(works), call.rows)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    for state in states.values():
        state.free()
    return again


def step_times(calls: Sequence[Call], batch: int) -> list[tuple[float, float]]:
    """Wall and thread seconds from each pure denoising step of the whole batch to the next forward."""
    return [
        (after.begun - call.begun, after.cpu - call.cpu)
        for call, after in pairwise(calls)
        if call.denoises == batch == len(call.works)
    ]


def measure(model: BlockModel, batch: int, rounds: int, tokens: int) -> dict[str, float]:
    bare(model, through_the_engine(model, batch, min(tokens, 4)))  # warm up
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for _ in range(rounds):
        calls = through_the_engine(model, batch, tokens)
        pairs += zip(step_times(calls, batch), step_times(bare(model, calls), batch), strict=True)
    return {
        f"step_overhead_batch{batch}": statistics.median(engine[0] / plain[0] for engine, plain in pairs),
        f"step_overhead_cpu_batch{batch}": statistics.median(engine[1] / plain[1] for engine, plain in pairs),
        f"engine_step_ms_batch{batch}": 1000 * statistics.median(engine[0] for engine, _ in pairs),
        f"bare_step_ms_batch{batch}": 1000 * statistics.median(plain[0] for _, plain in pairs),
    }


def random_model(config: Path, device: str) -> NativeModel:
    """The model of a `config.json` with fresh weights."""
    torch.manual_seed(0)
    transformer = HybridTransformer(ModelConfig.from_dict(json.loads(config.read_text())))
    transformer.initialise()
    return NativeModel(transformer.to(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32, help="new tokens per request, one a step")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    model = random_model(options.config, options.device)
    result: dict[str, Any] = {"config": options.config.name, "device": options.device}
    for batch in BATCHES:
        result |= measure(model, batch, options.rounds, options.tokens)
    for name, value in result.items():
        print(f"{name:28} {value:.3f}" if isinstance(value, float) else f"{name:28} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
