"""`Hosts`, the places where the launcher puts tasks, and `LocalHosts`: all tasks on this machine itself."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

from ps_trainer.cluster import ports
from ps_trainer.errors import RunError


class TaskHost(NamedTuple):
    """The place of one task.

    Attributes:
        address: `host:port` at which the other tasks reach the task.
        netns: Name of the task's network namespace; None = the namespace of the launcher.
    """

    address: str
    netns: str | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before the task's command: a program that enters the namespace and then becomes the task."""
        return ("ip", "netns", "exec", self.netns) if self.netns else ()


class Hosts(Protocol):
    """Hosts for the tasks of one run; a context manager that removes the hosts on leaving."""

    def __enter__(self) -> Hosts:
        """Checks that this system can make such hosts.

        Raises:
            OptionError: It cannot, for the reason in the message; nothing is left behind.
        """

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Removes everything that was made, even after an error halfway."""

    @property
    def has_links(self) -> bool:
        """Whether each task has its own network link."""

    def set_link(self, task: str, *, is_up: bool) -> None:
        """Cuts or restores the link of a task's host; only if `has_links`.

        Raises:
            RunError: The link cannot be set.
        """

    @property
    def summary(self) -> str:
        """Description of the hosts for the launcher's first line; empty for plain hosts."""

    def place(self, tasks: Sequence[str]) -> Mapping[str, TaskHost]:
        """Makes a host for each task ("ps-0", "worker-1"); call only once.

        Raises:
            RunError: A host could not be made.
        """

    def write_report(self, logdir: pathlib.Path) -> None:
        """Writes a report about the hosts and their traffic; called after the tasks have ended."""


class LocalHosts:
    """Places every task on this machine itself, on a separate free port.

    Args:
        pick_ports: Function that returns a number of free ports of this machine.
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
        """Removes nothing, because nothing was made."""

    def set_link(self, task: str, *, is_up: bool) -> None:
        """Rejects every call: the tasks have no separate links.

        Raises:
            RunError: Always.
        """
        raise RunError(f"{task} has no separate link")

    def place(self, tasks: Sequence[str]) -> dict[str, TaskHost]:
        """Returns `localhost` with a port for each task.

        Raises:
            ClusterConfigError: This machine has too few free ports.
        """
        return {
            task: TaskHost(f"localhost:{port}") for task, port in zip(tasks, self._pick_ports(len(tasks)), strict=True)
        }

    def write_report(self, logdir: pathlib.Path) -> None:
        """Writes nothing: the loopback interface does not tell the tasks' bytes apart."""
