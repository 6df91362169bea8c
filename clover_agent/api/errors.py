"""Errors on the wire, whoever raised them: Anthropic's shape on its own paths, OpenAI's on all others."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from clover_agent.errors import (
    AuthenticationFailed,
    CloverError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    Unavailable,
    UnsupportedParameter,
)
from clover_agent.telemetry import request_id

logger = logging.getLogger("clover_agent.api")

UNAVAILABLE_RETRY_S = 5
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it is for the log
ANTHROPIC_PATH = "/v1/messages"
ANTHROPIC_TYPES = {  # by status; anything else is an api_error
    **dict.fromkeys((400, 405, 415), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
UNSUPPORTED = "unsupported"  # type of the pydantic errors that become `UnsupportedParameter`


def speaks_anthropic(path: str) -> bool:
    """Whether a path, of whatever method or end, belongs to Anthropic's face."""
    return path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")


def anthropic_body(error: CloverError) -> dict[str, Any]:
    """The error in Anthropic's shape."""
    kind = ANTHROPIC_TYPES.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}, "request_id": request_id.get()}


def error_response(error: CloverError, path: str) -> JSONResponse:
    """The answer for an error raised before anything was sent, in the shape of the face that `path` belongs to."""
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, Unavailable):
        headers["Retry-After"] = str(UNAVAILABLE_RETRY_S)
    elif isinstance(error, AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    body = anthropic_body(error) if speaks_anthropic(path) else error.body()
    return JSONResponse(body, error.status, headers)


def public_error(error: Exception) -> CloverError:
    """What a client is told of an error: ours as it is; anything else is a defect, logged and not shown."""
    if isinstance(error, CloverError):
        return error
    logger.error("internal error", exc_info=error)
    return CloverError("Internal server error. The server's log says more.")


def from_validation(error: ValidationError | RequestValidationError) -> InvalidRequest:
    """The first complaint of pydantic, with the path of its field (`messages.2.content`)."""
    complaints = error.errors()
    first = complaints[0]
    path = first.get("ctx", {}).get("field") or field_path(first["loc"])
    kind = UnsupportedParameter if first["type"] == UNSUPPORTED else InvalidRequest
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return kind(f"{path}: {first['msg']}{more}" if path else f"{first['msg']}{more}", param=path or None)


def field_path(location: tuple[Any, ...]) -> str:
    """Dotted, without the tags of unions (they start with @)."""
    return ".".join(str(part) for part in location if not str(part).startswith("@"))


def install(app: FastAPI) -> None:
    """Register the handlers. What is not listed here is a defect and is answered by the guard."""

    async def on_clover_error(request: Request, error: Exception) -> Response:
        return error_response(public_error(error), request.url.path)

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker; FastAPI registers by type
        return error_response(from_validation(error), request.url.path)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
        response = error_response(_from_http(request, error), request.url.path)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    async def on_disconnect(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(CloverError, on_clover_error)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(ClientDisconnect, on_disconnect)


def _from_http(request: Request, error: HTTPException) -> CloverError:
    where = f"{request.method} {request.url.path}"
    if error.status_code == NotFound.status:
        return NotFound(f"There is nothing at {where}.")
    if error.status_code == MethodNotAllowed.status:
        return MethodNotAllowed(f"{where} is not allowed; see the Allow header.")
    return InvalidRequest(str(error.detail))
