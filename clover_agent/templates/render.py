"""Conversation -> prompt: runs a chat template, ours or a checkpoint's own, and cuts what it wrote into segments.

A template is compiled once; rendering has no state and may run on any thread. Knows nothing of tokens or formats.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from jinja2.exceptions import TemplateError

from clover_agent.errors import InvalidRequest, LoadFailed
from clover_agent.formats import THINK_BEGIN, THINK_END
from clover_agent.templates.environment import make_environment
from clover_agent.templates.heads import shared_heads
from clover_agent.templates.marks import Marks, map_strings
from clover_agent.templates.normalize import BrokenArguments, template_messages, template_tools
from clover_agent.types import Conversation, Message, Prompt, Segment, ToolCall

OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"})


class ChatTemplate:
    """A compiled chat template.

    source    Jinja, written for Hugging Face's `apply_chat_template`
    control   the strings of all control tokens; in a prompt they are trusted only where the template wrote them
    extra     further variables, trusted like the template itself (`bos_token` …)

    Raises `LoadFailed` if the source is not a template.
    """

    def __init__(
        self, source: str, control: Collection[str], *, extra: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._marks = Marks(control)
        self._extra = map_strings(extra, self._marks.mark)
        environment = make_environment()
        try:
            tree = environment.parse(source)
            self._marks.mark_literals(tree)
            self._template = environment.from_string(tree)
        except TemplateError as error:
            raise LoadFailed(f"The chat template cannot be compiled: {error}") from error
        self._broken: BrokenArguments = "text" if self._takes_text_arguments() else "object"

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = True) -> Prompt:
        """The prompt of a conversation. Raises `InvalidRequest` if the template cannot or will not render it."""
        context = {
            "messages": template_messages(conversation.messages, self._broken),
            "tools": template_tools(conversation.tools),
            **self._choices(conversation),
        }
        guarded, back = self._marks.guard(context)
        text = self._run({**self._extra, **guarded, "add_generation_prompt": add_generation_prompt})
        segments = self._marks.segments(text, back)
        return Prompt(segments, thinking=_ends_in_thought(segments))

    def shared_heads(self, conversation: Conversation, prompt: Prompt) -> tuple[int, ...]:
        """Numbers of leading segments of the conversation's prompt that later prompts are likely to share."""
        return shared_heads(conversation, prompt, lambda part: self.render(part, add_generation_prompt=False).segments)

    def _choices(self, conversation: Conversation) -> dict[str, Any]:
        """What the request says to the template: `enable_thinking`, and its own variables, which have the last word."""
        own = OWN_VARIABLES.union(self._extra).intersection(conversation.template_kwargs)
        if own:
            raise InvalidRequest(f"{sorted(own)[0]!r} cannot be set by a request.", param="chat_template_kwargs")
        thinking = conversation.enable_thinking
        return {**({} if thinking is None else {"enable_thinking": thinking}), **conversation.template_kwargs}

    def _run(self, variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render(variables)
        except TemplateError as error:
            reason = self._marks.unmark(str(error))
            raise InvalidRequest(f"The chat template refuses these messages: {reason}", param="messages") from error
        except Exception as error:  # a template is a program: it can fail in any way on messages it did not expect
            reason = f"{type(error).__name__}: {error}"
            raise InvalidRequest(
                f"The chat template cannot render these messages: {reason}", param="messages"
            ) from error

    def _takes_text_arguments(self) -> bool:
        """Whether this template copes with arguments that are no JSON object, and shows them."""
        call = ToolCall("call_0", "f", "{broken")
        probe = [
            Message("user", "x"),
            Message("assistant", tool_calls=(call,)),
            Message("tool", "y", tool_call_id="call_0"),
        ]
        variables = {"messages": template_messages(probe, "text"), "tools": None, "add_generation_prompt": True}
        try:
            return call.arguments in self._run({**self._extra, **variables})
        except InvalidRequest:
            return False


def _ends_in_thought(segments: tuple[Segment, ...]) -> bool:
    markers = [s.text for s in segments if s.trusted and s.text in (THINK_BEGIN, THINK_END)]
    return bool(markers) and markers[-1] == THINK_BEGIN
