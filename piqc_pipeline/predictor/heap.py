"""How does the process give memory back? Two calls to glibc; nothing on other platforms.

Refreshes allocate and free tens of MiB in short-lived arrays. glibc keeps them, one arena a thread; a thousand
workloads then took 280 MiB in place of 135.
"""

import ctypes
import sys
from functools import lru_cache

_M_ARENA_MAX = -8
"""`mallopt` parameter, malloc.h of glibc."""


@lru_cache(maxsize=1)
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return library if hasattr(library, "malloc_trim") else None


def use_one_arena() -> None:
    """Let all threads share one heap; call before threads start."""
    if (library := _glibc()) is not None:
        library.mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Return free pages to the system."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
