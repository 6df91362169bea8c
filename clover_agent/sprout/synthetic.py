"""Synthetic examples of every kind: one call, two calls, no tool fits, an answer to a result, small talk, history.

Put together from toolboxes and results; how many distractor tools stand beside the right one is the caller's choice.
Knows nothing of the real corpora, templates and tokens.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clover_agent.sprout.corpus import Call, Example
from clover_agent.sprout.phrasing import Phraser, phrases
from clover_agent.sprout.results import ResultMaker
from clover_agent.sprout.styles import NAME_STYLES
from clover_agent.sprout.toolbox import AgentBox, Drawn, SchemaBox
from clover_agent.types import Message, Tool, ToolCall

REFUSAL = "None of my tools can do that."
NO_TOOLS = "I have no tools to do that."
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are an assistant that uses tools.", "Be brief.", "You are a coding agent.",
    "You are a helpful assistant. Use the tools when they fit.", "Answer in English.",
    "You help people with their tasks.",
    "You are an agent. Call one of the functions to help the user.", "Use the functions below. Do not guess.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Boxes:
    """Where tools come from. `agent_share` is how often the everyday tools are asked rather than the schemas."""

    schemas: SchemaBox
    agent: AgentBox
    agent_share: float = 0.35


class Synthesizer:
    """Makes examples; everything is drawn from `rng`."""

    def __init__(self, rng: random.Random, boxes: Boxes, *, held_out: bool = False) -> None:
        self.rng = rng
        self._boxes = boxes
        self._results = ResultMaker(rng, held_out=held_out)
        self._phraser = Phraser(rng)

    def example(self, kind: str, distractors: int) -> Example:
        """An example of kind single, pair, none, answer, chat, history."""
        made: Example = getattr(self, f"_{kind}")(distractors)
        if self.rng.random() < 0.2:
            system = Message("system", self.rng.choice(SYSTEM_PROMPTS))
            return replace(made, messages=(system, *made.messages))
        return made

    def distractor_tools(self, count: int, style: str) -> list[Tool]:
        """Tools of the schemas only, for records of real corpora."""
        return self._boxes.schemas.others([], count, style, siblings=False)

    # ---- kinds

    def _single(self, distractors: int) -> Example:
        style, box = self._style_and_box()
        drawn = box.draw(style)
        tools = self._beside([drawn.tool], box, [drawn], distractors, style)
        return self._made("single", tools, (Message("user", drawn.request),), calls=(drawn.call,))

    def _pair(self, distractors: int) -> Example:
        style, box = self._style_and_box()
        first, second = box.draw(style), box.draw(style)
        if first.tool.name == second.tool.name or len(first.request) + len(second.request) > 260:
            return self._single(distractors)
        tools = self._beside([first.tool, second.tool], box, [first, second], distractors, style)
        request = self._phraser.two(first.request, second.request)
        return self._made("pair", tools, (Message("user", request),), calls=(first.call, second.call))

    def _none(self, distractors: int) -> Example:
        style, box = self._style_and_box()
        drawn = box.draw(style)
        if self.rng.random() < 0.08:
            return self._made("none", (), (Message("user", drawn.request),), answer=NO_TOOLS)
        tools = self._beside([], box, [drawn], max(1, distractors), style, siblings=False)
        return self._made("none", tools, (Message("user", drawn.request),), answer=REFUSAL)

    def _chat(self, distractors: int) -> Example:
        said, answers = self.rng.choice(phrases()["small_talk"])
        style, box = self._style_and_box()
        tools = self._beside([], box, [], distractors, style, siblings=False) if self.rng.random() < 0.8 else ()
        text = self.rng.choice(said)
        text = (
            text if self.rng.random() < 0.6 else self.rng.choice((text.capitalize(), text.upper(), text.rstrip("?!.")))
        )
        return self._made("chat", tools, (Message("user", text),), answer=self.rng.choice(answers))

    def _answer(self, distractors: int) -> Example:
        style, box = self._style_and_box()
        drawn = [box.draw(style) for _ in range(2 if self.rng.random() < 0.15 else 1)]
        if len({d.tool.name for d in drawn}) < len(drawn):
            drawn = drawn[:1]
        tools = self._beside([d.tool for d in drawn], box, drawn, min(distractors, 3), style)
        request = drawn[0].request if len(drawn) == 1 else self._phraser.two(drawn[0].request, drawn[1].request)
        messages, answer = self._exchange(request, drawn)
        return self._made("answer", tools, messages, answer=answer)

    def _history(self, distractors: int) -> Example:
        style, box = self._style_and_box()
        before, now = box.draw(style), box.draw(style)
        if before.tool.name == now.tool.name:
            return self._single(distractors)
        messages, answer = self._exchange(before.request, [before])
        tools = self._beside([before.tool, now.tool], box, [before, now], min(distractors, 2), style)
        turns = (*messages, Message("assistant", answer), Message("user", now.request))
        return self._made("history", tools, turns, calls=(now.call,))

    # ---- parts

    def _style_and_box(self) -> tuple[str, Any]:
        boxes = self._boxes
        box: Any = boxes.agent if self.rng.random() < boxes.agent_share else boxes.schemas
        style = self.rng.choice(NAME_STYLES)
        return (style if box is boxes.schemas or self.rng.random() < 0.3 else "own"), box

    def _beside(
        self, right: Sequence[Tool], box: Any, drawn: Sequence[Drawn], count: int, style: str, *, siblings: bool = True
    ) -> tuple[Tool, ...]:
        tools = list(right)
        taken = {tool.name for tool in tools}
        mixed = self._boxes.schemas if box is self._boxes.agent and self.rng.random() < 0.3 else box
        for tool in mixed.others(drawn, count, style if mixed is box else "snake", siblings=siblings):
            if tool.name not in taken:
                tools.append(tool)
                taken.add(tool.name)
        self.rng.shuffle(tools)
        return tuple(tools)

    def _exchange(self, request: str, drawn: Sequence[Drawn]) -> tuple[tuple[Message, ...], str]:
        """The turns up to the results, and the answer to them."""
        outcomes = [self._results.draw(d.call, d.results) for d in drawn]
        ids = [f"call_{n}" for n in range(len(drawn))]
        calls = tuple(tool_call(id_, d.call) for id_, d in zip(ids, drawn, strict=True))
        results = tuple(
            Message("tool", result, tool_call_id=id_) for id_, (result, _) in zip(ids, outcomes, strict=True)
        )
        turns = (Message("user", request), Message("assistant", tool_calls=calls), *results)
        return turns, " ".join(answer for _, answer in outcomes)

    def _made(self, kind: str, tools: Sequence[Tool], messages: tuple[Message, ...], **said: Any) -> Example:
        example = Example("synthetic", kind, tuple(tools), messages, **said)
        return replace(example, thought=thought_of(example)) if self.rng.random() < 0.06 else example


def thought_of(example: Example) -> str:
    """The short thought that stands before this example's calls or answer when thinking is on."""
    names = list(dict.fromkeys(call.name for call in example.calls))
    if names:
        return f"This needs {' and '.join(names)}."
    return {"answer": "The result is there.", "none": "No tool fits."}.get(example.kind, "No tool is needed.")


def tool_call(id_: str, call: Call) -> ToolCall:
    return ToolCall(id_, call.name, json.dumps(dict(call.arguments), ensure_ascii=False))
