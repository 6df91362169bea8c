"""What the commands that ask an endpoint share: reading its URL and JSON options."""

import json
from typing import Any

import typer


def v1_url(url: str) -> str:
    """The base URL with its /v1, however it was given."""
    bare = (url if "://" in url else f"http://{url}").rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"


def json_object(text: str, option: str) -> dict[str, Any]:
    """Raises `typer.BadParameter` for anything but a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=option) from error
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object", param_hint=option)
    return value
