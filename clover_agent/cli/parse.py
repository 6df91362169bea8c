"""`clover-agent parse`: what the gateway would make of a model's raw output."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from clover_agent.cli.request_file import read_request
from clover_agent.errors import CloverError
from clover_agent.formats import get_format
from clover_agent.loading import load_text_parts
from clover_agent.parsing import Parser, collect
from clover_agent.settings import ModelSettings
from clover_agent.types import Segment, Tool

WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")


def parse(
    *,
    format: Annotated[str, typer.Option("--format", help="Tool format: qwen_xml, hermes_json, or an alias.")],  # noqa: A002
    request: Annotated[Path | None, typer.Option(help="The request whose tools the output may call, JSON.")] = None,
    model: Annotated[str, typer.Option(help="Whose control tokens: sprout, or a checkpoint.")] = "sprout",
    thinking: Annotated[bool, typer.Option("--thinking", help="The prompt ended inside an open thought.")] = False,
) -> None:
    """Parse raw model output from standard input into an assistant message.

    Control strings in the input count as control tokens, as if the model had written them. Without --request any tool
    name is accepted, and values of an XML call are read as JSON where they are JSON.
    """
    text = sys.stdin.buffer.read().decode("utf-8", errors="replace").removesuffix("\n")
    # Without a request every word of the output may be the name of a tool.
    tools = tuple(map(Tool, set(WORD.findall(text)))) if request is None else read_request(request).tools
    try:
        format_ = get_format(format)
        tokenizer, _, _ = load_text_parts(ModelSettings(model=model))
        detokenizer = tokenizer.detokenizer()
        ids = tokenizer.encode([Segment(text, trusted=True)])
        parser = Parser(format_, tools, thinking=thinking)
        events = [*parser.feed(detokenizer.feed(ids)), *parser.feed(detokenizer.flush()), *parser.flush()]
    except CloverError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    answer = collect(events)
    message: dict[str, object] = {"role": "assistant", "content": answer.content or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    typer.echo(json.dumps(message, indent=2, ensure_ascii=False))
    if parser.open_call:
        typer.echo("The output ends inside a tool call; the call is not shown.", err=True)
