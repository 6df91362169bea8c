"""Run by `test_drain`: a gateway whose service drains until a line comes on stdin, or until it is told to hurry."""

import asyncio
import socket
import sys

from clover_agent.api import Server, create_app
from clover_agent.types import TextDelta
from tests.api.fakes import STARTED, Pause, ScriptedService, finished, settings


class DrainingService(ScriptedService):
    """Says "draining" when it is closed. "end" on stdin lets the answers end, any other line cuts them off."""

    def __init__(self, pause: Pause) -> None:
        super().__init__([STARTED, TextDelta("x"), pause, TextDelta("y"), finished()])
        self.pause = pause

    async def close(self, drain_s: float = 0.0) -> None:
        if drain_s > 0:
            asyncio.get_running_loop().add_reader(sys.stdin, self._told)
            print("draining", flush=True)
            await self.closed.wait()
        self.closed.set()

    def _told(self) -> None:
        if sys.stdin.readline() == "end\n":
            self.pause.go.set()
        self.closed.set()


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server_settings = settings(drain_s=30)
    server = Server(create_app(DrainingService(Pause()), server_settings), server_settings.server)
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
