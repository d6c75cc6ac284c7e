"""Packages of peers in a separate folder, and the separate process in which a peer uses them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.contenders import REPOSITORY
from ps_trainer.launch.command import cpu_environment


def install(folder: pathlib.Path, packages: Sequence[str], deadline_secs: float) -> None:
    """Fills a folder with packages by pip, unless it exists."""
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={folder}", *packages]
        subprocess.run(command, check=True, timeout=deadline_secs)


def versions(folder: pathlib.Path, packages: Sequence[str]) -> list[str]:
    """Returns the name and version of each package, and of NumPy, from the names of their metadata folders."""
    wanted = {name.replace("-", "_").lower() for name in (*packages, "numpy")}
    found = (path.name.removesuffix(".dist-info").split("-") for path in sorted(folder.glob("*.dist-info")))
    return [" ".join(parts) for parts in found if parts[0].lower() in wanted]


def run(module: str, args: Sequence[str], folder: pathlib.Path, deadline_secs: float) -> str:
    """Runs a module with the packages of a folder; returns what it prints.

    Raises:
        subprocess.SubprocessError: The peer failed, or took longer than its deadline.
    """
    environ = cpu_environment(os.environ) | {"PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}"}
    command = [sys.executable, "-m", module, *args]
    done = subprocess.run(
        command, env=environ, cwd=REPOSITORY, timeout=deadline_secs, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout
