"""Where later prompts are likely to agree with this one: after system and tools, after the last user message, and after
the last message of all, before the generation prompt.

Found by rendering parts of the conversation and seeing how far they agree, so it holds for any template. Counted in
segments; knows nothing of tokens and caches.
"""

from collections.abc import Callable
from dataclasses import replace

from clover_agent.errors import InvalidRequest
from clover_agent.types import Conversation, Message, Prompt, Segment

Render = Callable[[Conversation], tuple[Segment, ...]]
ANOTHER = Message("user", "?")


def shared_heads(conversation: Conversation, prompt: Prompt, render: Render) -> tuple[int, ...]:
    """Numbers of leading segments of `prompt`, ascending. `render` renders without a generation prompt.

    Agents change what lies behind these places: calls come back in another spelling, thoughts are dropped as soon as
    the next user message is there, tools and instructions stay.
    """
    messages = conversation.messages
    system = tuple(message for message in messages if message.role == "system")
    parts = [(*system, ANOTHER), messages]
    last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
    if last_user is not None and last_user + 1 < len(messages):
        parts.append(messages[: last_user + 1])
    found = {_agreement(prompt.segments, _rendered(replace(conversation, messages=part), render)) for part in parts}
    return tuple(sorted(found - {0}))


def _rendered(part: Conversation, render: Render) -> tuple[Segment, ...]:
    """A template may refuse a part of a conversation that it takes as a whole: then nothing is known to agree."""
    try:
        return render(part)
    except InvalidRequest:
        return ()


def _agreement(whole: tuple[Segment, ...], part: tuple[Segment, ...]) -> int:
    """How many leading segments agree. Text between control tokens is one segment: never cut."""
    count = 0
    for a, b in zip(whole, part, strict=False):
        if a != b:
            break
        count += 1
    return count
