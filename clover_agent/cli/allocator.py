"""Tells glibc to keep the memory that the process frees, for a process that computes on the CPU all its life.

By default every large tensor is mapped and unmapped anew, and each of its pages faults: a fifth of a denoising step of
16 requests and of a prefill (`docs/performance.md`). For commands that own their process. Knows nothing of tensors.
"""

import ctypes
import os

# glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 512 << 20  # free bytes at the top of an arena beyond which they go back to the system
MAPPED_BYTES = 64 << 20  # an allocation of this size is mapped on its own


def keep_freed_memory() -> bool:
    """Set both thresholds, unless the environment names one (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_,
    GLIBC_TUNABLES). Returns whether it did; false without glibc."""
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))
