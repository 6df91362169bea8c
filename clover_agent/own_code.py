"""A checkpoint that brings its own code: may it run, what can it do, what serves it.

Knows no HTTP, no engine's inside. The code runs in `open_checkpoint` for the first time, and only if the flag is given.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clover_agent.errors import LoadFailed
from clover_agent.model.contract import Finding
from clover_agent.model.protocol import Generator, ModelSpec
from clover_agent.model.remote.calling import Caller
from clover_agent.model.remote.examine import Examination, examine
from clover_agent.model.remote.facts import Facts, Files, read_facts
from clover_agent.settings import ModelSettings
from clover_agent.templates import ChatTemplate
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Conversation, Message, SamplingParams, Tool, ToolCall

log = logging.getLogger(__name__)

# What the probes read: a conversation that any agent's model should find ordinary, in the checkpoint's own template.
WEATHER = Tool(
    "get_weather",
    "Get the current weather in a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city"}},
        "required": ["city"],
    },
)
CITIES = (("Lisbon", "22 degrees and sunny"), ("Oslo", "3 degrees and cloudy"), ("Madrid", "31 degrees and clear"))


@dataclass(frozen=True, slots=True)
class OwnCode:
    """The loaded module, what its files say, and what the probes found."""

    module: nn.Module
    facts: Facts
    examination: Examination

    def generator(self, defaults: SamplingParams) -> Generator:
        """The model as a writer of whole answers; a mask token of -1 in its spec is one that is not known."""
        from clover_agent.model.remote.generating import RemoteGenerator  # noqa: PLC0415 - transformers: slow

        facts = self.facts
        mask = -1 if facts.mask_token_id is None else facts.mask_token_id
        embedding: Any = self.module.get_input_embeddings()  # type: ignore[operator]
        size = embedding.weight.shape[0]
        spec = ModelSpec(size, mask, facts.end_token_ids, facts.block_size, facts.max_context)
        return RemoteGenerator(self.module, spec, defaults)


def require_permission(wanted: ModelSettings, config: Mapping[str, Any]) -> None:
    """Raises `LoadFailed` where a checkpoint's code would have to run and the operator has not said that it may, or
    has said so of a checkpoint that brings none."""
    if config.get("auto_map") and not wanted.trust_remote_code:
        raise LoadFailed(
            f"{wanted.model} brings its own code (auto_map in config.json), and nothing else can run it: served as a "
            "native model it would give other answers than its makers intended. Its code can do on this machine "
            "whatever you can. If you have read it, or trust who wrote it, start again with --trust-remote-code."
        )
    if wanted.trust_remote_code and not config.get("auto_map"):
        raise LoadFailed(
            f"--trust-remote-code: {wanted.model} brings no code (no auto_map in config.json). Leave it out."
        )


def open_checkpoint(
    wanted: ModelSettings,
    path: Path,
    files: Files,
    text: list[int],
    *,
    device: str,
    dtype: torch.dtype | None,
) -> OwnCode:
    """Load by its own code, and find out what that does. Raises `LoadFailed`, also where no path is left."""
    log.warning(
        "--trust-remote-code: the Python code in %s runs now, with all the rights of this process. It can read your "
        "files and use the network.",
        path,
    )
    from clover_agent.model.remote.load import can_generate, load_module  # noqa: PLC0415 - transformers: slow

    facts = read_facts(files, mask_token=wanted.mask_token, block_size=wanted.block_size)
    module = load_module(path, files.config, device=device, dtype=dtype, device_map=wanted.device_map)
    examination = examine(
        Caller(module, facts.block_size),
        facts,
        text,
        logits_shift=None if wanted.logits_shift is None else int(wanted.logits_shift),
        can_generate=can_generate(module),
    )
    for finding in examination.findings:
        level = logging.INFO if finding.holds else logging.WARNING
        log.log(
            level, "probe %s: %s%s", finding.probe, finding.seen, "" if finding.holds else f"; {finding.consequence}"
        )
    log.log(
        logging.INFO if examination.verdict.path == "cached" else logging.WARNING,
        "path: %s, because %s",
        examination.verdict.path,
        examination.verdict.reason,
    )
    return OwnCode(module, facts, examination)


def refuse_if_unusable(opened: OwnCode, model: str) -> None:
    """Raises `LoadFailed` where the probes left no path."""
    examination = opened.examination
    if examination.verdict.path == "refuse":
        failed = "; ".join(_line(finding) for finding in examination.findings if finding.holds is False)
        raise LoadFailed(f"{model} cannot be served: {examination.verdict.reason}. Probes that failed: {failed}.")


def probe_text(template: ChatTemplate, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a known conversation. Raises the template's errors (`InvalidRequest`)."""
    messages: list[Message] = []
    for number, (city, weather) in enumerate(CITIES):
        call = ToolCall(f"call_{number}", WEATHER.name, f'{{"city": "{city}"}}')
        messages += [
            Message("user", f"What is the weather in {city} right now?"),
            Message("assistant", tool_calls=(call,)),
            Message("tool", f'{{"weather": "{weather}"}}', tool_call_id=call.id, name=call.name),
            Message("assistant", f"It is {weather} in {city}."),
        ]
    prompt = template.render(Conversation((*messages, Message("user", "Thank you.")), tools=(WEATHER,)))
    return tokenizer.encode(prompt.segments)


def _line(finding: Finding) -> str:
    return f"{finding.probe} ({finding.seen})"
