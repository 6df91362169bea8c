"""Which control strings in a rendered prompt are the template's own, and which are only text.

Trust comes from the template: before it is compiled, every control string in its literals is replaced by one private
code point, its mark. After rendering, a mark is that control token, and everything else is text, whatever it spells
and however it came together (`<` from the template, `tool_call` from a schema's key). Values are never rewritten, so a
template's own logic on them works as ever; only a value that contains marks has these characters swapped for unused
ones while it is rendered. A template must write a control string as one literal: glued together, it stays text.

Knows nothing of conversations; works on strings, on nested JSON values, and on Jinja's syntax tree.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jinja2 import nodes

from clover_agent.types import Segment

FIRST_PRIVATE, LAST_PRIVATE = 0x100000, 0x10FFFD  # plane 16, "supplementary private use area B"
REPLACEMENT = "\ufffd"


class Marks:
    """One private code point per control string, counted from the top of plane 16."""

    def __init__(self, control: Collection[str]) -> None:
        self._first = LAST_PRIVATE + 1 - len(control)
        self._mark_of = {text: chr(self._first + n) for n, text in enumerate(sorted(control))}
        self._text_of = {mark: text for text, mark in self._mark_of.items()}
        longest_first = sorted(control, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._mark = re.compile(f"([{chr(self._first)}-{chr(LAST_PRIVATE)}])" if control else "(?!)")
        self._private = re.compile(f"[{chr(FIRST_PRIVATE)}-{chr(LAST_PRIVATE)}]")

    def mark(self, text: str) -> str:
        """The text with each control string (the longest that fits) replaced by its mark."""
        return self._control.sub(lambda found: self._mark_of[found[0]], text)

    def unmark(self, text: str) -> str:
        """The text with each mark replaced by its control string."""
        return self._mark.sub(lambda found: self._text_of[found[0]], text)

    def mark_literals(self, tree: nodes.Template) -> None:
        """Mark the control strings in all literals of a template."""
        for data in tree.find_all(nodes.TemplateData):
            data.data = self.mark(data.data)
        for const in tree.find_all(nodes.Const):
            if isinstance(const.value, str):
                const.value = self.mark(const.value)

    def guard(self, value: Any) -> tuple[Any, Mapping[int, str]]:
        """The value without any mark in it, and the table (for `str.translate`) that undoes the change."""
        found: set[str] = set()

        def collect(text: str) -> str:
            if not text.isascii():
                found.update(self._private.findall(text))
            return text

        map_strings(value, collect)
        free = (chr(code) for code in range(FIRST_PRIVATE, self._first) if chr(code) not in found)
        swap = {ord(char): next(free, REPLACEMENT) for char in sorted(found) if char in self._text_of}
        if not swap:
            return value, {}
        back = {ord(other): chr(char) for char, other in swap.items() if other != REPLACEMENT}
        return map_strings(value, lambda text: text.translate(swap)), back

    def segments(self, rendered: str, back: Mapping[int, str]) -> tuple[Segment, ...]:
        """Cut a rendered prompt: one trusted segment per control token, one of text between two of them."""
        segments = []
        for part in self._mark.split(rendered):
            if part in self._text_of:
                segments.append(Segment(self._text_of[part], trusted=True))
            elif part:
                segments.append(Segment(part.translate(back) if back else part, trusted=False))
        return tuple(segments)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A nested JSON value with every string in it, keys too, put through `change`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {map_strings(key, change): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_strings(item, change) for item in value]
    return value
