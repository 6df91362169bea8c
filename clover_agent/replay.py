"""Replay files: scripted assistant turns for the scripted model, one rule a line, the first match wins.

    {"when": {"turn": 1, "has_tools": true, "contains": "weather"},
     "reply": {"reasoning": "…", "content": "…", "tool_calls": [{"name": "…", "arguments": {…}}]}, "delay_s": 0}

`when`: all conditions that are given must hold; `turn` counts the assistant's turns from 1, `contains` looks into the
whole prompt. Instead of "reply" a rule may have "raw": the exact text, control strings included. Rules have no memory,
so that side requests of an agent (titles, summaries) get their own answers whatever else is going on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clover_agent.errors import LoadFailed
from clover_agent.formats import THINK_BEGIN, THINK_END, ToolFormat
from clover_agent.model.protocol import ModelSpec
from clover_agent.model.scripted import ScriptedModel, ScriptedReply
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Segment

MAX_CONTEXT = 131_072
BLOCK_SIZE = 32
MASK, END, TURN = "<|mask|>", "<|im_end|>", "<|im_start|>"
NO_RULE = "No rule of the replay file matches this request."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class When(_Strict):
    """Conditions on a prompt; None = any."""

    turn: int | None = Field(default=None, ge=1)
    has_tools: bool | None = None
    contains: str | None = None


class Call(_Strict):
    name: str
    arguments: dict[str, Any] = {}


class Reply(_Strict):
    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[Call, ...] = ()


class Rule(_Strict):
    """One line of a replay file."""

    when: When = When()
    reply: Reply | None = None
    raw: str | None = None
    delay_s: float = Field(default=0.0, ge=0, le=3600)

    @model_validator(mode="after")
    def _one_answer(self) -> "Rule":
        if (self.reply is None) == (self.raw is None):
            raise ValueError('a rule has either "reply" or "raw"')
        return self


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a replay file; empty lines are skipped. Raises `LoadFailed` naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFailed(f"Cannot read the replay file {path}: {error}") from error
    rules = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rules.append(Rule.model_validate(json.loads(line)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise LoadFailed(f"{path}, line {number}: {field}: {first['msg']}".replace(" : ", " ")) from error
        except ValueError as error:
            raise LoadFailed(f"{path}, line {number} is not JSON: {error}") from error
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class _View:
    """What a rule may look at."""

    text: str
    turn: int
    has_tools: bool
    thinking: bool
    prompt_length: int


def replay_model(path: Path, tokenizer: Tokenizer, format_: ToolFormat) -> ScriptedModel:
    """A model that answers by the rules of `path`, over the given vocabulary and in the given tool format.

    Its prompts must come from a bundled template, which tells tools by `<tools>`. Raises `LoadFailed`.
    """
    rules = read_rules(path)
    control = tokenizer.control
    spec = ModelSpec(
        vocab_size=tokenizer.vocab_size,
        mask_token_id=control[MASK],
        end_token_ids=(control[END],),
        block_size=BLOCK_SIZE,
        max_context=MAX_CONTEXT,
    )

    def reply_for(ids: Sequence[int]) -> ScriptedReply:
        view = _view(ids, tokenizer)
        rule = next((rule for rule in rules if _matches(rule.when, view)), Rule(raw=NO_RULE))
        reply = tokenizer.encode(_segments(rule, view.thinking, format_))
        return ScriptedReply(tuple(reply), rule.delay_s, view.prompt_length)

    return ScriptedModel(spec, reply_for)


def _view(ids: Sequence[int], tokenizer: Tokenizer) -> _View:
    """Looks at a prompt that ends as the bundled templates end it, and at nothing after that."""
    turn, assistant = tokenizer.control[TURN], tokenizer.encode_text("assistant\n")
    starts = [i + 1 for i, id_ in enumerate(ids) if id_ == turn and _follows(ids, i + 1, assistant)]
    end = starts[-1] + len(assistant) if starts else len(ids)
    closed = tokenizer.encode([Segment(f"{THINK_BEGIN}\n\n{THINK_END}\n\n", trusted=True)])
    opened = tokenizer.encode([Segment(f"{THINK_BEGIN}\n", trusted=True)])
    thinking = not _follows(ids, end, closed) and _follows(ids, end, opened)
    end += len(opened) if thinking else len(closed) if _follows(ids, end, closed) else 0
    text = tokenizer.decode(ids[:end])
    return _View(text, len(starts), "<tools>" in text, thinking, end)


def _follows(ids: Sequence[int], at: int, part: Sequence[int]) -> bool:
    return list(ids[at : at + len(part)]) == list(part)


def _matches(when: When, view: _View) -> bool:
    return (
        when.turn in (None, view.turn)
        and when.has_tools in (None, view.has_tools)
        and (when.contains is None or when.contains in view.text)
    )


def _segments(rule: Rule, thinking: bool, format_: ToolFormat) -> list[Segment]:
    """The reply as a model is trained to write it. Only markers are trusted: what the reply *says* is text."""
    if rule.reply is None:
        return [Segment(rule.raw or "", trusted=True)]
    reply = rule.reply
    segments = []
    if thinking:
        thought = f"{reply.reasoning}\n" if reply.reasoning else "\n"
        segments += [Segment(thought, trusted=False), Segment(THINK_END, trusted=True), Segment("\n\n", trusted=False)]
    segments.append(Segment(reply.content, trusted=False))
    for index, call in enumerate(reply.tool_calls):
        whole = format_.encode(call.name, call.arguments)
        body = whole.removeprefix(format_.call_begin).removesuffix(format_.call_end)
        between = "\n" if index else "\n\n" if reply.content else ""
        segments.append(Segment(between, trusted=False))
        segments.append(Segment(format_.call_begin, trusted=True))
        segments.append(Segment(body, trusted=False))
        segments.append(Segment(format_.call_end, trusted=True))
    return segments
