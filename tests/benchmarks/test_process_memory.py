"""The memory of a process, against its own allocation and for a process that has ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.process_memory import peak_mib, rss_mib

_ALLOCATE = """
import sys
content = bytearray(b"1") * 2**28
del content
print("freed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process():
    """A process that has had 256 MiB and has freed them."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _ALLOCATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout.readline() == "freed\n"
        yield started


def test_freed_memory_counts_only_in_the_peak(process):
    assert 1 < rss_mib(process.pid) < 256 < peak_mib(process.pid) < 512


@pytest.mark.parametrize("read", [rss_mib, peak_mib])
def test_a_process_that_has_ended_has_no_memory(process, read):
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not yet reaped
    with pytest.raises(ProcessLookupError):
        read(process.pid)
    process.wait()
    with pytest.raises(OSError):
        read(process.pid)
