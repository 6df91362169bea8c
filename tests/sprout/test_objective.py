"""The training pass computes exactly what cached inference will compute, and its losses are what they say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from clover_agent.errors import LoadFailed
from clover_agent.model.config import ModelConfig
from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import Work
from clover_agent.model.transformer import HybridTransformer
from clover_agent.sprout.batches import Batch, BatchMaker, Place
from clover_agent.sprout.cross_entropy import linear_cross_entropy
from clover_agent.sprout.objective import check_trainable, training_hidden, training_losses
from clover_agent.sprout.twins import TwinTable

from .examples import BLOCK, CONFIG, END, MASK, random_shards

MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
SHARDS = random_shards(30, seed=4)


def make(scheme: str = "bidirectional", **changes: Any) -> HybridTransformer:
    torch.manual_seed(0)
    raw = {**CONFIG, **changes, "clover": {**CONFIG["clover"], "gdn_in_block": scheme}}
    model = HybridTransformer(ModelConfig.from_dict(raw))
    model.initialise()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.double()


def make_batch(examples: list[int], copies: int = 2) -> Batch:
    maker = BatchMaker(SHARDS, MASK, END, block_size=BLOCK, copies=copies)
    return maker.batch(np.array(examples), Place())


@pytest.mark.parametrize(
    "changes", [{}, {"scheme": "causal"}, MOE, {"layer_types": ["full_attention", "linear_attention"]}], ids=str
)
def test_equals_cached_inference(changes: dict[str, Any]) -> None:
    """Clean rows are a prefill's; a noisy block is a denoising step on the state of the blocks before it."""
    transformer = make(**changes)
    batch = make_batch([0, 3, 5, 11])
    layout = batch.layout
    assert layout.response_blocks > 1
    with torch.no_grad():
        hidden = training_hidden(transformer, batch, transformer.embed_tokens.weight)
    hidden = hidden.view(layout.batch, layout.length, -1)
    model = NativeModel(transformer)
    border = layout.prompt_blocks * BLOCK
    for b in range(layout.batch):
        ids = batch.ids[b].tolist()
        state = model.new_state()
        model.forward([Work(state, ids[int(batch.start[b]) : border])])
        for block in range(layout.response_blocks):
            for copy in range(layout.copies):
                first = layout.clean + (copy * layout.response_blocks + block) * BLOCK
                rows = slice(first, first + BLOCK)
                found = model.forward([Work(state, block=ids[rows])])
                torch.testing.assert_close(found.values, hidden[b, rows], rtol=1e-9, atol=1e-9)
            start = border + block * BLOCK
            model.forward([Work(state, ids[start : start + BLOCK])])


def test_padding_changes_nothing() -> None:
    transformer = make()
    alone, padded = make_batch([7]), make_batch([7, int(SHARDS.prompt_lengths.argmax())])
    assert padded.layout.prompt_blocks > alone.layout.prompt_blocks
    with torch.no_grad():
        first, second = (
            training_hidden(transformer, batch, transformer.embed_tokens.weight).view(
                batch.layout.batch, batch.layout.length, -1
            )[0, int(batch.start[0]) : batch.layout.prompt_blocks * BLOCK]
            for batch in (alone, padded)
        )
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)


def test_losses_are_the_weighted_cross_entropy() -> None:
    transformer = make()
    batch = make_batch([1, 2, 3])
    targets = batch.targets
    losses = training_losses(transformer, batch)
    hidden = training_hidden(transformer, batch, transformer.embed_tokens.weight)
    logits = transformer.head(hidden[targets.rows])
    each = functional.cross_entropy(logits, targets.tokens, reduction="none")
    torch.testing.assert_close(losses.total, (each * targets.weights.double()).sum())
    for kind in range(3):
        torch.testing.assert_close(losses.by_kind[kind], each[targets.kinds == kind].mean())
    masked = targets.kinds == 0
    right = (logits.argmax(-1) == targets.tokens)[masked].double().mean()
    torch.testing.assert_close(losses.accuracy, right)


def test_every_parameter_learns() -> None:
    transformer = make(**MOE)
    table = TwinTable([-1] * 20 + list(range(4, 24)), 16).double()
    free = transformer.embed_tokens.weight
    training_losses(transformer, make_batch(list(range(12))), table(free)).total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in [*transformer.named_parameters(), *table.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_the_gradient_is_that_of_the_loss() -> None:
    """Along a random direction, against finite differences: it passes through every hand-written backward."""
    transformer = make()
    batch = make_batch([1, 6])
    batch = replace(batch, targets=replace(batch.targets, weights=batch.targets.weights.double()))
    parameters = list(transformer.parameters())
    grads = torch.autograd.grad(training_losses(transformer, batch).total, parameters)
    generator = torch.Generator().manual_seed(0)
    directions = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
    slope = sum((g * d).sum() for g, d in zip(grads, directions, strict=True))
    values = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(direction, alpha=step)
            values.append(training_losses(transformer, batch).total)
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.sub_(direction, alpha=step)
    torch.testing.assert_close((values[0] - values[1]) / 2e-6, slope, rtol=1e-5, atol=1e-7)


def test_linear_cross_entropy_is_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(700, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    head = torch.randn(9, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 9, (700,), generator=generator)
    weights = torch.rand(700, generator=generator, dtype=torch.float64)
    total, each, right = linear_cross_entropy(hidden, head, targets, weights)
    expected = functional.cross_entropy(hidden @ head.T, targets, reduction="none")
    torch.testing.assert_close(each, expected)
    assert torch.equal(right, (hidden @ head.T).argmax(-1) == targets)
    ours = torch.autograd.grad(total * 3, (hidden, head))
    theirs = torch.autograd.grad((expected * weights).sum() * 3, (hidden, head))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("clover", [{"logits_shift": 1}, {"commit_attention": "block"}])
def test_what_it_does_not_train_is_refused(clover: dict[str, Any]) -> None:
    config = ModelConfig.from_dict({**CONFIG, "clover": {**CONFIG["clover"], **clover}})
    with pytest.raises(LoadFailed, match="training wants"):
        check_trainable(config)
