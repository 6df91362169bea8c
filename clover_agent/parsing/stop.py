"""Stop strings: cut the visible text where the first of them is complete, however the text arrives."""

from collections.abc import Collection


class StopFilter:
    """Passes text on until a stop string is complete; the stop string and all after it are dropped.

    Holds back only what may still become a stop string. Where several are met, the one that is complete first counts
    (of two that end together, the longer), so that the result does not depend on how the text is split.
    """

    def __init__(self, stops: Collection[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.matched: str | None = None

    @property
    def hit(self) -> bool:
        return self.matched is not None

    def feed(self, text: str) -> str:
        """The text that may leave now."""
        if self.hit or not text:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, at, self.matched = min(ends)
            self._held = ""
            return text[:at]
        keep = len(text) - max(_overlap(text, stop) for stop in self._stops)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """What was held back; it did not become a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
