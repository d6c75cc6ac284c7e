"""The commands of a tutorial, typed one after the other in empty folders, give the output that its page shows."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ps_trainer.launch.command import cpu_environment
from tests.testing.processes import END_SECS, ROOT, START_SECS, wait_until

PAGE = ROOT / "docs" / "tutorials" / "raw-data-to-answers.md"
ADDRESS = "http://127.0.0.1:8501"
# What differs from run to run: numbers, durations such as "59.9 s" and "1:05", and characters that a model predicts.
NUMBER, BYTES = r"\d[\d,.:]*(?:e[-+]\d+)?(?: s\b)?", r"b'[^']*'"


def sections() -> list[list[tuple[str, str]]]:
    """The blocks of each section: "sh" with commands or "text" with the output of those before it."""
    texts = re.split("^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = [re.findall(r"^```(sh|text)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL) for text in texts]
    return [blocks for blocks in found if blocks]


def pattern_of(line: str) -> str:
    """A regular expression of a line of the page, which allows other numbers and predicted characters."""
    fixed, *rest = re.split(f"({NUMBER}|{BYTES})", line)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return re.escape(fixed) + "".join(
        (BYTES if changing.startswith("b") else NUMBER) + re.escape(then) for changing, then in pairs
    )


def assert_shows(output: str, shown: str) -> None:
    """Each line that the page shows is in the output, in this order; the page leaves out lines, also where "…" is."""
    lines = iter(output.splitlines())
    for line in shown.splitlines():
        if line.strip() != "…":
            assert any(re.fullmatch(pattern_of(line), found) for found in lines), f"no line {line!r} in\n{output}"


class Shell:
    """A reader's shell in an empty folder, whose `python` and `ps_trainer` are those of this clone.

    Args:
        folder: Folder to work in; a folder `bin` beside it gets the two programs.
    """

    def __init__(self, folder):
        self.folder, programs = folder / "work", folder / "bin"
        for path in (self.folder, programs):
            path.mkdir(parents=True)
        for name, command in (("python", sys.executable), ("ps_trainer", f'{sys.executable}" -m "ps_trainer')):
            (programs / name).write_text(f'#!/bin/sh\nexec "{command}" "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.environ = cpu_environment(os.environ) | {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def start(self, commands: str, **kwargs) -> subprocess.Popen:
        shell = ["bash", "-eo", "pipefail", "-c", commands]
        return subprocess.Popen(shell, cwd=self.folder, env=self.environ, text=True, start_new_session=True, **kwargs)

    def run(self, commands: str) -> str:
        """Runs a block of commands; returns its standard output."""
        running = self.start(commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, errors = running.communicate(timeout=START_SECS)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise
        assert running.returncode == 0, f"{commands}\n{output[-4000:]}\n{errors[-4000:]}"
        return output

    @contextlib.contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Keeps a server running, on a free port; yields its address, and ends it by Ctrl-C."""
        output = self.folder / "serve.txt"
        with output.open("w") as file:
            server = self.start(f"exec {command.strip()} --port=0", stdout=file, stderr=subprocess.STDOUT)
        try:
            is_ready = lambda: server.poll() is not None or "http://" in output.read_text()  # noqa: E731
            wait_until(is_ready, START_SECS, "the server is not ready")
            yield re.search(r"http://[\d.]+:\d+", output.read_text())[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(END_SECS) == 130
        finally:
            server.kill()
            server.wait()


def type_in(shell: Shell, blocks: list[tuple[str, str]]) -> int:
    """Types the commands of a section, and compares their output with the page; returns the number of comparisons."""
    address, commands, output, num_shown = ADDRESS, "", "", 0
    with contextlib.ExitStack() as servers:
        for kind, text in blocks:
            if text.startswith("ps_trainer serve "):
                address = servers.enter_context(shell.serving(text))
            elif kind == "sh":
                commands, output = text, shell.run(text.replace(ADDRESS, address))
            elif prompt := re.search(r'ps_trainer generate .*--prompt="([^"]+)"', commands):
                # Each run writes another text.
                assert all(shown.startswith(prompt[1]) and len(shown) > 100 for shown in (text, output))
            else:
                assert_shows(output, text)
                num_shown += 1
    return num_shown


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page calls curl")
def test_the_commands_of_the_page_give_what_it_shows(tmp_path):
    """Each section in another folder, at the same time: they need nothing of each other."""
    found = sections()
    shells = [Shell(tmp_path / str(number)) for number in range(len(found))]
    with ThreadPoolExecutor(len(found)) as readers:
        assert sum(readers.map(type_in, shells, found)) >= 7


def test_a_line_of_the_page_allows_other_numbers_and_nothing_else():
    assert re.fullmatch(pattern_of("done after 1:22; files in runs/a"), "done after 29.4 s; files in runs/a")
    assert re.fullmatch(pattern_of("done after 29.4 s; files in runs/a"), "done after 1:22; files in runs/a")
    assert re.fullmatch(pattern_of("[b's' b't']"), "[b'a' b' ']")
    assert not re.fullmatch(pattern_of("4.680477e-05,no"), "0.5,yes")
    assert_shows("a 1\nx\nb 2\nc\n", "a 5\n  …\nc\n")
    with pytest.raises(AssertionError, match="no line 'a 5'"):
        assert_shows("b 2\na 1\n", "b 1\na 5\na 5\n")
