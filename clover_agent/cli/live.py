"""What a person sees of a demo: the current block in place, drafts included, then the finished text.

Draws only; what it draws was received from the gateway.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

MASK = "░"


class View(Protocol):
    """How a conversation is shown."""

    wants_drafts: bool

    def opening(self, url: str, request: str, tools: Sequence[str]) -> None: ...
    @contextmanager
    def answering(self) -> Iterator[None]: ...
    def draft(self, positions: Sequence[str | None]) -> None: ...
    def answer(self, content: str, calls: Sequence[str]) -> None: ...
    def tool_result(self, name: str, arguments: str, result: str) -> None: ...
    def closing(self, answer: str, tokens_per_forward: float) -> None: ...


class Silent:
    """Shows nothing."""

    wants_drafts = False

    def opening(self, url: str, request: str, tools: Sequence[str]) -> None: ...

    @contextmanager
    def answering(self) -> Iterator[None]:
        yield

    def draft(self, positions: Sequence[str | None]) -> None: ...

    def answer(self, content: str, calls: Sequence[str]) -> None: ...

    def tool_result(self, name: str, arguments: str, result: str) -> None: ...

    def closing(self, answer: str, tokens_per_forward: float) -> None: ...


class BlockView:
    """A panel that is redrawn after every denoising step. `delay_s` slows the steps down for the eye."""

    wants_drafts = True

    def __init__(self, *, delay_s: float, console: Console | None = None) -> None:
        self._console = console or Console()
        self._delay_s = delay_s
        self._live: Live | None = None
        self._draft: Text = Text()
        self._steps = 0
        self._final: tuple[str, tuple[str, ...]] = ("", ())

    def opening(self, url: str, request: str, tools: Sequence[str]) -> None:
        self._console.print(f"gateway  {url}/v1  (its own process hosts the diffusion engine)", style="dim")
        self._console.print(f"tools    {', '.join(tools)}", style="dim")
        self._console.print(Text.assemble(("user     ", "bold"), request))

    @contextmanager
    def answering(self) -> Iterator[None]:
        self._draft, self._steps, self._final = Text(), 0, ("", ())
        with Live(self._panel(), console=self._console, auto_refresh=False) as live:
            self._live = live
            yield
            self._draft = Text()
            live.update(self._panel(), refresh=True)
        self._live = None

    def draft(self, positions: Sequence[str | None]) -> None:
        self._steps += 1
        self._draft = Text()
        for position in positions:
            self._draft.append(MASK, style="dim") if position is None else self._draft.append(position, style="yellow")
        self._refresh()
        time.sleep(self._delay_s)

    def answer(self, content: str, calls: Sequence[str]) -> None:
        if (content, tuple(calls)) != self._final:
            self._final = (content, tuple(calls))
            self._refresh()

    def tool_result(self, name: str, arguments: str, result: str) -> None:
        self._console.print(Text.assemble(("tool     ", "bold"), f"{name}({arguments}) -> {result}"))

    def closing(self, answer: str, tokens_per_forward: float) -> None:
        self._console.print(Text.assemble(("answer   ", "bold"), answer))
        self._console.print(f"{tokens_per_forward:.2f} tokens per forward pass in the first answer", style="dim")

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._panel(), refresh=True)

    def _panel(self) -> Panel:
        content, calls = self._final
        lines = [Text(content)] if content else []
        lines += [Text(call, style="green") for call in calls]
        if self._draft:
            lines.append(self._draft)
        return Panel(Group(*lines), title=f"assistant, {self._steps} denoising steps", title_align="left")
