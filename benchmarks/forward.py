"""The native model against transformers, same sizes, one thread: a block of 32 tokens at 2k context, prefill.

    OMP_NUM_THREADS=1 python -m benchmarks.forward [--config benchmarks/configs/bench-50m.json] [--context 2048]

Processor time, best of several rounds; both take turns in one process. The native model denoises the block in both
directions and runs the head on all its rows; transformers, which knows no blocks, advances its cache by 32 tokens with
logits. A ratio below 1 means that the native model is faster.
"""

import argparse
import copy
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.cache_utils import DynamicCache

from clover_agent.model.config import ModelConfig
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import Work
from clover_agent.model.transformer import HybridTransformer

CONFIG = Path(__file__).parent / "configs" / "bench-50m.json"


def milliseconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1e3


class Native:
    """One committed context, and what is timed on it."""

    def __init__(self, raw: dict[str, Any], context: list[int]) -> None:
        transformer = HybridTransformer(ModelConfig.from_dict(raw))
        transformer.initialise()
        self.model, self.context = NativeModel(transformer), context
        self.state = self.model.new_state()
        self.block = [self.model.spec.mask_token_id] * self.model.spec.block_size

    def prefill(self) -> float:
        self.state = self.model.new_state()
        return milliseconds(lambda: self.model.forward([Work(self.state, self.context)]))

    def step(self) -> float:
        work = [Work(self.state, block=self.block)]
        return milliseconds(lambda: self.model.logits(self.model.forward(work), range(len(self.block))))

    def commit(self) -> float:
        before = self.state.snapshot()
        spent = milliseconds(lambda: self.model.forward([Work(self.state, self.block)]))
        self.state.restore(before)
        return spent


class Transformers:
    def __init__(self, raw: dict[str, Any], context: list[int]) -> None:
        settings = {name: value for name, value in raw.items() if name not in ("clover", "architectures")}
        self.model: Any = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**settings))
        self.context, self.block = torch.tensor([context]), torch.tensor([[3] * raw["clover"]["block_size"]])
        self.cache: Any = None

    def prefill(self) -> float:
        self.cache = DynamicCache(config=self.model.config)
        options = {"past_key_values": self.cache, "use_cache": True, "logits_to_keep": 1}
        return milliseconds(lambda: self.model(self.context, **options))

    def step(self) -> float:
        cache = copy.deepcopy(self.cache)
        return milliseconds(lambda: self.model(self.block, past_key_values=cache, use_cache=True))


def compare(native: Native, theirs: Transformers, rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of the native model and of transformers: prefill of the context, denoising step, commit (the last
    two only with `rounds`)."""
    prefills = [(native.prefill(), theirs.prefill()) for _ in range(3)]
    found = {"prefill": _best(prefills)}
    if rounds:
        times = [(native.step(), native.commit(), theirs.step()) for _ in range(rounds)]
        found["step"] = _best([(step, theirs_) for step, _, theirs_ in times])
        found["commit"] = _best([(commit, theirs_) for _, commit, theirs_ in times])
    return found


def _best(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return min(a for a, _ in pairs), min(b for _, b in pairs)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    raw = json.loads(options.config.read_text())
    context = torch.randint(4, raw["vocab_size"], (options.context,)).tolist()
    native, theirs = Native(raw, context), Transformers(raw, context)
    print(f"{'':24}{'native':>10}{'transformers':>14}{'ratio':>8}")
    for name, (ours, other) in compare(native, theirs, options.rounds).items():
        print(f"{name:24}{ours:8.1f}ms{other:12.1f}ms{ours / other:8.2f}")


if __name__ == "__main__":
    main()
