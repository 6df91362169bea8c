"""Reads a request file as the gateway reads a body, for the commands that look at one without serving it."""

from pathlib import Path

import typer

from clover_agent.api.body import parse_model
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_request import to_conversation
from clover_agent.api.openai_schema import ChatCompletionRequest
from clover_agent.errors import CloverError
from clover_agent.types import Conversation

ANY_CONTEXT = 1 << 31  # no model is loaded that could say


def read_request(path: Path) -> Conversation:
    """The conversation of a chat completion request. Raises `typer.BadParameter` with the gateway's own message."""
    try:
        body = parse_model(path.read_bytes(), ChatCompletionRequest)
        return to_conversation(body, SchemaChecker(), max_context=ANY_CONTEXT)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except CloverError as error:
        raise typer.BadParameter(f"{path}: {error}") from error
