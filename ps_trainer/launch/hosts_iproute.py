"""Runs `ip` and `tc`, probes what the system supports, and names and removes network namespaces.

Every namespace of this package is named `ps_trainer-<pid>-<start>-<what>`, by pid and start time of the launcher that
made it. The pair distinguishes a living launcher from a dead one even if the kernel has given the pid to another
process. So the namespaces of a killed launcher can be removed without harm to any other launcher.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ps_trainer.errors import RunError

Run = Callable[[Sequence[str]], str]

COMMAND_SECS = 30.0
_NAME = re.compile(r"ps_trainer-(?P<pid>\d+)-(?P<started>\d+)-(?P<what>[a-z0-9-]+)")
_PROC = pathlib.Path("/proc")


class Owner(NamedTuple):
    """A process, distinguished from every other process that has or had the same pid.

    Attributes:
        pid: Process id as /proc shows it.
        started: Start time in clock ticks since the machine started.
    """

    pid: int
    started: int

    def namespace(self, what: str) -> str:
        """Returns the name of this process's namespace for `what`: lower-case letters, digits and "-"."""
        return f"ps_trainer-{self.pid}-{self.started}-{what}"


class NetworkSupport(NamedTuple):
    """Abilities of this system.

    Attributes:
        problem: Reason why shaped hosts cannot be made here; empty if they can.
        has_netem: True if the kernel can also add latency and loss (only reported).
    """

    problem: str
    has_netem: bool


def run(command: Sequence[str]) -> str:
    """Runs one command to its end; returns its standard output.

    It runs in a separate session, so that a Ctrl-C at the terminal cannot leave half of a host behind.

    Raises:
        RunError: The command cannot be run, fails, or takes longer than `COMMAND_SECS`.
    """
    text = " ".join(command)
    try:
        result = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMMAND_SECS,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"`{text}`: {error}") from error
    if result.returncode:
        message = " ".join(result.stderr.split()) or "no message"
        raise RunError(f"`{text}`: exit {result.returncode}: {message}")
    return result.stdout


def ip(namespace: str, arguments: str) -> list[str]:
    """Returns the command line of `ip` in that namespace."""
    return ["ip", "-n", namespace, *arguments.split()]


def tc(namespace: str, arguments: str) -> list[str]:
    """Returns the command line of `tc` in that namespace."""
    return ["tc", "-n", namespace, *arguments.split()]


def owner(pid: int | str = "self") -> Owner | None:
    """Returns the living process with this pid; None if it has ended, even if its parent has not collected it yet."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # "12 (a name, maybe with blanks) S 1 …": the state is field 3, the start time field 22.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Owner(int(text.split(maxsplit=1)[0]), int(fields[22 - 3]))


def own_process() -> Owner:
    """Returns the calling process.

    Raises:
        RunError: `/proc` does not show it.
    """
    found = owner()
    if found is None:
        raise RunError(f"{_PROC}/self/stat cannot be read; mount /proc")
    return found


def probe(run: Run = run) -> NetworkSupport:
    """Tries every command that shaped hosts need, in a temporary namespace. Takes about 0.1 s."""
    if problem := _missing_tool():
        return NetworkSupport(problem, has_netem=False)
    # A trial is the only reliable answer: root may lack the capabilities (containers), and the kernel may lack tbf.
    name = own_process().namespace("probe")
    needed = (
        ["ip", "netns", "add", name],
        ["ip", "netns", "exec", name, "true"],
        ip(name, "link add name bridge type bridge"),
        ip(name, "link add name one type veth peer name two"),
        tc(name, "qdisc add dev one root tbf rate 1mbit burst 64kb latency 1ms"),
    )
    try:
        for command in needed:
            run(command)
        return NetworkSupport("", _succeeds(run, tc(name, "qdisc add dev two root netem delay 1ms")))
    except RunError as error:
        return NetworkSupport(str(error), has_netem=False)
    finally:
        _succeeds(run, ["ip", "netns", "del", name])


def namespaces(run: Run = run) -> list[str]:
    """Returns the names of all named network namespaces, including those of other programs."""
    return [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines() if line.strip()]


def remove_leftovers(run: Run = run) -> list[str]:
    """Removes the namespaces of launchers that are dead; returns their names.

    Namespaces of living launchers and of other programs stay. If a process is still in a removed namespace, the
    namespace loses its name at once and ends with that process.
    """
    found = [(name, _NAME.fullmatch(name)) for name in namespaces(run)]
    dead = [name for name, match in found if match and not _is_alive(Owner(int(match["pid"]), int(match["started"])))]
    return [
        name for name in dead if _succeeds(run, ["ip", "netns", "del", name])
    ]  # fails if another launcher has removed it meanwhile


def _missing_tool() -> str:
    if sys.platform != "linux":
        return f"network namespaces are a facility of Linux, this is {sys.platform}"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found on PATH; install iproute2" if missing else ""


def _is_alive(process: Owner) -> bool:
    return owner(process.pid) == process


def _succeeds(run: Run, command: Sequence[str]) -> bool:
    with contextlib.suppress(RunError):
        run(command)
        return True
    return False
