"""Edits of logits before a token is chosen: bias, end-token rules, penalties. They never touch the confidence.

    base    = logits + logit_bias + end-token rules        what grammar-owned positions choose from
    scores  = base with penalties                          what free positions choose from

Soft length penalty: with n new tokens before a position and n > start, every end token there gains
`length_penalty * log1p((n - start) / start)` nats: nothing at first, `0.69 * length_penalty` at twice the start.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clover_agent.types import SamplingParams


class History:
    """What the penalties of one request look at. `seen` bool [V]: ids of prompt and committed output; `counts`
    float32 [V]: how often an id stands in the committed output."""

    def __init__(self, prompt_ids: Sequence[int], vocab_size: int) -> None:
        self.seen = torch.zeros(vocab_size, dtype=torch.bool)
        self.counts = torch.zeros(vocab_size, dtype=torch.float32)
        self.seen[torch.tensor(prompt_ids, dtype=torch.long)] = True

    def extend(self, ids: Sequence[int]) -> None:
        """Count the tokens of a block that was committed."""
        _count(self.seen, self.counts, ids)

    def with_open(self, ids: Sequence[int], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids seen so far, those of the open block included, and their counts in the output: int64 and float32
        [k], on `device`."""
        if self.counts.device != device:
            self.seen, self.counts = self.seen.to(device), self.counts.to(device)
        seen, counts = self.seen.clone(), self.counts.clone()
        _count(seen, counts, ids)
        index = seen.nonzero().squeeze(1)
        return index, counts[index]


def _count(seen: torch.Tensor, counts: torch.Tensor, ids: Sequence[int]) -> None:
    index = torch.tensor(ids, dtype=torch.long, device=counts.device)
    seen[index] = True
    counts.index_add_(0, index, torch.ones_like(index, dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class Query:
    """What the sampler must know of one sequence, whose live rows are consecutive in the logits.

    params       as requested
    ordinals     new tokens before the position of each row; their number is the number of rows
    uniforms     one draw from [0, 1) per row; empty when greedy
    history      None unless a penalty is on
    open_ids     tokens that stand in the current block
    end_ids      ids that end the turn
    banned_ids   ids that are never chosen
    candidates   the most probable tokens of each row are wanted (a grammar holds)
    """

    params: SamplingParams
    ordinals: Sequence[int]
    uniforms: Sequence[float] = ()
    history: History | None = None
    open_ids: Sequence[int] = ()
    end_ids: tuple[int, ...] = ()
    banned_ids: tuple[int, ...] = ()
    candidates: bool = False

    @property
    def edits_base(self) -> bool:
        params = self.params
        return bool(
            params.logit_bias
            or self.banned_ids
            or params.min_tokens > self.ordinals[0]
            or (params.length_penalty and self.ordinals[-1] > params.length_penalty_start)
        )

    @property
    def plain(self) -> bool:
        """The most probable token is the choice: greedy, no edits."""
        return not self.edits_base and self.history is None and not samples(self.params)


def samples(params: SamplingParams) -> bool:
    """Whether tokens are drawn. A temperature too small to divide by means greedy."""
    return params.temperature >= 1e-5


def penalises(params: SamplingParams) -> bool:
    """Whether a request needs a `History`."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def length_bonus(params: SamplingParams, new_tokens: int) -> float:
    """Nats that an end token gains when `new_tokens` stand before it (formula above)."""
    start = max(1, params.length_penalty_start)
    return params.length_penalty * math.log1p(max(0, new_tokens - start) / start)


def base_logits(values: torch.Tensor, queries: Sequence[Query]) -> torch.Tensor:
    """Logits [n, V] with bias and end-token rules; `values` itself where there are none, never written to."""
    if not any(query.edits_base for query in queries):
        return values
    base = values.clone()
    start = 0
    for query in queries:
        rows = base[start : start + len(query.ordinals)]
        start += len(query.ordinals)
        if not query.edits_base:
            continue
        ids, bias = zip(*query.params.logit_bias, strict=True) if query.params.logit_bias else ((), ())
        _add(rows, ids, rows.new_tensor(bias).expand(len(rows), -1))
        _add(rows, query.banned_ids, rows.new_full((len(rows), 1), -math.inf).expand(-1, len(query.banned_ids)))
        at_end = [
            -math.inf if ordinal < query.params.min_tokens else length_bonus(query.params, ordinal)
            for ordinal in query.ordinals
        ]
        _add(rows, query.end_ids, rows.new_tensor(at_end)[:, None].expand(-1, len(query.end_ids)))
    return base


def _add(rows: torch.Tensor, ids: Sequence[int], amount: torch.Tensor) -> None:
    if ids:
        rows.index_add_(1, torch.tensor(ids, dtype=torch.long, device=rows.device), amount)


def penalised(base: torch.Tensor, queries: Sequence[Query]) -> torch.Tensor:
    """`base` [n, V] with repetition, presence and frequency penalties; `base` itself where there are none.

    Repetition divides positive and multiplies negative logits of ids in prompt or output, as transformers does;
    presence and frequency subtract for ids in the output, as OpenAI documents.
    """
    if all(query.history is None for query in queries):
        return base
    scores = base.clone()
    start = 0
    for query in queries:
        rows = scores[start : start + len(query.ordinals)]
        start += len(query.ordinals)
        if query.history is not None:
            _penalise(rows, query.params, *query.history.with_open(query.open_ids, base.device))
    return scores


def _penalise(rows: torch.Tensor, params: SamplingParams, ids: torch.Tensor, counts: torch.Tensor) -> None:
    """Edit the columns `ids` [k] of `rows` [n, V]; `counts` [k] is how often each stands in the output."""
    part = rows.index_select(1, ids)
    part = torch.where(part > 0, part / params.repetition_penalty, part * params.repetition_penalty)
    part -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    rows.index_copy_(1, ids, part)
