"""`ip` and `tc` as this package uses them: run one command, probe what the system can do, own and clear namespaces.

Every namespace made here is named `ps_trainer-<pid>-<start>-<what>`: process id and start time of the launcher
that made it. The pair tells a living launcher from a dead one even after its pid has been given to another process,
so what a killed launcher left can be cleared without harm to any other.
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
    """A process, told from every other one that has or had its pid.

    Attributes:
        pid: process id as /proc has it.
        started: when it started, in clock ticks since the machine did.
    """

    pid: int
    started: int

    def namespace(self, what: str) -> str:
        """Name of this process's namespace for `what`: lower-case letters, digits and "-"."""
        return f"ps_trainer-{self.pid}-{self.started}-{what}"


class Facilities(NamedTuple):
    """What the system can do.

    Attributes:
        problem: why shaped hosts cannot be made here, in words; empty if they can.
        has_netem: whether the kernel can add latency and loss, too (nothing here depends on it).
    """

    problem: str
    has_netem: bool


def run(command: Sequence[str]) -> str:
    """Runs one command to its end; returns its standard output.

    It runs in a session of its own, so that a Ctrl-C at the terminal cannot leave half of a host behind.

    Raises:
        RunError: it cannot be run, fails, or takes longer than `COMMAND_SECS`; with the command and its words.
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
        words = " ".join(result.stderr.split()) or "no message"
        raise RunError(f"`{text}`: exit {result.returncode}: {words}")
    return result.stdout


def ip(namespace: str, arguments: str) -> list[str]:
    """The command `ip` in that namespace."""
    return ["ip", "-n", namespace, *arguments.split()]


def tc(namespace: str, arguments: str) -> list[str]:
    """The command `tc` in that namespace."""
    return ["tc", "-n", namespace, *arguments.split()]


def owner(pid: int | str = "self") -> Owner | None:
    """The living process with this pid; None if there is none, or it only waits to be collected by its parent."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # "12 (a name, maybe with blanks) S 1 …": the state is field 3, the start time field 22.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Owner(int(text.split(maxsplit=1)[0]), int(fields[22 - 3]))


def own_process() -> Owner:
    """The process that calls.

    Raises:
        RunError: `/proc` does not show it.
    """
    found = owner()
    if found is None:
        raise RunError(f"{_PROC}/self/stat cannot be read; mount /proc")
    return found


def probe(run: Run = run) -> Facilities:
    """Tries out, in a namespace that is removed again, everything that shaped hosts need. Takes about 0.1 s."""
    if problem := _missing_tool():
        return Facilities(problem, has_netem=False)
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
        return Facilities("", _succeeds(run, tc(name, "qdisc add dev two root netem delay 1ms")))
    except RunError as error:
        return Facilities(str(error), has_netem=False)
    finally:
        _succeeds(run, ["ip", "netns", "del", name])


def namespaces(run: Run = run) -> list[str]:
    """Names of all network namespaces that have one, those of other programs among them."""
    return [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines() if line.strip()]


def remove_leftovers(run: Run = run) -> list[str]:
    """Removes the namespaces of launchers that are dead; returns their names.

    Those of living launchers and of other programs stay. A namespace that a process still is in loses its name
    at once, and ends with that process.
    """
    found = [(name, _NAME.fullmatch(name)) for name in namespaces(run)]
    dead = [name for name, match in found if match and not _is_alive(Owner(int(match["pid"]), int(match["started"])))]
    return [name for name in dead if _succeeds(run, ["ip", "netns", "del", name])]  # else another start was faster


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
