"""The denoising loop at its plainest: one request, no batch, no thread, no fused commit, the whole prompt at once.

Written from the rules, not from the engine's code: the engine must give the same tokens. One row at a time over the
whole vocabulary, every forward pass anew.
"""

import math
import random
from collections import Counter

import torch

from clover_agent.model.protocol import BlockModel, DenseLogits, Work
from clover_agent.types import SamplingParams


class Reference:
    """One request."""

    def __init__(self, model: BlockModel, prompt: tuple[int, ...], params: SamplingParams) -> None:
        self.model, self.prompt, self.params = model, prompt, params
        self.rng = random.Random(params.seed)
        self.ends = {*(() if params.ignore_eos else model.spec.end_token_ids), *params.stop_token_ids}
        self.state, self.output, self.block = model.new_state(), list[int](), list[int | None]()

    def run(self) -> tuple[list[int], str]:
        """Tokens and finish reason."""
        spec = self.model.spec
        budget = min(self.params.max_tokens, spec.max_context - len(self.prompt))
        self.model.forward([Work(self.state, self.prompt)])
        while True:
            begin = len(self.prompt) + len(self.output)
            size = self.params.block_size or spec.block_size
            size -= begin % size if spec.block_alignment == "absolute" else 0
            self.block = [None] * min(size, spec.max_context - begin)
            live = min(len(self.block), budget - len(self.output))
            end = self.fill(live)
            final = [token for token in self.block if token is not None]
            self.output += final[: live if end is None else end]
            if end is not None:
                return self.output, "stop"
            if len(self.output) >= budget:
                return self.output, "length"
            self.model.forward([Work(self.state, final)])

    def logits(self, block: list[int | None], position: int) -> torch.Tensor:
        ids = [self.model.spec.mask_token_id if token is None else token for token in block]
        logits = self.model.logits(self.model.forward([Work(self.state, (), ids)]), [position])
        assert isinstance(logits, DenseLogits)
        row = logits.values[0].clone()
        row[self.model.spec.mask_token_id] = -math.inf
        return row

    def fill(self, live: int) -> int | None:
        """Unmask a block; where the turn ends, if it ends in it."""
        while True:
            picks = [self.pick(i) for i in range(live) if self.block[i] is None]
            for i, token in self.select(picks):
                self.block[i] = token
            known = [*self.block[:live], None]
            first_hole = known.index(None)
            for i in range(first_hole):
                if known[i] in self.ends:
                    return i
            if first_hole == live:
                return None

    def pick(self, position: int) -> tuple[int, int, float]:
        logits = self.logits(self.block, position)
        token = self.draw(self.edit(logits, position))
        return position, token, float(logits.softmax(-1)[token])

    def select(self, picks: list[tuple[int, int, float]]) -> list[tuple[int, int]]:
        chosen, rivals = list[tuple[int, int]](), list[tuple[float, int, int]]()
        for n, (i, token, confidence) in enumerate(picks):
            early_end = token in self.ends and len(chosen) < n
            if confidence >= self.params.threshold and early_end:
                break
            if confidence >= self.params.threshold:
                chosen.append((i, token))
                if token in self.ends:
                    break
            if not early_end:
                rivals.append((confidence, -i, token))
        if chosen or self.params.fallback == "leftmost":
            return chosen or [picks[0][:2]]
        _, i, token = max(rivals)
        return [(-i, token)]

    def edit(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        scores, params = logits.clone(), self.params
        n, start = len(self.output) + position, max(1, params.length_penalty_start)
        for token, bias in params.logit_bias:
            scores[token] += bias
        for token in self.ends:
            scores[token] += params.length_penalty * math.log1p(max(0, n - start) / start)
            if n < params.min_tokens:
                scores[token] = -math.inf
        for token in {*self.model.spec.end_token_ids} - self.ends:
            scores[token] = -math.inf
        used = Counter([*self.output, *(token for token in self.block if token is not None)])
        for token in {*self.prompt, *used}:
            scores[token] *= params.repetition_penalty ** (-1 if scores[token] > 0 else 1)
        for token, count in used.items():
            scores[token] -= params.presence_penalty + count * params.frequency_penalty
        return scores

    def draw(self, scores: torch.Tensor) -> int:
        params = self.params
        if params.temperature == 0:
            return int(scores.argmax())
        uniform = self.rng.random()
        weights = [(math.exp(float(s - scores.max()) / params.temperature), i) for i, s in enumerate(scores)]
        weights = sorted(((w, i) for w, i in weights if w >= params.min_p), reverse=True)[: params.top_k or None]
        total, before, kept = sum(w for w, _ in weights), 0.0, list[tuple[int, float]]()
        for w, i in weights:
            if before < params.top_p * total or params.top_p == 1:
                kept.append((i, w))
            before += w
        target = uniform * sum(w for _, w in kept)
        for i, w in sorted(kept):
            target -= w
            if target < 0:
                return i
        return max(kept)[0]
