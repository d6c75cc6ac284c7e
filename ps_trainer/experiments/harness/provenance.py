"""The provenance of numbers: command, commit, versions and machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_PACKAGES = ("tensorflow", "numpy", "grpcio", "protobuf", "matplotlib")
_CPUINFO = pathlib.Path("/proc/cpuinfo")
_MEMINFO = pathlib.Path("/proc/meminfo")
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_GIB = 1024**2  # kB of meminfo in a GiB


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON values that a reader needs to judge the numbers or to measure them again.

    They are the command line as typed, time, commit, versions, the machine, and its load averages of 1, 5 and 15
    minutes.
    """
    return {
        "command": shlex.join(command),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "has_uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "system": platform.platform(),
        "cpu": _value_of(_CPUINFO, "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def committed(origin: Mapping[str, Any]) -> str:
    """Returns the commit whose code runs now, from the values of `provenance`; empty where no commit has that code."""
    return "" if origin["has_uncommitted_changes"] else origin["commit"] or ""


def origin_sentence(origin: Mapping[str, Any]) -> str:
    """Returns the values of `provenance` in a sentence, to stand below a table."""
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    changes = " with uncommitted changes" if origin["has_uncommitted_changes"] else ""
    load = ", ".join(map(str, origin["load_average"]))
    return (
        f"`{origin['command']}`, {origin['started'][:10]}, commit {(origin['commit'] or 'unknown')[:7]}{changes},"
        f" Python {origin['python']}, {versions}; {origin['cores']} cores, {origin['cpu']}, load average at the start"
        f" {load}."
    )


def _git(*args: str) -> str | None:
    """Returns the output of a git command; None without a repository or without git."""
    try:
        done = subprocess.run(["git", *args], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    total = _value_of(_MEMINFO, "MemTotal")
    return round(int(total.split()[0]) / _GIB, 1) if total else None


def _value_of(path: pathlib.Path, name: str) -> str | None:
    """Returns the value of the first line `name : value` of a file; None without one."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return None
