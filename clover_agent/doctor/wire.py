"""One endpoint over HTTP: ask it, and read what comes back with suspicion. Every wait and every answer has a limit.

Knows nothing of what an answer should say; whatever is no JSON, no event stream or no answer at all is `Trouble`.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from clover_agent.doctor.report import Trouble

MAX_ANSWER_BYTES = 8 * 1024 * 1024
SHOWN_CHARS = 160
DONE = "[DONE]"
STATUS_ADVICE: Mapping[int, str] = {
    401: "Give the key that the server wants: --api-key.",
    403: "The server refuses this client: key, Host header or address.",
    404: "Is the URL right? It usually ends in /v1.",
    429: "The server is busy; try again later.",
    503: "The server is not ready; look at its log and try again.",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, whole. `data` is its JSON, None if it is none."""

    status: int
    kind: str
    text: str

    @property
    def data(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One server-sent event: its name, if it had one, and its data: JSON, or the text that is none."""

    name: str
    data: Any


class Endpoint:
    """A server and what it needs to be asked. `url` may lack the scheme and the /v1. Close it, or use it in a `with`.

    timeout_s   for a whole request, however it drips
    """

    def __init__(self, url: str, api_key: str, timeout_s: float) -> None:
        address = (url if "://" in url else f"http://{url}").rstrip("/")
        self.base = address if address.endswith("/v1") else f"{address}/v1"
        self.timeout_s = timeout_s
        # Both headers, for both faces. Redirects are not followed: they would carry the key elsewhere.
        self._client = httpx.Client(
            timeout=timeout_s,
            headers={"Authorization": f"Bearer {api_key}", "x-api-key": api_key, "anthropic-version": "2023-06-01"},
        )

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """GET, or POST with a body. Any status is an answer; raises `Trouble` if there is none."""
        with self._troubled(path):
            return self._ask(path, body)

    def json(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object of an answer with status 200."""
        reply = self.ask(path, body)
        data = _good(reply, path).data
        if not isinstance(data, dict):
            raise Trouble(f"{path} answers {_shown(reply)}, no JSON object.", _not_json(reply))
        return data

    def events(self, path: str, body: Mapping[str, Any]) -> list[SentEvent]:
        """The events of a streamed answer, in order, comments left out."""
        reply = _good(self.ask(path, {**body, "stream": True}), path)
        if not reply.kind.startswith("text/event-stream"):
            raise Trouble(
                f"A stream was asked for, {path} answers with Content-Type {reply.kind or 'absent'}: {_shown(reply)}.",
                "Streams must be text/event-stream; is a proxy in between that does not pass them?",
            )
        return list(_events(reply.text))

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> Reply:
        deadline = time.monotonic() + self.timeout_s
        method = "GET" if body is None else "POST"
        content = bytearray()
        with self._client.stream(method, self.base + path, json=body) as response:
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise Trouble(f"The answer is longer than {MAX_ANSWER_BYTES >> 20} MiB.", "Does the model stop?")
                if time.monotonic() > deadline:
                    raise Trouble(*self._patience())
            kind = response.headers.get("content-type", "")
            return Reply(response.status_code, kind, content.decode(errors="replace"))

    @contextmanager
    def _troubled(self, path: str) -> Iterator[None]:
        where = self.base + path
        try:
            yield
        except httpx.ConnectError as error:
            raise Trouble(f"Nothing answers at {where}: {error}.", "Is the server up, and the URL right?") from error
        except httpx.TimeoutException as error:
            raise Trouble(*self._patience()) from error
        except httpx.RemoteProtocolError as error:
            raise Trouble(f"The connection was cut in mid-answer: {error}.", "Look at the server's log.") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Trouble(f"{where} cannot be asked: {error or type(error).__name__}.", "Is the URL right?") from error

    def _patience(self) -> tuple[str, str]:
        return (
            f"The answer was not complete after {self.timeout_s:g} s.",
            "Does the server hang, or is the model that slow? --timeout gives it longer.",
        )


def _good(reply: Reply, path: str) -> Reply:
    if reply.status != httpx.codes.OK:
        raise Trouble(f"{path} answers {reply.status}: {_message(reply)}", STATUS_ADVICE.get(reply.status, ""))
    return reply


def _message(reply: Reply) -> str:
    data = reply.data
    error = data.get("error") if isinstance(data, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message[:SHOWN_CHARS] if isinstance(message, str) else _shown(reply)


def _not_json(reply: Reply) -> str:
    if "<html" in reply.text[:500].lower():
        return "That is a web page: a proxy or another server answers at this URL."
    return "The answer must be a JSON object."


def _shown(reply: Reply) -> str:
    text = " ".join(reply.text[: 2 * SHOWN_CHARS].split())[:SHOWN_CHARS]
    return repr(text) if text else "nothing"


def _events(text: str) -> Iterator[SentEvent]:
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        lines = [line.partition(":") for line in block.split("\n") if line and not line.startswith(":")]
        values = [(name, value.removeprefix(" ")) for name, _, value in lines]
        data = [value for name, value in values if name == "data"]
        if data:
            name = next((value for key, value in values if key == "event"), "")
            yield SentEvent(name, _parsed("\n".join(data)))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
