"""Examples as the model sees them: prompt and response tokens, by the project's own template, format and tokenizer.

What is trained is what is served: the prompt of an example is the prompt that the gateway renders for its conversation.
"""

from dataclasses import dataclass
from pathlib import Path

from clover_agent.formats import THINK_END
from clover_agent.formats.hermes_json import HermesJson
from clover_agent.sprout.corpus import Example
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Conversation, Segment

TEMPLATE = "sprout"
PAD, TURN_BEGIN, TURN_END, MASK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"
CONTROL = (
    PAD, TURN_BEGIN, TURN_END, MASK, "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>",
)  # fmt: skip
FORMAT = HermesJson()


@dataclass(frozen=True, slots=True)
class Tokens:
    """prompt ends with the generation prompt; response with the end-of-turn token."""

    prompt: list[int]
    response: list[int]


class Renderer:
    """Renders and encodes examples with a trained tokenizer."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._template = ChatTemplate(template_source(TEMPLATE), self._tokenizer.control)

    def tokens(self, example: Example) -> Tokens:
        """Prompt and response of an example."""
        prompt = self._template.render(conversation_of(example))
        return Tokens(self._tokenizer.encode(prompt.segments), self._tokenizer.encode(segments_of(example)))


def conversation_of(example: Example) -> Conversation:
    """The request that the gateway would get."""
    return Conversation(example.messages, example.tools, enable_thinking=example.thought is not None or None)


def segments_of(example: Example) -> list[Segment]:
    """What the model is to write, cut at the control tokens; control strings within values stay text."""
    segments: list[Segment] = []
    if example.thought is not None:
        segments += [Segment(f"{example.thought}\n", False), Segment(THINK_END, True), Segment("\n\n", False)]
    if example.answer:
        segments.append(Segment(example.answer, False))
    for number, call in enumerate(example.calls):
        body = FORMAT.encode(call.name, call.arguments)[len(FORMAT.call_begin) : -len(FORMAT.call_end)]
        segments += [Segment("\n", False)] if number else []
        segments += [Segment(FORMAT.call_begin, True), Segment(body, False), Segment(FORMAT.call_end, True)]
    return [*segments, Segment(TURN_END, True)]
