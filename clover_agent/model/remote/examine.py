"""Finds out what a checkpoint's own code does, and builds the fastest block model that gives right answers with it.

Every question is put by running the code on a known text; exceptions of the code are answers too.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from clover_agent.model import contract
from clover_agent.model.contract import CERTAIN, REACHED, Finding, Sample
from clover_agent.model.protocol import BlockModel, ModelSpec, Work

from .cached import READINGS, CachedModel, CacheState
from .calling import Caller, Way, tensor_bytes
from .facts import Facts
from .uncached import UncachedModel
from .verdict import Seen, Verdict, choose
from .whole import Prefix, WholePass, look

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, what follows, and the block model of the path (None for the paths that have none)."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    model: BlockModel | None = None


def examine(
    caller: Caller, facts: Facts, text: Sequence[int], *, logits_shift: int | None = None, can_generate: bool
) -> Examination:
    """Put every question to the code behind `caller`. `text`: ids of a text that the model should know.
    `logits_shift` is the operator's word. Raises nothing that the code raises."""
    return _Examiner(caller, facts, text, logits_shift, can_generate).run()


class _Examiner:
    def __init__(
        self, caller: Caller, facts: Facts, text: Sequence[int], logits_shift: int | None, can_generate: bool
    ) -> None:
        self.caller, self.facts, self.wanted_shift = caller, facts, logits_shift
        self.sample = Sample.of([token for token in text if token != facts.mask_token_id], facts.block_size)
        self.seen = Seen(
            finite=True,
            mask_known=facts.mask_token_id is not None,
            answers=True,
            bidirectional=True,
            causal_prefix=True,
            nothing_leaks=True,
            cache_exact=True,
            can_generate=can_generate,
        )
        self.findings: list[Finding] = []

    def run(self) -> Examination:
        model = self._block_model()
        verdict = choose(self.seen)
        path = f"path: {verdict.path}"
        findings = tuple(
            finding if finding.holds is True else replace(finding, consequence=f"{finding.consequence} ({path})")
            for finding in self.findings
        )
        return Examination(findings, verdict, model if verdict.path in ("cached", "uncached") else None)

    def _block_model(self) -> BlockModel | None:
        mask = self.facts.mask_token_id
        self._tell(
            Finding(
                "mask token",
                mask is not None,
                "no file tells it" if mask is None else f"token {mask}, from {self.facts.mask_source}",
                "nothing can be denoised; give --mask-token",
            )
        )
        if mask is None:
            return None
        found = self._way()
        if found is None:
            return None
        way, whole = found
        base = UncachedModel(self.caller, way, self._spec(mask, whole), 0)
        if not (self._tell(contract.finite(base, self.sample)) or self._lose(finite=False)):
            return None
        self._report(way, whole)
        if not self._ask("block size accepted", lambda: contract.block_size(base, self.sample), answers=False):
            return None
        self._tell(contract.deterministic(base, self.sample))
        self._tell(contract.reads_prefix(base, self.sample, self.caller.dtype))
        uncached = UncachedModel(self.caller, way, base.spec, self._shift(base))
        cached = self._cached(uncached) if self.seen.causal_prefix and self.seen.nothing_leaks else None
        return cached or uncached

    def _spec(self, mask: int, whole: WholePass) -> ModelSpec:
        return ModelSpec(
            vocab_size=whole.vocab_size,
            mask_token_id=mask,
            end_token_ids=self.facts.end_token_ids,
            block_size=self.facts.block_size,
            max_context=self.facts.max_context,
            block_alignment="absolute" if whole.aligned else "response",
            causal_commit=whole.prefix is Prefix.CAUSAL,
        )

    def _way(self) -> tuple[Way, WholePass] | None:
        """The first way in which everything holds, else the one in which most does."""
        tried: list[tuple[Way, WholePass]] = []
        errors: list[str] = []
        for way in self.caller.ways():
            try:
                whole = look(self.caller, way, self.sample)
            except Exception as error:
                log.debug("The forward does not take %s.", way.name, exc_info=error)
                errors.append(f"{way.name}: {type(error).__name__}: {error}")
                continue
            tried.append((way, whole))
            if whole.faults == 0:
                break
        if not tried:
            self._tell(Finding("forward", False, "; ".join(errors)[:400], "no block can be denoised from outside"))
            self._lose(answers=False)
            return None
        return min(tried, key=lambda pair: pair[1].faults)

    def _report(self, way: Way, whole: WholePass) -> None:
        aligned = f", counted from the start of the sequence in blocks of {self.sample.block}" if whole.aligned else ""
        if not self._tell(
            Finding(
                "bidirectional inside the block",
                whole.reach >= REACHED,
                f"the last token of a block reaches {whole.reach:.0%} of the positions before it{aligned}; "
                f"asked for {way.name}",
                "the positions of a block cannot be denoised together",
            )
        ):
            self._lose(bidirectional=False)
        if not self._tell(
            Finding(
                "causal prefix",
                whole.prefix is not Prefix.OPEN,
                f"what follows reaches {whole.back_reach:.0%} of the positions before it; "
                f"inside, the prefix is {whole.prefix.value}",
                "keys of the prompt would change with every step: no cache",
            )
        ):
            self._lose(causal_prefix=False)
        if not self._tell(
            Finding(
                "nothing leaks from after the block",
                whole.leak == 0,
                f"what follows a block reaches {whole.leak:.0%} of the positions up to its end",
                "finished blocks would change with the next ones: no cache",
            )
        ):
            self._lose(nothing_leaks=False)

    def _shift(self, base: UncachedModel) -> int:
        found = contract.alignment(base, self.sample)
        measured = None if abs(found.certainty) < CERTAIN else int(found.margin < 0)
        shift = measured or 0 if self.wanted_shift is None else self.wanted_shift
        figures = f"{found.margin:+.2f} nats a token, {found.certainty:+.1f} standard errors, {found.tokens} tokens"
        said = {None: "same position or next: no clear answer", 0: "same position", 1: "next position (shifted)"}
        given = "" if self.wanted_shift is None else f"; --logits-shift {self.wanted_shift} holds"
        self.findings.append(
            Finding(
                "logits' position",
                None if measured is None and self.wanted_shift is None else measured in (None, shift),
                f"{said[measured]} ({figures}){given}",
                f"taken as {said[shift]}; if that is wrong, all output is: --logits-shift 0 or 1",
            )
        )
        return shift

    def _cached(self, uncached: UncachedModel) -> CachedModel | None:
        """The cheapest way of keeping the cache that changes nothing."""
        seen: list[str] = []
        for reading in READINGS if self.caller.takes_cache else ():
            name = reading.guard.value + (", told to write" if reading.store else "")
            model = CachedModel(self.caller, uncached.way, uncached.spec, uncached.logits_shift, reading)
            try:
                exact = contract.cached(model, self.sample, lambda prefix, ids: contract.read(uncached, [prefix], ids))
                kept = contract.snapshots(model, self.sample)
            except Exception as error:
                log.debug("The cache cannot be used (%s).", name, exc_info=error)
                seen.append(f"{name}: {type(error).__name__}: {error}")
                continue
            if exact.holds and kept.holds:
                self._tell(replace(exact, seen=f"{exact.seen}; a step leaves the cache as it was by: {name}"))
                self._tell(kept)
                return self._measured(model)
            seen.append(f"{name}: {kept.seen if exact.holds else exact.seen}")
        why = "; ".join(dict.fromkeys(seen))[:400] or "the forward takes no cache"
        self._tell(Finding("cache = no cache", False, why, "every step runs over the whole sequence: right, but slow"))
        self._tell(Finding("snapshot and restore", None, "there is no cache to be used"))
        self._lose(cache_exact=False)
        return None

    def _measured(self, model: CachedModel) -> CachedModel:
        """The same with what a state costs, told from two lengths."""
        sizes = []
        for count in (1, 5):
            state: CacheState = model.new_state()
            model.forward([Work(state, self.sample.blocks(0, count))])
            sizes.append(tensor_bytes(state.cache))
        per_token = max(0, sizes[1] - sizes[0]) // (4 * self.sample.block)
        fixed = max(0, sizes[0] - per_token * self.sample.block)
        spec = replace(model.spec, state_bytes=fixed, token_bytes=per_token)
        return CachedModel(model.caller, model.way, spec, model.logits_shift, model.reading)

    def _tell(self, finding: Finding) -> bool:
        self.findings.append(finding)
        return finding.holds is not False

    def _lose(self, **fields: bool) -> bool:
        self.seen = replace(self.seen, **fields)
        return False

    def _ask(self, probe: str, question: Callable[[], Finding], **lost: bool) -> bool:
        """A question whose answer may be an exception of the code."""
        try:
            finding = question()
        except Exception as error:
            log.debug("The probe %r raised.", probe, exc_info=error)
            finding = Finding(probe, False, f"{type(error).__name__}: {error}", "no block can be denoised from outside")
        return self._tell(finding) or self._lose(**lost)
