"""Random mutants of a commit, each run against the tests of its folder in a copy of the tree.

The copy holds the commit's own files in a separate folder, so the working tree is not touched. That folder also keeps
the results so far: the map of the statements that each test runs, and each mutant's verdict. So a stopped campaign
continues.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant, instrument, places_of
from tests.mutation.session import PROBE

ERROR = "error"
_SESSION = pathlib.Path(__file__).with_name("session.py")
_TESTS_RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_MIN_LIMIT_SECS, _LIMIT_FACTOR, _MAP_LIMIT_SECS = 30.0, 10.0, 600.0


class MutantOutcome(NamedTuple):
    """The result of a mutant.

    Attributes:
        outcome: "failed" (a test failed), "timeout" (a test took `_LIMIT_FACTOR` times its time without the mutant),
            "crash" (the process died), "survived", or "error" (pytest could not run the tests, so nothing is known).
        by: Id of the test, or name of the file that could not be imported; "" for a survivor and an error.
        why: Message of the failure.
        reached_by: Number of tests that run the statement.
        secs: Seconds of the session.
    """

    outcome: str
    by: str
    why: str
    reached_by: int
    secs: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Campaign:
    """The code to break, and the place of the trials.

    Attributes:
        repository: Repository that contains the commit.
        commit: Commit that all files are taken from.
        package: Folder of the code; its subfolder X has its tests in `tests/X`.
        folders: Subfolders of `package`.
        work: Folder for the copy and the results so far; created if it does not exist.
        excluded: Files that are not changed, from the root of the tree.
    """

    repository: pathlib.Path
    commit: str
    package: str
    folders: tuple[str, ...]
    work: pathlib.Path
    excluded: tuple[str, ...] = ()

    @property
    def tree(self) -> pathlib.Path:
        """Folder of the copy."""
        return self.work / "tree"

    def export(self) -> None:
        """Makes the copy, or restores it."""
        self.tree.mkdir(parents=True, exist_ok=True)
        git = ["git", "-C", str(self.repository), "archive", self.commit]
        files = subprocess.run(git, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(self.tree)], input=files, check=True)

    def places(self) -> list[list[Mutant]]:
        """All places in the folders' files."""
        files = [path for folder in self.folders for path in sorted((self.tree / self.package / folder).rglob("*.py"))]
        names = [path.relative_to(self.tree).as_posix() for path in files]
        kept = [name for name in names if name not in self.excluded]
        return [place for name in kept for place in places_of(name, (self.tree / name).read_text(encoding="utf-8"))]

    def pick(self, seed: int, count: int) -> list[Mutant]:
        """One mutant for each of `count` places with equal probability; a seed gives the same mutants each time."""
        random_ = random.Random(seed)
        return [random_.choice(place) for place in random_.sample(self.places(), count)]

    def run(self, mutants: Sequence[Mutant], say: Callable[[str], None] = print) -> list[tuple[Mutant, MutantOutcome]]:
        """Tries each mutant without a verdict; an error is not kept, so the next call tries that mutant again."""
        known = self.work / "verdicts.jsonl"
        verdicts = _read_lines(known)
        tried = {Mutant(*mutant): MutantOutcome(*verdict) for mutant, verdict in verdicts}
        for number, mutant in enumerate(mutants, 1):
            if mutant not in tried:
                tried[mutant] = self.try_out(mutant)
                if tried[mutant].outcome != ERROR:
                    with known.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([mutant, tried[mutant]]) + "\n")
            verdict = tried[mutant]
            place = f"{mutant.path}:{mutant.line} {mutant.kind}"
            say(
                f"{number}/{len(mutants)} {place}: {verdict.outcome} {verdict.by or verdict.why} ({verdict.secs:.0f} s)"
            )
        return [(mutant, tried[mutant]) for mutant in mutants]

    def try_out(self, mutant: Mutant) -> MutantOutcome:
        """Runs the folder's tests with one mutant until one notices it; the likeliest tests come first."""
        tests = self.tests_of(mutant.path.split("/")[1])
        order, reached_by = _likeliest_first(mutant, tests)
        limits = {test: max(_MIN_LIMIT_SECS, _LIMIT_FACTOR * tests[test]["secs"]) for test in order}
        with self._changed({mutant.path: mutant.apply}):
            began = time.monotonic()
            code, events = self._session(files=_files_of(order), order=order, limits=limits, stops=True)
        return MutantOutcome(*_end_of(code, events), reached_by, round(time.monotonic() - began, 1))

    def tests_of(self, folder: str) -> dict[str, dict[str, Any]]:
        """The tests of a folder that pass without a mutant: id -> {"secs", "hits"}, found by one run of all tests."""
        known = self.work / f"tests-{folder}.json"
        if not known.exists():
            paths = sorted((self.tree / self.package / folder).rglob("*.py"))
            names = [path.relative_to(self.tree).as_posix() for path in paths]
            changes = {name: lambda source, name=name: instrument(name, source, PROBE) for name in names}
            with self._changed(changes):
                _, events = self._session(files=[f"tests/{folder}"], order=None, limits={}, stops=False)
            if not any(event.get("finished") in _TESTS_RAN for event in events):
                raise RuntimeError(f"tests/{folder} does not end normally without a mutant: {events[-1:]}")
            failed = {event["failed"] for event in events if "failed" in event}
            ended = [event for event in events if "ended" in event and event["ended"] not in failed]
            tests = {event["ended"]: {"secs": event["secs"], "hits": event["hits"]} for event in ended}
            known.write_text(json.dumps({"failed": sorted(failed), "passed": tests}), encoding="utf-8")
        return json.loads(known.read_text(encoding="utf-8"))["passed"]

    @contextmanager
    def _changed(self, changes: dict[str, Callable[[str], str]]) -> Iterator[None]:
        """Files of the copy that differ from the commit's."""
        sources = {name: (self.tree / name).read_text(encoding="utf-8") for name in changes}
        try:
            for name, change in changes.items():
                (self.tree / name).write_text(change(sources[name]), encoding="utf-8")
            yield
        finally:
            for name, source in sources.items():
                (self.tree / name).write_text(source, encoding="utf-8")

    def _session(self, **plan: Any) -> tuple[int, list[dict[str, Any]]]:
        """Runs tests in the copy; returns exit code and events. It ends every process that a mutant has started."""
        plan_path, events_path = self.work / "plan.json", self.work / "events.jsonl"
        plan_path.write_text(json.dumps(plan | {"limit": _MAP_LIMIT_SECS}), encoding="utf-8")
        events_path.unlink(missing_ok=True)
        # Compiled code is not written, because Python might take another mutant's for this one's.
        env = os.environ | {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(_SESSION), str(plan_path), str(events_path)]
        with (self.work / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait()
            finally:
                _end_group(process)
        return code, _read_lines(events_path)


def write_table(path: pathlib.Path, results: Sequence[tuple[Mutant, MutantOutcome]]) -> None:
    """Writes a CSV file with one line per mutant."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["number", "place", "kind", "before", "after", *MutantOutcome._fields])
        for number, (mutant, verdict) in enumerate(results, 1):
            before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
            writer.writerow([number, f"{mutant.path}:{mutant.line}", mutant.kind, before, after, *verdict])


def _likeliest_first(mutant: Mutant, tests: dict[str, dict[str, Any]]) -> tuple[list[str], int]:
    """The tests to run, and the number of them that run the mutant's statement.

    Those come first: the module's own tests before others, quick files and tests before slow ones. Other tests of these
    files with the same parameters follow, because tests share earlier results. A statement that runs at import belongs
    to all tests that run its module.
    """
    place, module = f"{mutant.path}:{mutant.statement}", f"{mutant.path}:"
    reached = [test for test, coverage in tests.items() if place in coverage["hits"]]
    near = reached or [
        test for test, coverage in tests.items() if any(hit.startswith(module) for hit in coverage["hits"])
    ]
    near = near or list(tests)
    own = f"test_{pathlib.PurePath(mutant.path).stem}.py"

    def rank(file: str) -> tuple[bool, float]:
        return not file.endswith(f"/{own}"), sum(tests[test]["secs"] for test in near if _file_of(test) == file)

    files = sorted(_files_of(near), key=rank)
    quick_first = sorted(near, key=lambda test: tests[test]["secs"])
    first = [test for file in files for test in quick_first if _file_of(test) == file]
    taken, cases = set(first), {_case_of(test) for test in first}
    return first + [test for test in tests if test not in taken and _case_of(test) in cases], len(reached)


def _end_of(code: int, events: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    """(outcome, by, why) of a session."""
    for event in events:
        if "failed" in event:
            return "failed", event["failed"], event["why"]
    for event in events:
        if event.get("finished") == pytest.ExitCode.OK:
            return "survived", "", ""
        if "finished" in event:
            return ERROR, "", f"pytest ended with exit code {event['finished']}"
    ended = {event["ended"] for event in events if "ended" in event}
    last = [event["started"] for event in events if event.get("started", "") not in {"", *ended}]
    return "crash" if code < 0 else "timeout", last[-1] if last else "between the tests", f"exit code {code}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills all processes in a process's own group, including the process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _file_of(test: str) -> str:
    return test.split("::")[0]


def _case_of(test: str) -> tuple[str, str]:
    """A test's file and parameters."""
    return _file_of(test), test.partition("[")[2]


def _files_of(tests: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_file_of(test) for test in tests))


def _read_lines(path: pathlib.Path) -> list[Any]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
