"""In processes of their own: what is set holds for the whole process and cannot be taken back."""

import subprocess
import sys

import pytest

# How many pages fault while the same 48 MiB are allocated and freed again and again.
CODE = """
import ctypes, resource
from clover_agent.cli.allocator import keep_freed_memory
kept = keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def once():
    at = libc.malloc(48 << 20)
    ctypes.memset(at, 1, 48 << 20)
    libc.free(at)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5): once()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_freed_memory_is_used_again() -> None:
    kept, faults = run()
    assert kept == "True"
    assert faults < 1000
    refused, more = run(MALLOC_TRIM_THRESHOLD_="131072")
    assert refused == "False"
    assert more > 10 * max(faults, 1)
