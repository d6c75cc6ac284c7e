"""Memory that a step frees serves the next step, without page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, os, resource
from ps_trainer.runtime import allocator
if {is_kept}:
    allocator.keep_freed_memory(os.environ)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def step():
    blocks = [libc.malloc(2**22) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 2**22)
    for block in blocks:
        libc.free(block)
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES_OF_A_STEP = 4 * 2**22 // 4096


def page_faults(is_kept: bool, **environ: str) -> int:
    """Returns the page faults of ten steps, each of which writes and frees 16 MiB."""
    own = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", _PROGRAM.format(is_kept=is_kept)]
    return int(subprocess.run(command, env=own | environ, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is set")
def test_freed_memory_is_kept_unless_the_user_has_set_malloc():
    assert page_faults(is_kept=True) < _PAGES_OF_A_STEP
    given_back = 9 * _PAGES_OF_A_STEP  # by glibc's default, and by the user's value
    assert page_faults(is_kept=False) > given_back
    assert page_faults(is_kept=True, MALLOC_TRIM_THRESHOLD_="131072") > given_back
    assert page_faults(is_kept=True, GLIBC_TUNABLES="glibc.malloc.trim_threshold=131072") > given_back
