"""Runs a plan of tests in a copy of the tree and records the end of each, for `campaign.py`. A script.

    python session.py PLAN.json EVENTS.jsonl    (in the root of the copy)

The plan: "files" of tests; "order", the ids of the tests to run, or None for all; "limits", seconds by test, and
"limit" for the others; "stops", whether the first failure ends the session. The events are lines of JSON:
{"started": id}, {"failed": id, "why": text}, {"ended": id, "secs": s, "hits": statements that ran}, and
{"finished": exit code of pytest}.
"""

from __future__ import annotations

import builtins
import faulthandler
import json
import os
import sys
import time
from typing import Any

import pytest

IDLE_SECS = 120.0  # for the phases between tests: imports, collection, the end of the session
PROBE = "__mutation_probe__"


class Recorder:
    """A pytest plugin that orders the tests as planned and writes events.

    Args:
        plan: Plan as described in the module's docstring.
        events: Open text file.
    """

    def __init__(self, plan: dict[str, Any], events: Any):
        self._plan, self._events = plan, events
        self._hits: set[str] = set()
        self._began = 0.0

    @pytest.hookimpl(trylast=True)  # after the ordering by the project's own conftest
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        if self._plan["order"] is None:
            return
        ranks = {nodeid: rank for rank, nodeid in enumerate(self._plan["order"])}
        left_out = [item for item in items if item.nodeid not in ranks]
        items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])
        config.hook.pytest_deselected(items=left_out)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(failed=report.nodeid, why=_last_line(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(started=nodeid)
        self._began, self._hits = time.monotonic(), set()
        setattr(builtins, PROBE, self._hits.add)
        _end_after(self._plan["limits"].get(nodeid, self._plan["limit"]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write(failed=report.nodeid, why=_last_line(report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        _end_after(IDLE_SECS)
        hits = sorted(self._hits.copy())
        self._write(ended=nodeid, secs=round(time.monotonic() - self._began, 2), hits=hits)

    def _write(self, **event: Any) -> None:
        self._events.write(json.dumps(event) + "\n")
        self._events.flush()


def main(plan_path: str, events_path: str) -> None:
    """Runs the plan; does not return."""
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    setattr(builtins, PROBE, lambda place: None)
    _end_after(IDLE_SECS)
    with open(events_path, "w", encoding="utf-8") as events:
        arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:xdist"]
        stops = ["-x"] if plan["stops"] else []
        code = pytest.main([*arguments, *stops, *plan["files"]], plugins=[Recorder(plan, events)])
        events.write(json.dumps({"finished": int(code)}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # ignores any threads that a mutant has left


def _end_after(secs: float) -> None:
    """Ends the process if it has not moved on after `secs`, even inside a C call that never returns."""
    faulthandler.dump_traceback_later(secs, exit=True, file=sys.__stderr__)


def _last_line(report: Any) -> str:
    """The line of a failure in pytest's summary."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] if crash else lines[-1])[:200] if lines else ""


if __name__ == "__main__":
    sys.path[0] = ""  # the root of the copy, as for `python -m pytest`; not the folder of this file
    main(*sys.argv[1:])
