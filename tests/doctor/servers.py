"""Endpoints for the doctor: one that does everything right, and ways to do one thing wrong."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def call(index: int, name: str = "get_weather") -> Json:
    arguments = json.dumps({"city": ("Lisbon", "Oslo")[index]})
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def good_message(body: Json) -> Json:
    """What a perfect model says to the doctor."""
    text = str(body["messages"])
    choice = body.get("tool_choice")
    if body.get("response_format"):
        return {"role": "assistant", "content": '{"name": "Ada", "age": 36}'}
    if body["messages"][-1]["role"] == "tool" or not body.get("tools"):
        return {"role": "assistant", "content": "Hello."}
    name = choice["function"]["name"] if isinstance(choice, dict) else "get_weather"
    calls = [call(index, name) for index in range(2 if "both at once" in text else 1)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


class GoodServer:
    """Right in every stage. Subclasses go wrong in one."""

    def models(self) -> Any:
        return {"object": "list", "data": [{"id": "m", "max_model_len": 131072}]}

    def message(self, body: Json) -> Json:
        return good_message(body)

    def finish(self, message: Json) -> str | None:
        return "tool_calls" if message.get("tool_calls") else "stop"

    def answer(self, body: Json) -> Any:
        message = self.message(body)
        choice = {"index": 0, "message": message, "finish_reason": self.finish(message)}
        return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": USAGE}

    def chunks(self, body: Json) -> Iterator[Any]:
        message = self.message(body)
        yield self.delta({"role": "assistant", "content": ""})
        if message.get("content"):
            yield self.delta({"content": message["content"]})
        for index, made in enumerate(message.get("tool_calls") or ()):
            yield from self.call(index, made)
        yield self.delta({}, self.finish(message))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {"id": "c", "choices": [], "usage": USAGE}

    def call(self, index: int, made: Json) -> Iterator[Any]:
        opened = {**made, "function": {**made["function"], "arguments": ""}}
        yield self.delta({"tool_calls": [{"index": index, **opened}]})
        piece = {"index": index, "function": {"arguments": made["function"]["arguments"]}}
        yield self.delta({"tool_calls": [piece]})

    def delta(self, delta: Json, finish: str | None = None) -> Json:
        return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def sse(self, body: Json) -> bytes:
        data = [*(json.dumps(chunk) for chunk in self.chunks(body)), *self.end()]
        return "".join(f": comment\n\ndata: {one}\n\n" for one in data).encode()

    def end(self) -> list[str]:
        return ["[DONE]"]

    def get(self, path: str) -> tuple[int, str, bytes]:
        if path == "/v1/models":
            return 200, "application/json", json.dumps(self.models()).encode()
        return self.error(404, "nothing here")

    def post(self, path: str, body: Json) -> tuple[int, str, bytes]:
        if path != "/v1/chat/completions":
            return self.error(404, "nothing here")
        if not isinstance(body["messages"], list):
            return self.error(400, "messages must be a list")
        if body.get("stream"):
            return 200, "text/event-stream", self.sse(body)
        return 200, "application/json", json.dumps(self.answer(body)).encode()

    def error(self, status: int, message: str) -> tuple[int, str, bytes]:
        return status, "application/json", json.dumps({"error": {"message": message}}).encode()


class Hanging(GoodServer):
    """Opens a chat's answer and never ends it; `release` lets its threads go."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def post(self, path: str, body: Json) -> tuple[int, str, bytes]:
        self.release.wait(30)
        return super().post(path, body)


Write = Callable[[int, str, bytes], None]


def _handler(server: GoodServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*server.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*server.post(self.path, body))

        def _send(self, status: int, kind: str, content: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            pass

    return Handler


@contextmanager
def serving(server: GoodServer) -> Iterator[str]:
    """The server on a free port; yields its URL."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        if isinstance(server, Hanging):
            server.release.set()
        httpd.shutdown()
        thread.join()
        httpd.server_close()
