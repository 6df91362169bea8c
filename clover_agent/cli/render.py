"""`clover-agent render`: the exact prompt that a request becomes, control tokens and trust made visible."""

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from clover_agent.cli.request_file import read_request
from clover_agent.errors import CloverError
from clover_agent.loading import load_text_parts
from clover_agent.settings import ModelSettings
from clover_agent.types import Segment

Kind = Literal["control", "look-alike", "text"]
STYLES: dict[Kind, str] = {"control": "reverse", "look-alike": "underline", "text": ""}
BRACKETS: dict[Kind, str] = {"control": "⟦{}⟧", "look-alike": "‹{}›", "text": "{}"}


def render(
    *,
    request: Annotated[Path, typer.Option(help="A chat completion request, JSON.")],
    model: Annotated[str, typer.Option(help="Whose template: sprout, replay:FILE, or a checkpoint.")] = "sprout",
    tool_call_parser: Annotated[str, typer.Option(help="Tool format, as for serve.")] = "auto",
    ids: Annotated[bool, typer.Option("--ids", help="Print the token ids instead.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print the bare text, nothing marked.")] = False,
) -> None:
    """Print the exact prompt of a request.

    Control tokens are shown in inverse video, look-alikes that stay text are underlined; where there is no terminal,
    they are written as ⟦…⟧ and ‹…›.
    """
    conversation = read_request(request)
    try:
        tokenizer, template, _ = load_text_parts(ModelSettings(model=model, tool_call_parser=tool_call_parser))
        segments = template.render(conversation).segments
    except CloverError as error:
        raise typer.BadParameter(str(error)) from error
    if ids:
        typer.echo(" ".join(map(str, tokenizer.encode(segments))))
    elif plain:
        typer.echo("".join(segment.text for segment in segments), nl=False)
    elif sys.stdout.isatty():
        parts = [(text, STYLES[kind]) for text, kind in marked(segments, tokenizer.control)]
        Console(soft_wrap=True, highlight=False).print(Text.assemble(*parts))
    else:
        typer.echo("".join(BRACKETS[kind].format(text) for text, kind in marked(segments, tokenizer.control)))


def marked(segments: Iterable[Segment], control: Collection[str]) -> Iterator[tuple[str, Kind]]:
    """The prompt in runs: control tokens, strings that only look like one, and text."""
    strings = re.compile("(" + "|".join(map(re.escape, sorted(control, key=len, reverse=True))) + ")")
    for segment in segments:
        for part in strings.split(segment.text):
            if part:
                kind: Kind = "control" if segment.trusted else "look-alike"
                yield part, kind if part in control else "text"
