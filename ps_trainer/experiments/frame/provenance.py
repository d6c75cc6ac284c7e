"""Where numbers come from: command, commit, versions, machine, and which code measured them."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PACKAGES = ("tensorflow", "numpy", "grpcio", "protobuf", "matplotlib")
_CPUINFO = pathlib.Path("/proc/cpuinfo")
_MEMINFO = pathlib.Path("/proc/meminfo")
_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = _PACKAGE.parent
_GIB = 1024**2  # in the kB of meminfo


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """What a reader needs to judge the numbers or to take them again.

    Args:
        command: the command line, as typed.

    Returns:
        JSON values: command, time, commit, versions, machine and its load (average of 1, 5, 15 minutes).
    """
    return {
        "command": shlex.join(command),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "has_uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def origin_sentence(origin: Mapping[str, Any]) -> str:
    """What `provenance` gave, in a sentence to stand below a table."""
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    changes = " with uncommitted changes" if origin["has_uncommitted_changes"] else ""
    load = ", ".join(map(str, origin["load_average"]))
    return (
        f"`{origin['command']}`, {origin['started'][:10]}, commit {(origin['commit'] or 'unknown')[:7]}{changes},"
        f" Python {origin['python']}, {versions}; {origin['cores']} cores, {origin['cpu']}, load average at the"
        f" start {load}."
    )


def code_version(experiment_type: type, measures_with: Iterable[str] = ()) -> str:
    """A digest of the code on which an experiment's results depend; another one means measuring again.

    That is the package and its models, without the commands and the frame of the experiments, but with the
    experiment's own file, those it inherits from, and what drives clusters.

    Args:
        experiment_type: the experiment's class.
        measures_with: more modules, dotted.
    """
    files = {path for path in _PACKAGE.rglob("*.py") if _part_of(path) not in ("cli", "experiments")}
    files |= set((REPOSITORY / "models").rglob("*.py"))
    files.add(_PACKAGE / "experiments" / "lab" / "clusters.py")
    files |= {pathlib.Path(inspect.getfile(cls)) for cls in experiment_type.__mro__ if _is_own(cls)}
    files |= {pathlib.Path(importlib.util.find_spec(module).origin) for module in measures_with}
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _part_of(path: pathlib.Path) -> str:
    return path.relative_to(_PACKAGE).parts[0]


def _is_own(cls: type) -> bool:
    """Whether a class is an experiment's own code: neither Python's nor the frame's."""
    return cls.__module__ != f"{__package__}.base" and cls.__module__.split(".")[0] not in sys.stdlib_module_names


def _git(*args: str) -> str | None:
    """Output of a git command; None where there is no repository or no git."""
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


def _cpu_model() -> str:
    return _value_of(_CPUINFO, "model name") or platform.machine()


def _memory_gib() -> float | None:
    total = _value_of(_MEMINFO, "MemTotal")
    return round(int(total.split()[0]) / _GIB, 1) if total else None


def _value_of(path: pathlib.Path, name: str) -> str | None:
    """Value of the first line `name : value` of a file; None without one."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return None
