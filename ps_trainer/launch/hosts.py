"""Where the tasks of a local cluster run: what a host is to the launcher, and the plain one, this machine itself."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

from ps_trainer.cluster import ports
from ps_trainer.errors import RunError


class TaskHost(NamedTuple):
    """Where one task runs.

    Attributes:
        address: `host:port` under which the other tasks reach it.
        netns: name of the network namespace that the task is in; None = that of the launcher.
    """

    address: str
    netns: str | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """A program that enters the namespace and becomes the task, with its arguments; the command follows."""
        return ("ip", "netns", "exec", self.netns) if self.netns else ()


class Hosts(Protocol):
    """Hosts for the tasks of one run. Use as a context manager: they live as long as it is entered."""

    def __enter__(self) -> Hosts:
        """Makes sure that such hosts can be made here.

        Raises:
            OptionError: they cannot; the message says why. Nothing is left behind.
        """

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Removes everything that was made, also when only a part of it was."""

    @property
    def has_links(self) -> bool:
        """Whether each task has a host with a link of its own."""

    def set_link(self, task: str, *, is_up: bool) -> None:
        """Has the link of a task's host carry nothing, or what it carried before; only where `has_links`.

        Raises:
            RunError: it cannot be set.
        """

    @property
    def summary(self) -> str:
        """What these hosts are, for the launcher's first line; empty where there is nothing to say."""

    def place(self, tasks: Sequence[str]) -> Mapping[str, TaskHost]:
        """Makes a host for each task ("ps-0", "worker-1"); to be called once.

        Raises:
            RunError: a host could not be made.
        """

    def write_report(self, logdir: pathlib.Path) -> None:
        """Writes what is known about the hosts and their traffic; called when the tasks have ended."""


class LocalHosts:
    """Every task on this machine itself, on a free port of its own.

    Args:
        pick_ports: gives so many free ports of this machine.
    """

    summary = ""
    has_links = False

    def __init__(self, pick_ports: Callable[[int], Sequence[int]] = ports.pick_free_ports):
        self._pick_ports = pick_ports

    def __enter__(self) -> LocalHosts:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing was made."""

    def set_link(self, task: str, *, is_up: bool) -> None:
        """There are none.

        Raises:
            RunError: always.
        """
        raise RunError(f"{task} has no link of its own")

    def place(self, tasks: Sequence[str]) -> dict[str, TaskHost]:
        """`localhost` with a port for each task.

        Raises:
            ClusterConfigError: this machine has too few free ports.
        """
        return {
            task: TaskHost(f"localhost:{port}") for task, port in zip(tasks, self._pick_ports(len(tasks)), strict=True)
        }

    def write_report(self, logdir: pathlib.Path) -> None:
        """Writes nothing: the loopback interface does not tell the tasks' bytes apart."""
