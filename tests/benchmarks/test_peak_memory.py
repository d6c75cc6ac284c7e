"""The peaks of the tasks of a run: by task, and until a time."""

from __future__ import annotations

import os

from benchmarks import peak_memory
from tests.testing.processes import wait_until


def test_the_peak_of_a_task_is_the_largest_until_a_time(tmp_path):
    watch = peak_memory.PeakWatch(tmp_path)
    watch.samples = {"worker-0": [(10.0, 300.0), (20.0, 700.0)], "worker-1": [(12.0, 400.0)], "ps-0": [(5.0, 900.0)]}
    assert watch.mib("worker-0") == 700 and watch.mib("worker-0", until=15.0) == 300
    assert watch.mib("worker-", until=15.0) == 400
    assert watch.mib("ps-", until=1.0) == 0


def test_a_thread_samples_while_the_run_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(peak_memory, "processes_of", lambda logdir, pid: [("ps-0", os.getpid()), ("ps-1", 0)])
    with peak_memory.PeakWatch(tmp_path) as watch:
        wait_until(lambda: watch.samples, 10.0, "no sample")
    assert watch.samples.keys() == {"ps-0"}  # the other process has ended
    assert watch.mib("ps-") > 1
