from __future__ import annotations

import dataclasses
import datetime
import errno
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest
from rich.console import Console

from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, RunError, UsageError
from ps_trainer.launch import local, task_factory
from ps_trainer.launch.hosts import LocalHosts
from ps_trainer.launch.local_cluster import LocalClusterSpec
from ps_trainer.launch.supervisor import ShutdownDeadlines
from tests.launch import fakes

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SERVE = "on_term(sys.exit)\nmark('serving')\nsleep_for_ever()"
SERVE_UNTIL_WORKERS_ARE_DONE = "wait_for('done-worker-0'); wait_for('done-worker-1')"
FINISH = "mark('done-' + name)"
CLUSTER_FIELDS = {field.name for field in dataclasses.fields(LocalClusterSpec)}


@pytest.fixture
def launch(tmp_path):
    """Runs a cluster of fake tasks in this process; returns exit code and output."""
    logdir = tmp_path / "run"

    def run(behaviours, *, console=None, **kwargs):
        output = io.StringIO()
        described = {key: kwargs.pop(key) for key in tuple(kwargs) if key in CLUSTER_FIELDS}
        defaults = {
            "config": TrainConfig(logdir=str(logdir)),
            "plain": True,
            "task_command": fakes.task_command(behaviours),
        }
        code = local.run(
            LocalClusterSpec(**{**defaults, **described}), console=console or Console(file=output), **kwargs
        )
        return code, output.getvalue()

    run.logdir = logdir
    for _ in fakes.end_leftovers(logdir):
        yield run


def test_success_is_0_and_tasks_get_their_flags_and_environment(launch):
    show = "print(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
    code, output = launch(
        {"ps": show + SERVE_UNTIL_WORKERS_ARE_DONE, "worker": show + FINISH},
        train_args=["--model=cnn", "--inter_op_threads=7"],
        hosts=LocalHosts(pick_ports=lambda n: range(5000, 5000 + n)),
        environ={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "MINE": "kept"},
    )
    assert code == 0, output
    assert "done after" in output.splitlines()[-1]
    for name, job, index in (("ps-0", "ps", 0), ("worker-0", "worker", 0), ("worker-1", "worker", 1)):
        flags, environment = json.loads((launch.logdir / "logs" / f"{name}.log").read_text())
        cluster = ["--ps_hosts=localhost:5000", "--worker_hosts=localhost:5001,localhost:5002"]
        assert flags[:4] == [f"--job_name={job}", f"--task_index={index}", *cluster]
        assert flags[4:6] == ["--model=cnn", "--inter_op_threads=7"]
        assert flags[6:] == [f"--logdir={launch.logdir}"]
        assert environment["PS_TRAINER_PARENT_PID"] == str(os.getpid())
        assert (environment["TF_CPP_MIN_LOG_LEVEL"], environment["MINE"]) == ("3", "kept")


def test_evaluator_is_started_and_waited_for(launch):
    code, output = launch(
        {
            "ps": SERVE_UNTIL_WORKERS_ARE_DONE,
            "worker": FINISH,
            "evaluator": "wait_for('done-worker-0')\n"
            "record(kind='eval', global_step=1000, metrics={'accuracy': 0.978})",
        },
        num_evaluators=1,
    )
    assert code == 0, output
    assert "evaluation at step 1,000: accuracy 0.978" in output.splitlines()


def test_failed_task_ends_the_others_and_shows_its_log_first(launch):
    code, output = launch(
        {
            "ps": SERVE,
            "worker-0": "on_term(sys.exit)\nmark('training')\nsleep_for_ever()",
            "worker-1": "wait_for('training'); wait_for('serving')\n"
            "for i in range(40): print('line', i)\nraise SystemExit('out of luck')",
        }
    )
    assert code == 1
    fakes.assert_all_gone(launch.logdir, 3)
    report = output[output.index("worker-1: failed (exit 1); last lines of") :].splitlines()
    assert report[0].endswith(f"{launch.logdir}/logs/worker-1.log:")
    assert report[1:26] == [f"  line {i}" for i in range(40 - 24, 40)] + ["  out of luck"]
    states = [line for line in report[26:] if line.startswith(("ps-0:", "worker-0:"))]
    assert [line.split(",")[0] for line in states] == ["ps-0: done", "worker-0: done"]


def test_wrong_usage_passes_through(launch):
    code, output = launch({"ps": SERVE, "worker-0": "sleep_for_ever()", "worker-1": "print('bad flag'); sys.exit(2)"})
    assert code == 2
    assert "  bad flag" in output.splitlines()


REJECTED = "print('error: two files'); sys.exit(2)"


def test_input_that_a_task_rejects_is_one_error_and_leaves_no_folder(launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    behaviours = {"ps": SERVE, "worker-0": "on_term(sys.exit)\nsleep_for_ever()", "worker-1": REJECTED}
    for logdir in (None, "new/folder/run"):
        output = io.StringIO()
        with pytest.raises(UsageError, match=r"^two files$"):
            launch(behaviours, config=TrainConfig(logdir=logdir), console=Console(file=output))
        assert "last lines of" not in output.getvalue()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("logged", [False, True])
def test_rejected_input_removes_only_what_the_run_has_made(launch, logged):
    for name in ("logs", "checkpoints"):
        (launch.logdir / name).mkdir(parents=True)
        (launch.logdir / name / "model.ckpt-5.index").touch()
    prefix = "E1127 08:48:21.260708 139683313220480 job_runner.py:205] " if logged else ""
    lines = ["W1127 08:48:20.0 1 a.py:1] no", f"{prefix}error: two", "files", "I1127 08:48:22.0 1 b.py:1] x"]
    error = f"print(*{lines!r}, sep=chr(10))"
    with pytest.raises(UsageError, match=r"^two\nfiles$"):
        launch({"ps": SERVE, "worker-0": f"{error}; record(kind='state', state='x'); sys.exit(2)"}, num_workers=1)
    assert {path.name for path in launch.logdir.iterdir()} == {"logs", "checkpoints"}
    assert all((launch.logdir / name / "model.ckpt-5.index").exists() for name in ("logs", "checkpoints"))


@pytest.mark.parametrize("done", ["a step", "a save"])
def test_input_that_is_rejected_after_a_step_or_a_save_keeps_the_folder(launch, done):
    did = {
        "a step": "record(kind='train', global_step=3)",
        "a save": "(logdir / 'checkpoints').mkdir(); (logdir / 'checkpoints' / 'model.ckpt-3.index').touch()",
    }
    behaviours = {"ps": SERVE, "worker-0": f"{did[done]}\n{REJECTED}"}
    if done == "a step":
        code, output = launch(behaviours, num_workers=1)
        assert code == 2 and "worker-0: failed (exit 2); last lines of" in output
    else:
        with pytest.raises(UsageError, match="two files"):
            launch(behaviours, num_workers=1)
    assert (launch.logdir / "logs" / "worker-0.log").read_text() == "error: two files\n"


INTERRUPT = (
    "wait_for('pid-ps-0')\nos.kill(int(os.environ['PS_TRAINER_PARENT_PID']), signal.SIGINT)\n"
    "on_term(sys.exit)\nsleep_for_ever()"
)


@pytest.mark.parametrize("logdir", [None, "new/folder/run"])
def test_ctrl_c_before_the_first_step_leaves_no_folder(launch, tmp_path, monkeypatch, logdir):
    monkeypatch.chdir(tmp_path)
    code, output = launch({"ps": SERVE, "worker": INTERRUPT}, config=TrainConfig(logdir=logdir), num_workers=1)
    assert code == 130
    end = output.splitlines()[-1]
    assert end.startswith("interrupted after ") and end.endswith(", before the first step; its files are removed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("had", ["a folder", "a step", "a save"])
def test_ctrl_c_keeps_the_folder_of_a_run_that_had_something(launch, had):
    did = {
        "a folder": "",
        "a step": "record(kind='train', global_step=3)\n",
        "a save": "(logdir / 'checkpoints').mkdir(); (logdir / 'checkpoints' / 'model.ckpt-3.index').touch()\n",
    }
    if had == "a folder":
        launch.logdir.mkdir()
    code, output = launch({"ps": SERVE, "worker": did[had] + INTERRUPT}, num_workers=1)
    assert code == 130
    assert output.splitlines()[-1].endswith(f"; files in {launch.logdir}")
    assert (launch.logdir / "logs" / "worker-0.log").exists()


def test_killed_ps_is_blamed_and_not_the_worker_that_lost_it(launch):
    code, output = launch(
        {
            "ps": "wait_for('training'); os.kill(os.getpid(), signal.SIGKILL)",
            "worker-0": "wait_for('pid-ps-0')\n"
            "stat = pathlib.Path('/proc', (logdir / 'marks' / 'pid-ps-0').read_text(), 'stat')\n"
            "mark('training')\n"
            "try:\n"
            "    while ' Z ' not in stat.read_text(): pass\n"
            "except OSError: pass\n"
            "sys.exit('ps-0 is lost')",
            "worker-1": "sleep_for_ever()",
        }
    )
    assert code == 1
    assert "ps-0: killed (SIGKILL); last lines of" in output
    assert "worker-0: failed (exit 1), log in" in output or "worker-0: stopped, log in" in output


def test_ps_that_does_not_end_is_named_and_killed(launch):
    code, output = launch(
        {
            "ps": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nmark('deaf')\nsleep_for_ever()",
            "worker": "wait_for('deaf')",
        },
        deadlines=ShutdownDeadlines(ps_exit=0.2, workers_end=0.1, all_end=0.2),
    )
    assert code == 1
    assert "ps-0: still runs 0.2 s after the last worker was done; last lines of" in output
    fakes.assert_all_gone(launch.logdir, 3)


def test_lines_and_numbers_of_an_earlier_run_in_the_same_folder_do_not_count(launch):
    steps = "record(kind='train', local_step={0}, global_step={0})\nprint('run of {0}')\n"
    launch({"ps": SERVE, "worker-0": steps.format(77) + "sys.exit(1)", "worker-1": "sleep_for_ever()"})
    code, output = launch({"ps": SERVE, "worker-0": steps.format(5) + "sys.exit(1)", "worker-1": "sleep_for_ever()"})
    assert code == 1
    assert "  run of 5" in output.splitlines()
    assert "77" not in output.replace(str(launch.logdir), "")


def test_exception_in_the_launcher_leaves_nothing(launch):
    class FullDisk(io.StringIO):
        def write(self, text):
            if "training" in text:
                raise OSError(errno.ENOSPC, "no space")
            return super().write(text)

    work = (
        "on_term(sys.exit)\nmark('up-' + name)\n"
        "for other in ('serving', 'up-worker-0', 'up-worker-1'): wait_for(other)\n"
        "record(kind='state', state='training')\nsleep_for_ever()"
    )
    with pytest.raises(OSError, match="no space"):
        launch({"ps": SERVE, "worker": work}, console=Console(file=FullDisk()))
    fakes.assert_all_gone(launch.logdir, 3)


def test_task_that_cannot_be_started_ends_the_started_ones(launch):
    count = itertools.count(1)

    def spawn(command, **kwargs):
        if next(count) == 3:
            fakes.wait_until(lambda: "serving" in fakes.marks(launch.logdir), "ps-0")
            raise FileNotFoundError("no such program")
        return subprocess.Popen(command, **kwargs)

    with pytest.raises(RunError, match="worker-1: cannot start"):
        launch({"ps": SERVE, "worker": "on_term(sys.exit)\nsleep_for_ever()"}, spawn=spawn)
    assert not any(fakes.is_alive(pid) for pid in fakes.marked_pids(launch.logdir))


def test_live_table_ends_with_the_cursor_shown(launch, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, color_system=None)
    config = TrainConfig(logdir=str(launch.logdir))
    command = fakes.task_command({"ps": SERVE_UNTIL_WORKERS_ARE_DONE, "worker": FINISH})
    code = local.run(LocalClusterSpec(config=config, task_command=command), console=console)
    assert code == 0
    last_table = output.getvalue().rpartition("stale-")[2]
    assert [last_table.count(word) for word in ("ps-0", "worker-0", "worker-1")] == [1, 1, 1]
    assert "\x1b[?25h" in last_table


@pytest.mark.parametrize(
    "counts, flag", [((0, 2, 0), "num_ps=0"), ((1, 0, 0), "num_workers=0"), ((1, 1, 2), "num_evaluators=2")]
)
def test_numbers_of_tasks_are_checked_before_a_folder_is_made(launch, counts, flag):
    with pytest.raises(OptionError, match=flag):
        launch({}, num_ps=counts[0], num_workers=counts[1], num_evaluators=counts[2])
    assert not launch.logdir.exists()


@pytest.mark.parametrize(
    "spec, message",
    [
        ("exp:worker=2", "worker 2 does not exist with num_workers=2.*give worker=1"),
        ("exp:mean_ms=-1", "mean_ms=-1.*above 0"),
    ],
)
def test_delays_are_checked_before_a_folder_is_made(launch, spec, message):
    with pytest.raises(OptionError, match=message):
        launch({}, config=TrainConfig(logdir=str(launch.logdir), straggler=(spec,)))
    assert not launch.logdir.exists()


def test_new_folder_is_named_after_the_run_and_never_an_old_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = datetime.datetime(2026, 1, 2, 3, 4, 5)
    config = TrainConfig(model="my_pkg.my_file:MyModel", update="sync")
    first = local.create_logdir(config, now)
    assert str(first) == "runs/my_pkg.my_file-MyModel-sync-20260102-030405"
    assert str(local.create_logdir(config, now)) == f"{first}-2"
    assert (first / "logs").is_dir()


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="--logdir=.*file/run: cannot make"):
        local.create_logdir(TrainConfig(logdir=str(tmp_path / "file" / "run")))


def test_temporary_files_of_killed_tasks_are_removed_at_the_end(launch, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leave = "pathlib.Path(os.environ['TMPDIR'], 'left-' + name).touch()\nmark('left-' + name)\n"
    code, _ = launch(
        {"ps": SERVE, "worker-0": "sleep_for_ever()", "worker-1": leave + "os.kill(os.getpid(), signal.SIGKILL)"}
    )
    assert code == 1
    assert "left-worker-1" in fakes.marks(launch.logdir)
    assert not list(tmp_path.glob("ps_trainer-*"))


def test_without_a_place_for_temporary_files_the_error_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(OptionError, match="set TMPDIR to a writable folder"):
        local.temporary_folder()


def test_faults_and_restarts_are_checked_before_a_folder_is_made(launch):
    with pytest.raises(OptionError, match="worker 2 does not exist"):
        launch({}, faults=["kill:worker:2@step=5"])
    with pytest.raises(OptionError, match="--max_restarts=-1: max_restarts must be at least 0"):
        launch({}, max_restarts=-1)
    assert not launch.logdir.exists()


def test_killed_task_is_restarted_with_the_same_flags(launch):
    work = (
        "print(json.dumps(sys.argv[1:]))\n"
        "if not has('first'):\n    mark('first')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code, output = launch(
        {
            "ps": SERVE_UNTIL_WORKERS_ARE_DONE,
            "worker-0": "wait_for('done-worker-1')\n" + FINISH,
            "worker-1": work + FINISH,
        },
        max_restarts=1,
    )
    assert code == 0, output
    lines = (launch.logdir / "logs" / "worker-1.log").read_text().splitlines()
    flags = [json.loads(line) for line in lines if line.startswith("[")]
    assert len(flags) == 2 and flags[0] == flags[1]
    assert "restarted in 1 s (restart 1 of 1)" in output
    assert "restarts: worker-1 1" in output.splitlines()
    assert json.loads((launch.logdir / "summary.json").read_text())["restarts"] == {"worker-1": 1}


def test_the_users_environment_overrides_defaults():
    assert task_factory.task_environment({})["PYTHONUNBUFFERED"] == "1"
    assert task_factory.task_environment({"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""


def test_tasks_do_not_inherit_the_launchers_own_tf_config():
    assert "TF_CONFIG" not in task_factory.task_environment({"TF_CONFIG": "{}"})


def test_launch_imports_no_tensorflow():
    script = "import sys; import ps_trainer.launch.local; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=PROJECT).returncode == 0
