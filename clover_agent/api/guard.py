"""The door: request id, Host and Origin, API key, one log line a request. Plain ASGI, so that streams pass untouched.

A web page must not drive a gateway on its reader's machine: pages reach local servers under a name of their own
(DNS rebinding), which the Host check refuses; and from foreign origins, which the Origin check refuses.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
import time
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clover_agent.api.errors import error_response, public_error, speaks_anthropic
from clover_agent.errors import AuthenticationFailed, Forbidden
from clover_agent.settings import ServerSettings
from clover_agent.telemetry import request_id

logger = logging.getLogger("clover_agent.access")

GOOD_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
PORT = re.compile(r":\d*$")
OPEN_PATHS = frozenset({"/v1/health"})
KEYED = ("/v1/", "/tokenize", "/detokenize")  # beginnings of the paths that want a key
PROBED = frozenset({"/health", "/v1/health", "/metrics"})  # asked every few seconds: logged at debug


class Guard:
    """Lets in what may come in; everything else gets its error here, without touching the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._hosts = {host.lower() for host in (*settings.allowed_hosts, settings.host)}
        self._origins = {origin.lower() for origin in settings.allowed_origins}
        self._keys = [_digest(key.get_secret_value()) for key in settings.api_key]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identity = _identity(headers)
        token = request_id.set(identity)
        began = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                sent["X-Request-Id"] = identity
                if speaks_anthropic(scope["path"]):
                    sent["request-id"] = identity
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            if status:
                raise
            await error_response(public_error(error), scope["path"])(scope, receive, send_with_id)
        finally:
            seconds = round(time.monotonic() - began, 3)
            fields = {"method": scope["method"], "path": scope["path"][:200], "status": status, "seconds": seconds}
            level = logging.DEBUG if scope["path"] in PROBED and status == 200 else logging.INFO
            logger.log(level, "request", extra={"fields": fields})
            request_id.reset(token)

    def _check(self, scope: Scope, headers: Headers) -> None:
        self._check_host(headers)
        self._check_origin(headers)
        path: str = scope["path"]
        preflight = scope["method"] == "OPTIONS"
        if self._keys and path.startswith(KEYED) and path not in OPEN_PATHS and not preflight:
            self._check_key(headers)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if not ("*" in self._hosts or name in self._hosts or _is_local_or_address(name)):
            raise Forbidden(f"The host {name[:100]!r} is not allowed here; the operator can allow it: --allowed-hosts.")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin", "").lower()
        if not origin or "*" in self._origins or origin in self._origins:
            return
        if urlsplit(origin).netloc != headers.get("host", "").lower():
            raise Forbidden(
                f"Pages of {origin[:100]!r} may not use this server; the operator can allow it: --allowed-origins."
            )

    def _check_key(self, headers: Headers) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        digests = [_digest(bearer), _digest(headers.get("x-api-key", ""))]  # clients may send both, one of them a dummy
        matches = [hmac.compare_digest(digest, good) for good in self._keys for digest in digests]  # all, always
        if not any(matches):
            raise AuthenticationFailed(
                "The API key is missing or wrong. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _identity(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if GOOD_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets, lower case."""
    name = PORT.sub("", host.lower())
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name.rstrip(".")


def _is_local_or_address(name: str) -> bool:
    """Rebinding needs a name; an address cannot be rebound."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
