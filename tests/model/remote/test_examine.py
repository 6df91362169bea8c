"""Checkpoints with their own code: what the probes see of each quirk, and the path that follows."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clover_agent.loading import load_text_parts
from clover_agent.model.remote.calling import Caller
from clover_agent.model.remote.examine import Examination, examine
from clover_agent.model.remote.facts import Files, read_facts
from clover_agent.model.remote.load import load_module
from clover_agent.own_code import probe_text
from clover_agent.settings import ModelSettings
from tests.checkpoints import write_checkpoint

pytestmark = pytest.mark.usefixtures("modules_cache")


def examined(path: Path, *, generates: bool = True, shift: int | None = None) -> Examination:
    config = json.loads((path / "config.json").read_text())
    tokenizer, template, _ = load_text_parts(ModelSettings(model=str(path)))
    facts = read_facts(Files(config, {}, {}, tokenizer.control))
    module = load_module(path, config, device="cpu", dtype=torch.float64)
    text = probe_text(template, tokenizer)
    return examine(Caller(module, facts.block_size), facts, text, logits_shift=shift, can_generate=generates)


def failed(found: Examination) -> set[str]:
    return {finding.probe for finding in found.findings if finding.holds is False}


# quirks, path, failed probes, words that are to be seen in the report
CASES: list[tuple[dict[str, Any], str, set[str], str]] = [
    ({}, "cached", set(), "told not to write"),
    ({"shifted": True}, "cached", set(), "next position (shifted)"),
    ({"no_cache": True}, "uncached", {"cache = no cache"}, "returns no cache"),
    ({"always_writes": True}, "cached", set(), "cropped afterwards"),
    ({"always_writes": True, "no_crop": True}, "cached", set(), "by: a copy"),
    ({"no_crop": True, "no_copy": True}, "uncached", {"cache = no cache"}, "no copies"),
    ({"block": "mask"}, "cached", set(), "an attention mask of four dimensions"),
    ({"leak": True}, "uncached", {"causal prefix", "nothing leaks from after the block", "cache = no cache"}, "100%"),
    ({"block": "never"}, "generate", {"bidirectional inside the block"}, "reaches 0%"),
    ({"nan": True}, "refuse", {"finite logits"}, "NaN"),
]


@pytest.mark.parametrize(("quirks", "path", "faults", "words"), CASES, ids=[str(case[0]) for case in CASES])
def test_a_quirk_is_seen_and_the_right_path_taken(
    quirks: dict[str, Any], path: str, faults: set[str], words: str, tmp_path: Path
) -> None:
    found = examined(write_checkpoint(tmp_path / "mine", **quirks))
    assert found.verdict.path == path
    assert failed(found) <= faults
    assert bool(failed(found)) is bool(faults)
    assert words in " ".join(finding.seen for finding in found.findings)
    assert (found.model is None) is (path in ("generate", "refuse"))
    for finding in found.findings:
        assert finding.holds is not False or f"path: {path}" in finding.consequence


def test_without_a_mask_token_there_is_only_generate(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "mine", config={"mask_token_id": None})
    config = json.loads((path / "config.json").read_text())
    assert read_facts(Files(config, {}, {}, {})).mask_token_id is None
    assert read_facts(Files(config, {}, {"mask_token": "<m>"}, {"<m>": 9})).mask_token_id == 9
    assert read_facts(Files(config, {}, {}, {"<m>": 9}), mask_token="<m>").mask_token_id == 9
    assert read_facts(Files(config, {"mask_token_id": 8}, {}, {})).mask_source == "generation_config.json"


def test_an_impostor_without_generate_is_refused(tmp_path: Path) -> None:
    found = examined(write_checkpoint(tmp_path / "mine", block="never"), generates=False)
    assert found.verdict.path == "refuse"


def test_the_operator_s_word_on_the_shift_holds(tmp_path: Path) -> None:
    found = examined(write_checkpoint(tmp_path / "mine", shifted=True), shift=0)
    assert "logits' position" in failed(found)
    assert found.model is not None
    assert getattr(found.model, "logits_shift") == 0  # noqa: B009 - not of the protocol
