"""White space between text and markers: the format's, not the content's.

Templates put line breaks around thoughts and calls; clients should not see them, and a template will put them back.
"""

BLANK = " \t\r\n"


class Spacing:
    """One channel of text (visible text or thought) that is interrupted by markers.

    Space before a marker is dropped, and so is space after one where nothing was said before. Between two texts it
    stays. Holds back trailing space only: it is not known yet what follows.
    """

    def __init__(self, *, after_marker: bool) -> None:
        self._held = ""
        self._spoken = False
        self._after_marker = after_marker

    def feed(self, text: str) -> str:
        """The text that may leave now."""
        text = self._held + text
        body = text.rstrip(BLANK)
        self._held = text[len(body) :]
        if not body:
            return ""
        if self._after_marker and not self._spoken:
            body = body.lstrip(BLANK)
        self._spoken, self._after_marker = True, False
        return body

    def marker(self) -> None:
        """A thought or call begins or ends here."""
        self._held = ""
        self._after_marker = True

    def flush(self) -> str:
        """The space at the very end of the text; none if a marker came last."""
        held, self._held = self._held, ""
        return "" if self._after_marker else held
