"""Request bodies: bytes to a checked JSON object, with limits on size, depth and number of values.

Knows nothing of what the fields mean.
"""

import asyncio
import json
import math
import re
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from clover_agent.api.errors import from_validation
from clover_agent.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType

MAX_DEPTH = 64
MAX_VALUES = 500_000
# An oversized body is read and dropped up to so many limits: a client that is still writing reads no answer.
DISCARD_FACTOR = 4

HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # an escaped surrogate; whole pairs match too and stay as they are

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[Any, ...]  # nested pairs (parent, key), flattened only for a message


async def read_body(request: Request, model: type[Model], max_bytes: int) -> Model:
    """The body as a `model`. Raises `UnsupportedMediaType`, `PayloadTooLarge` or `InvalidRequest` naming the field."""
    _check_type(request)
    return await asyncio.to_thread(parse_model, await _read(request, max_bytes), model)


def parse_model(raw: bytes, model: type[Model]) -> Model:
    """The bytes of a body as a `model`. Raises `InvalidRequest` naming the field."""
    try:
        return model.model_validate(parse_object(raw))
    except ValidationError as error:
        raise from_validation(error) from error


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object within the limits, all numbers finite, all strings encodable."""
    try:
        value = json.loads(raw.decode("utf-8-sig"))
        if HALF_PAIR.search(raw):
            value = _mended(value)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not valid UTF-8 (byte {error.start}).") from error
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidRequest(f"The body is nested more than {MAX_DEPTH} levels deep.") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidRequest(f"The body holds a number that is too long: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    _check_values(value)
    return value


def _check_type(request: Request) -> None:
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    charset = parameters.lower().partition("charset=")[2].strip(' "') or "utf-8"
    if not (media == "application/json" or (media.startswith("application/") and media.endswith("+json"))):
        raise UnsupportedMediaType(f"Content-Type must be application/json, not {media or 'absent'}.")
    if charset not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("The body must be UTF-8.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Content-Encoding is not supported; send the body as it is.")


async def _read(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen <= max_bytes:
            body += chunk
        else:
            body.clear()
            if seen > DISCARD_FACTOR * max_bytes:
                break
    if seen > max_bytes:
        raise PayloadTooLarge(f"The body is larger than {max_bytes} bytes.")
    return bytes(body)


def _check_values(root: dict[str, Any]) -> None:
    """Raises `InvalidRequest` for what is out of the limits."""
    stack: list[tuple[Any, Path, int]] = [(root, (), 0)]
    count = 0
    while stack:
        value, path, depth = stack.pop()
        count += 1
        if count > MAX_VALUES:
            raise InvalidRequest(f"The body holds more than {MAX_VALUES} values.")
        if isinstance(value, dict | list):
            if depth >= MAX_DEPTH:
                field = dotted(path).partition(".")[0]
                raise InvalidRequest(f"{field}: nested more than {MAX_DEPTH} levels deep.", param=field)
            items = value.items() if isinstance(value, dict) else enumerate(value)
            stack.extend((child, (path, key), depth + 1) for key, child in items)
        elif isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"{dotted(path)}: must be a finite number.", param=dotted(path))


def _mended(value: Any) -> Any:
    """Half surrogate pairs replaced: clients that cut text in the middle of an emoji send them."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(text)


def dotted(path: Path) -> str:
    """`messages.2.content` from nested pairs."""
    parts: list[str] = []
    while path:
        path, key = path
        parts.append(str(key))
    return ".".join(reversed(parts))
