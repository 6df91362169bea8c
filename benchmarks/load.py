"""A server process to ask, and the clock of what it computes."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import httpx


def processor_clock(pid: int) -> Callable[[], float]:
    """Seconds of processor time that a process has used (Linux: the clock that `clock_getcpuclockid` names)."""
    return partial(time.clock_gettime, (~pid << 3) | 2)


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run `python -m …` with a free port appended; its URL and process id once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", *arguments, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            try:
                if httpx.get(f"{url}/health").is_success:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()
