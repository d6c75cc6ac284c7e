"""Memory of a process, as the kernel counts it (Linux)."""

from __future__ import annotations

import pathlib

_KIB_PER_MIB = 1024


def rss_mib(pid: int) -> float:
    """Returns the resident memory of a process in MiB; OSError if it has ended, or on another system."""
    return _status_mib(pid, "VmRSS:")


def peak_mib(pid: int) -> float:
    """Returns the largest resident memory of a process so far in MiB; OSError if it has ended, or on another system."""
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int, field: str) -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / _KIB_PER_MIB
    raise ProcessLookupError(pid)  # a process that has ended and is not yet reaped has no memory
