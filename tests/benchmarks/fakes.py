"""Contenders whose tasks are short Python programs without TensorFlow."""

from __future__ import annotations

import pathlib
import sys

from benchmarks.contenders import CellJob, Contender

SLEEP = "import time; time.sleep(600)"


def reporting(step_rate: float, num_reports: int = 5, first_time: float = 1000.0) -> str:
    """Program of a worker that reports `step_rate` steps/s at once for `num_reports` seconds, and then sleeps."""
    return f"""
import json, sys, time
with open(sys.argv[1], "w") as file:
    for i in range({num_reports}):
        record = {{"kind": "train", "wall_time": {first_time} + i, "local_step": 1 + {step_rate} * i}}
        file.write(json.dumps(record) + "\\n")
time.sleep(600)
"""


class Fake(Contender):
    """Runs `ps_program`, and one of `worker_programs` for each worker; `folders` records all runs."""

    def __init__(self, name: str, worker_programs: list[str], ps_program: str = SLEEP, is_chief_first: bool = False):
        self.name = name
        self.is_chief_first = is_chief_first
        self.folders: list[pathlib.Path] = []
        self._worker_programs = worker_programs
        self._ps_program = ps_program

    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        self.folders.append(job.folder)
        return [sys.executable, "-c", self._ps_program]

    def worker_command(self, job: CellJob, task_index: int) -> list[str]:
        return [sys.executable, "-c", self._worker_programs[task_index], str(self.report_path(job, task_index))]

    def report_path(self, job: CellJob, task_index: int) -> pathlib.Path:
        return job.folder / f"report-{task_index}.jsonl"
