"""The engine on the real model (random weights, float64) against the reference, in batches and chunks."""

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import Engine, EngineOptions, GenerationRequest
from clover_agent.model.native import NativeModel
from clover_agent.types import SamplingParams, Step
from tests.engine.strategies import bounded, sampling
from tests.model.builders import MOE, raw_config, tiny_model
from tests.reference import Reference

TOKENS = st.integers(0, 60)
WISHES = st.lists(
    st.tuples(
        sampling(max_tokens=st.integers(1, 12), threshold=st.sampled_from([0.03, 0.05, 0.95])),
        st.lists(TOKENS, min_size=1, max_size=30).map(tuple),
    ),
    min_size=1,
    max_size=3,
)
SWITCHES: dict[str, dict[str, Any]] = {
    "causal": {},
    "bidirectional": {"gdn_in_block": "bidirectional"},
    "shifted": {"logits_shift": 1},
    "absolute": {"block_alignment": "absolute", "commit_attention": "block"},
}


def answers(model: NativeModel, wishes: list[tuple[SamplingParams, tuple[int, ...]]], chunk: int) -> list[object]:
    async def one(engine: Engine, name: str, params: SamplingParams, prompt: tuple[int, ...]) -> object:
        steps: list[Step] = [step async for step in engine.submit(GenerationRequest(name, prompt, params))]
        return [token for step in steps for token in step.tokens], steps[-1].finish

    async def everybody(engine: Engine) -> list[object]:
        return await asyncio.gather(*(one(engine, str(i), *wish) for i, wish in enumerate(wishes)))

    engine = Engine(model, EngineOptions(max_num_seqs=2, prefill_tokens=chunk))
    engine.start()
    try:
        return asyncio.run(everybody(engine))
    finally:
        engine.close()


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
@bounded(5)
@given(WISHES, st.sampled_from([8, 16, 2048]))
def test_the_engine_equals_the_reference(
    switches: dict[str, Any], wishes: list[tuple[SamplingParams, tuple[int, ...]]], chunk: int
) -> None:
    model = tiny_model(**switches)
    if model.config.commit_attention == "block":  # commits see whole blocks of the checkpoint's size
        wishes = [(params, prompt) for params, prompt in wishes if params.block_size is None]
    expected = []
    with torch.inference_mode():
        for params, prompt in wishes:
            expected.append(Reference(model, prompt, params).run())
    assert answers(model, wishes, chunk) == expected


def test_experts_too() -> None:
    model = tiny_model(raw_config(**MOE))
    wishes: list[tuple[SamplingParams, tuple[int, ...]]] = [
        (SamplingParams(max_tokens=12, seed=s, temperature=0.5 * s), (7, 8, 9 + s)) for s in range(3)
    ]
    with torch.inference_mode():
        expected = [Reference(model, prompt, params).run() for params, prompt in wishes]
    assert answers(model, wishes, 2048) == expected
