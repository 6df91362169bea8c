"""From logits to proposals: the token chosen for each live row, its confidence, and the candidates for a grammar.

Pure functions of tensors and `Query` values; knows no blocks, grammars or threads. The vocabulary stays on the
device: per row a choice, a confidence and at most K candidates come back to Python, a dense row only when asked for.
Rows never influence one another, so a request's tokens do not depend on its batch-mates.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from clover_agent.engine.processors import Query, base_logits, penalised, samples
from clover_agent.engine.vocabulary import best, nucleus, pick, top
from clover_agent.model.protocol import DenseLogits, Logits, SparseLogits
from clover_agent.types import SamplingParams

_LEAST_LIKELY = -1e30  # a logit that stays finite when divided by a temperature


@dataclass(frozen=True, slots=True)
class Proposals:
    """One sequence's rows, in order.

    choice       id after penalties, bias, temperature and filters
    confidence   its probability under the softmax of the unmodified logits, mask token excluded
    ids, probs   the candidates by falling base logit, and their probabilities under the same softmax
    scores       the base logits of the candidates
    uniforms     the query's draws
    finite       False where the model gave NaN or infinite logits: nothing else may then be used
    row          base logits [V] of one row, on the device
    """

    choice: list[int]
    confidence: list[float]
    ids: list[list[int]]
    probs: list[list[float]]
    scores: list[list[float]]
    uniforms: Sequence[float]
    finite: bool
    row: Callable[[int], torch.Tensor]


def propose(logits: Logits, queries: Sequence[Query], *, mask_token_id: int, candidates: int) -> list[Proposals]:
    """Proposals of each query; the rows of `logits` are the queries' rows one after another.

    Dense logits are written to (the mask token's column). Sparse ones stay sparse while a query is greedy without
    edits and are spelled out for its rows otherwise.
    """
    if isinstance(logits, DenseLogits):
        return _dense(logits.values, queries, mask_token_id, candidates)
    found: list[Proposals] = []
    start = 0
    for query in queries:
        stop = start + len(query.ordinals)
        part = SparseLogits(
            logits.ids[start:stop], logits.values[start:stop], logits.rest[start:stop], logits.vocab_size
        )
        if query.plain:
            found.append(_sparse(part, query, mask_token_id, candidates))
        else:
            found += _dense(_spell_out(part), [query], mask_token_id, candidates)
        start = stop
    return found


def _dense(values: torch.Tensor, queries: Sequence[Query], mask_token_id: int, candidates: int) -> list[Proposals]:
    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()
    values[:, mask_token_id] = -math.inf
    log_probs = values.log_softmax(dim=1)
    base = base_logits(values, queries)
    choice = _choose(penalised(base, queries), queries)
    confidence = log_probs.gather(1, choice[:, None]).squeeze(1)
    wanted = candidates if any(query.candidates for query in queries) else 0
    scores, ids = top(base, wanted)
    return _split(queries, (choice, confidence), (ids, log_probs.gather(1, ids), scores), base.__getitem__)


def _sparse(logits: SparseLogits, query: Query, mask_token_id: int, candidates: int) -> Proposals:
    """A plain query on sparse rows. The tokens that share `rest` are represented by the lowest ids among them."""
    explicit = logits.values.masked_fill(logits.ids == mask_token_id, -math.inf)
    known = logits.ids.shape[1]
    stand_in = torch.arange(min(logits.vocab_size, known + candidates + 1), device=explicit.device)
    taken = (logits.ids[:, :, None] == stand_in).any(1) | (stand_in == mask_token_id)
    others = logits.rest[:, None].expand(-1, len(stand_in)).masked_fill(taken, -math.inf)
    spelt = (logits.ids == mask_token_id).any(1)
    number = logits.vocab_size - known - 1 + spelt.to(explicit.dtype)
    norm = torch.cat([explicit, (logits.rest + number.log())[:, None]], dim=1).logsumexp(dim=1)
    ids = torch.cat([logits.ids, stand_in.expand(len(others), -1)], dim=1)
    scores, index = torch.cat([explicit, others], dim=1).topk(min(candidates, logits.vocab_size - 1), dim=1)
    ids = ids.gather(1, index)
    log_probs = scores - norm[:, None]

    def row(index: int) -> torch.Tensor:
        one = slice(index, index + 1)
        dense = _spell_out(SparseLogits(logits.ids[one], logits.values[one], logits.rest[one], logits.vocab_size))[0]
        dense[mask_token_id] = -math.inf
        return dense

    return _split([query], (ids[:, 0], log_probs[:, 0]), (ids, log_probs, scores), row)[0]


def _spell_out(logits: SparseLogits) -> torch.Tensor:
    dense = logits.rest[:, None].repeat(1, logits.vocab_size)
    return dense.scatter_(1, logits.ids, logits.values)


def _split(
    queries: Sequence[Query],
    chosen: tuple[torch.Tensor, torch.Tensor],
    candidates: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    row: Callable[[int], torch.Tensor],
) -> list[Proposals]:
    """Bring the figures to Python, all rows in one copy each, and deal them out to the queries.

    `chosen` is (ids, log probabilities), `candidates` (ids, log probabilities, scores).
    """
    # A row with NaN, +inf or nothing but -inf has no softmax: the log probability of its choice is not finite either.
    finite = chosen[1].isfinite().tolist()
    choices, confidences = chosen[0].tolist(), chosen[1].exp().tolist()
    ids, probs, scores = candidates[0].tolist(), candidates[1].exp().tolist(), candidates[2].tolist()
    found: list[Proposals] = []
    start = 0
    for query in queries:
        part = slice(start, start + len(query.ordinals))
        found.append(
            Proposals(
                choices[part],
                confidences[part],
                ids[part],
                probs[part],
                scores[part],
                query.uniforms,
                all(finite[part]),
                lambda index, start=start: row(start + index),  # type: ignore[misc]
            )
        )
        start += len(query.ordinals)
    return found


def _choose(scores: torch.Tensor, queries: Sequence[Query]) -> torch.Tensor:
    choice = best(scores)
    rows: list[int] = []
    params: list[SamplingParams] = []
    uniforms: list[float] = []
    start = 0
    for query in queries:
        if samples(query.params):
            rows += range(start, start + len(query.ordinals))
            params += [query.params] * len(query.ordinals)
            uniforms += query.uniforms
        start += len(query.ordinals)
    if rows:
        index = torch.tensor(rows, device=scores.device)
        choice[index] = sample(scores[index], params, uniforms)
    return choice


def sample(scores: torch.Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]) -> torch.Tensor:
    """One id per row of `scores` [n, V]: temperature, then min_p, top_k, top_p, then the inverse distribution function
    over ascending ids at the row's uniform draw. Tokens that tie with the last one kept are kept."""

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=scores.device)[:, None]

    scaled = scores / column([p.temperature for p in params]).to(scores.dtype)
    weights = (scaled - scaled.amax(dim=1, keepdim=True)).exp()
    if any(p.min_p > 0 for p in params):
        weights = weights.masked_fill(weights < column([p.min_p for p in params]), 0)
    if any(p.top_k > 0 for p in params):
        heaviest, _ = top(weights, max(p.top_k for p in params))
        last = [min(p.top_k, heaviest.shape[1]) - 1 for p in params]
        floor = heaviest.gather(1, torch.tensor(last, device=scores.device).clamp(min=0)[:, None])
        floor = floor.masked_fill(column([p.top_k for p in params]) <= 0, 0)
        weights = weights.masked_fill(weights < floor, 0)
    if any(p.top_p < 1 for p in params):
        share = column([p.top_p if p.top_p < 1 else -1.0 for p in params])  # a share that the heaviest token covers
        floor = nucleus(weights, share * weights.sum(dim=1, keepdim=True, dtype=torch.float64))
        weights = weights.masked_fill((weights < floor) & (share > 0), 0)
    return pick(weights, column(uniforms))


def draw(scores: Sequence[float], params: SamplingParams, uniform: float) -> int:
    """`sample` for a few candidates in Python: the index of one of `scores`, which fall."""
    keep = scores[: params.top_k] if params.top_k > 0 else scores
    weights = [math.exp((score - keep[0]) / params.temperature) for score in keep]
    weights = [weight if weight >= params.min_p else 0.0 for weight in weights]
    total, before = sum(weights), 0.0
    for i, weight in enumerate(weights):
        if before >= params.top_p * total:
            weights[i] = 0.0
        before += weight
    place = bisect_right(list(accumulate(weights)), uniform * sum(weights))
    return min(place, max(i for i, weight in enumerate(weights) if weight > 0))


def choose_legal(
    scores: torch.Tensor, legal: npt.NDArray[np.bool_], params: SamplingParams, uniform: float | None
) -> int | None:
    """The token of one dense row [V] among those that `legal` [V] marks; None if it marks none.

    Infinitely unlikely tokens count as the least likely ones: a legal token is found wherever there is one.
    """
    if not legal.any():
        return None
    allowed = torch.from_numpy(legal).to(scores.device)
    masked = scores.clamp(min=_LEAST_LIKELY).masked_fill(~allowed, -math.inf)[None]
    return int(best(masked) if uniform is None else sample(masked, [params], [uniform]))
