"""Lets the C library keep freed memory for the next step, in place of giving it back to the kernel. No TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

# From <malloc.h> of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**30
_LARGEST_IN_HEAP = 2**25  # glibc takes no larger value
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory(environ: Mapping[str, str]) -> None:
    """Makes malloc keep up to 1 GiB of freed memory at the end of each heap, and 32 MiB blocks in heaps.

    By default glibc gives the memory of a step's tensors back to the kernel as soon as they are freed, from a few MiB
    on. The next step then waits for the kernel to clear every page again: for models of 0.1 MB to some 10 MB, a fifth
    of a step's processor time. Nothing changes where the C library is another one, or where the user has set malloc.

    Args:
        environ: Environment of the process, in which the user may have set malloc.
    """
    if any(name in environ for name in _VARIABLES) or "glibc.malloc." in environ.get("GLIBC_TUNABLES", ""):
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
