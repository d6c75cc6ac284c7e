"""The commands turn input into a configuration, and pass it to the module that does the work.

Those modules are stand-ins here, so the tests never import the ones that need TensorFlow.
"""

from __future__ import annotations

import json
import socket
import sys
import types

import pytest

from ps_trainer.cli import evaluate, local, main, run_lookup, task
from ps_trainer.cluster import ports
from ps_trainer.config import TrainConfig
from ps_trainer.launch.hosts import LocalHosts
from ps_trainer.launch.local_cluster import LocalClusterSpec


@pytest.fixture(autouse=True)
def no_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


class Calls(list):
    """(args, kwargs) of each call to a module that does the work; `prepared` holds the calls that prepare for it."""

    def __init__(self):
        super().__init__()
        self.prepared = []


@pytest.fixture
def calls(monkeypatch):
    """Stands in for the modules behind the commands; each of their functions returns 5."""
    made = Calls()

    def work(*args, **kwargs):
        made.append((args, kwargs))
        return 5

    def prepare(**kwargs):
        assert not made, "the environment must be prepared before the work begins"
        made.prepared.append(kwargs)

    stand_in(
        monkeypatch, "ps_trainer.runtime", environment={"prepare": prepare}, tensorflow_import={"load": lambda: None}
    )
    stand_in(monkeypatch, "ps_trainer.training", task={"run": work}, evaluator={"main": work})
    stand_in(monkeypatch, "ps_trainer.launch", local={"run": work})
    monkeypatch.setattr(task, "start_logging", lambda: None)
    monkeypatch.setattr(run_lookup, "start_logging", lambda: None)
    return made


def stand_in(monkeypatch, package_name, **modules):
    """Replaces a package by one whose modules have only the given functions."""
    package = types.ModuleType(package_name)
    monkeypatch.setitem(sys.modules, package_name, package)
    for name, functions in modules.items():
        module = types.ModuleType(f"{package_name}.{name}")
        vars(module).update(functions)
        setattr(package, name, module)
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def hosts():
    first, second, third = ports.pick_free_ports(3)
    return [f"--ps_hosts=localhost:{first}", f"--worker_hosts=localhost:{second},localhost:{third}"]


def test_run_ps_runs_a_ps_and_accepts_training_flags(calls, hosts):
    assert task.main_ps(["run_ps.py", *hosts, "--task_index=0", "--keep_serving", "--batch_size=8"]) == 5
    ((cluster, config), options) = calls[0]
    assert (cluster.task_name, config.batch_size, options["keep_serving"]) == ("ps-0", 8, True)
    assert calls.prepared == [{"is_ps": True}]


@pytest.mark.parametrize(
    ("flags", "name"), [(["--task_index=1"], "worker-1"), (["--job_name=evaluator"], "evaluator-0")]
)
def test_run_worker_runs_a_worker_or_the_evaluator(calls, hosts, flags, name):
    assert task.main_worker(["run_worker.py", *hosts, *flags, "--model_option=a=1"]) == 5
    ((cluster, config), options) = calls[0]
    assert (cluster.task_name, config.model_option, options["keep_serving"]) == (name, ("a=1",), False)
    assert "model_option" in options["given"]
    assert "learning_rate" not in options["given"]
    assert calls.prepared == [{"is_ps": False}]


def test_task_takes_its_role_from_tf_config(calls, monkeypatch):
    first, second = ports.pick_free_ports(2)
    jobs = {"ps": [f"localhost:{first}"], "worker": [f"localhost:{second}"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": {"type": "ps", "index": 0}}))
    assert main.main(["ps_trainer", "task"]) == 5
    assert calls[0][0][0].task_name == "ps-0"


def test_local_passes_on_the_training_flags_as_given(calls):
    args = ["--model_option=filters=8,16", "--max_steps=1000", "--logdir=none"]  # the last two equal the default
    assert main.main(["ps_trainer", "local", "--num_workers=3", *args, "--plain"]) == 5
    assert isinstance(calls[0][1].pop("hosts"), LocalHosts)
    config = TrainConfig(model_option=("filters=8,16",))
    cluster = LocalClusterSpec(config=config, train_args=args, num_ps=1, num_workers=3, plain=True, preload=True)
    assert calls == [((cluster,), {})]


@pytest.mark.parametrize("flag", ["logdir", "checkpoint_dir"])
def test_evaluate_finds_the_checkpoints_below_logdir_or_in_the_given_folder(calls, tmp_path, flag):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt-3.index").touch()
    path = {"logdir": tmp_path, "checkpoint_dir": tmp_path / "checkpoints"}[flag]
    assert evaluate.main_evaluate(["evaluate", f"--{flag}={path}"]) == 5
    config = TrainConfig(logdir=str(tmp_path) if flag == "logdir" else None)
    assert calls == [((config,), {"checkpoint_dir": tmp_path / "checkpoints"})]
    assert calls.prepared == [{"is_ps": False}]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "give --logdir of the run, or --checkpoint_dir"),
        (["--checkpoint_dir=/no/such"], "/no/such is not a folder"),
    ],
)
def test_evaluate_rejects_a_missing_folder(calls, capsys, args, expected):
    assert evaluate.main_evaluate(["evaluate", *args]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (task.main_ps, [], "the cluster is not described; give --ps_hosts="),
        (task.main_ps, ["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=worker"], "this command runs only ps"),
        (task.main_worker, ["--ps_hosts=a:1", "--worker_hosts=b:1", "--keep_serving"], "unknown flag --keep_serving"),
        (task.main_worker, ["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=ps"], "only worker or chief or eval"),
        (task.main_worker, ["--ps_hosts=a:1", "--worker_hosts=b:0"], "--worker_hosts[0]='b:0': with port 0"),
        (task.main_worker, ["--ps_hosts=a:1", "--worker_hosts=b:1", "--model=cmn"], "--model=cmn: unknown model"),
        (task.main_worker, ["--ps_hosts=a:1", "--worker_hosts=b:1", "--batch_size=0"], "batch_size must be at least 1"),
        (task.main_task, ["--ps_hosts=a:1", "--worker_hosts=b:1"], "--job_name is missing"),
        (local.main_local, ["--num_workers=two"], "--num_workers: 'two' is not of type int"),
        (local.main_local, ["--max_steps=0"], "--max_steps=0: max_steps must be at least 1"),
        (main.main, ["locl"], "unknown command 'locl'; did you mean local?"),
    ],
)
def test_rejects_wrong_input_before_anything_starts(calls, capsys, command, args, expected):
    assert command(["prog", *args]) == 2
    captured = capsys.readouterr().err
    assert captured.startswith("error: ") and captured.count("\n") == 1
    assert expected in captured
    assert calls == []


def test_ctrl_c_during_the_import_of_a_command_gives_no_traceback(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(main.importlib, "import_module", interrupted)
    assert main.main(["ps_trainer", "evaluate"]) == 130
    assert capsys.readouterr().err == "ended by SIGINT\n"


def test_run_worker_rejects_a_ps_of_tf_config(calls, capsys, monkeypatch):
    content = {"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(content))
    assert task.main_worker(["run_worker.py"]) == 2
    assert "TF_CONFIG task.type=ps, but this command runs only worker or chief or evaluator" in capsys.readouterr().err


def test_a_task_does_not_start_on_a_port_in_use_but_an_evaluator_has_none(calls, capsys):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        hosts = [f"--ps_hosts=h:{port}", f"--worker_hosts=localhost:{port}"]
        assert task.main_worker(["run_worker.py", *hosts]) == 2
        assert f"port {port} of localhost:{port} is in use" in capsys.readouterr().err
        assert task.main_worker(["run_worker.py", *hosts, "--job_name=evaluator"]) == 5
