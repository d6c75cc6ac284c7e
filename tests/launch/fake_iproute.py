"""A stand-in for `ip` and `tc`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ps_trainer.errors import RunError


class FakeSystem:
    """Simulates `ip` and `tc`, but only which network namespaces exist.

    Args:
        namespaces: Names of the namespaces that exist at first.
        broken: Function that decides whether a command, its words joined by blanks, fails.
    """

    def __init__(self, namespaces: Iterable[str] = (), broken: Callable[[str], bool] = lambda command: False):
        self.namespaces = set(namespaces)
        self.commands: list[str] = []
        self._broken = broken

    def __call__(self, command: Sequence[str]) -> str:
        """Runs a command like `ps_trainer.launch.hosts_iproute.run`."""
        text = " ".join(command)
        self.commands.append(text)
        if self._broken(text):
            raise RunError(f"`{text}`: exit 1: out of order")
        match command:
            case ["ip", "netns", "add", name]:
                self.namespaces.add(name)
            case ["ip", "netns", "del", name] if name not in self.namespaces:
                raise RunError(f"`{text}`: exit 1: no such file")
            case ["ip", "netns", "del", name]:
                self.namespaces.remove(name)
            case ["ip", "netns", "list"]:
                return "".join(f"{name} (id: 3)\n" for name in sorted(self.namespaces))
        return ""
