from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.supervisor import REPEATED_SIGNAL_SECS, ShutdownDeadlines
from tests.launch import fakes

PROJECT = pathlib.Path(__file__).resolve().parents[2]

LAUNCHER = """
import json, sys
from ps_trainer.config import TrainConfig
from ps_trainer.launch import local, local_cluster
command, logdir, num_evaluators = json.loads(sys.argv[1])
cluster = local_cluster.LocalClusterSpec(num_evaluators=num_evaluators, config=TrainConfig(logdir=logdir), plain=True,
                             task_command=command)
sys.exit(local.run(cluster))
"""


@pytest.fixture
def launcher_process(tmp_path):
    """Starts a launcher with fake tasks as a separate process; its folder exists, so the launcher leaves it there."""
    logdir = tmp_path / "run"
    logdir.mkdir()
    started = []

    def start(behaviours, num_evaluators=0):
        argument = json.dumps([fakes.task_command(behaviours), str(logdir), num_evaluators])
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, argument],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=PROJECT,
        )
        started.append(process)
        return process

    start.logdir = logdir
    for _ in fakes.end_leftovers(logdir):
        yield start
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_records_instead_of_raising_and_restores_the_handler(signum):
    def handler(*_):
        raise AssertionError("the recorder did not replace this handler")

    outer = signal.signal(signum, handler)  # not the default: nohup, for example, ignores SIGHUP
    try:
        with SignalRecorder() as signals:
            assert signals.first is None
            os.kill(os.getpid(), signum)
            assert signals.first == signum
        assert signal.getsignal(signum) == handler
    finally:
        signal.signal(signum, outer)


def test_first_signal_wins():
    with SignalRecorder() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.first == signal.SIGTERM


def test_reports_a_later_ctrl_c_by_its_time():
    now = [10.0]
    with SignalRecorder(time_fn=lambda: now[0]) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert not signals.has_ctrl_c_after(10.0)
        now[0] = 11.0
        os.kill(os.getpid(), signal.SIGTERM)
        assert not signals.has_ctrl_c_after(10.0)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.has_ctrl_c_after(10.0)


def test_keeps_ignoring_hangup_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalRecorder() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.first is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_leaves_handlers_alone_off_the_main_thread():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter():
        with SignalRecorder():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_workers_first_so_that_the_chief_can_save(launcher_process, signum, code):
    process = launcher_process(
        {
            "before": "if name != 'ps-0': on_term(lambda: (time.sleep(0.2), mark('saved-' + name), sys.exit(143)))\n"
            "else: on_term(lambda: (mark('ps saw ' + str(has('saved-worker-0'))), sys.exit(143)))",
            "ps": "sleep_for_ever()",
            "worker": "sleep_for_ever()",
            "evaluator": "sleep_for_ever()",
        },
        num_evaluators=1,
    )
    logdir = launcher_process.logdir
    fakes.wait_until(lambda: len(fakes.marked_pids(logdir)) == 4, "four tasks")
    process.send_signal(signum)
    output, _ = process.communicate(timeout=fakes.DEADLINE_SECS)
    assert process.returncode == code, output
    assert not any(fakes.is_alive(pid) for pid in fakes.marked_pids(logdir))
    assert fakes.marks(logdir) >= {"saved-worker-0", "saved-worker-1", "saved-evaluator-0", "ps saw True"}
    assert output.splitlines()[-1].startswith("interrupted after")


@pytest.mark.process
def test_ctrl_c_ends_everything_within_ten_seconds_even_tasks_that_ignore_it(launcher_process):
    process = launcher_process(
        {
            "before": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
            "ps": "sleep_for_ever()",
            "worker": "mark('pid-child-of-' + name, str(grandchild()))\nsleep_for_ever()",
        }
    )
    logdir = launcher_process.logdir
    fakes.wait_until(lambda: len(fakes.marked_pids(logdir)) == 5, "three tasks and two of their children")
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=fakes.DEADLINE_SECS)
    assert time.monotonic() - begin < 10
    assert process.returncode == 130
    fakes.assert_all_gone(logdir, 5)


def test_second_ctrl_c_kills_at_once(launcher_process):
    process = launcher_process(
        {"before": "on_term(lambda: mark('asked-' + name))", "ps": "sleep_for_ever()", "worker": "sleep_for_ever()"}
    )
    logdir = launcher_process.logdir
    fakes.wait_until(lambda: len(fakes.marked_pids(logdir)) == 3, "three tasks")
    process.send_signal(signal.SIGINT)
    fakes.wait_until(lambda: {"asked-worker-0", "asked-worker-1"} <= fakes.marks(logdir), "workers asked to end")
    begin = time.monotonic()
    fakes.wait_until(lambda: time.monotonic() > begin + REPEATED_SIGNAL_SECS, "a Ctrl-C not to count as the same one")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=fakes.DEADLINE_SECS)
    assert process.returncode == 130
    assert time.monotonic() - begin < ShutdownDeadlines().workers_end
    fakes.assert_all_gone(logdir, 3)
