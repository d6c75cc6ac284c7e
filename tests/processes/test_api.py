"""Training from Python beside the same run by flags, and with tasks that are processes."""

from __future__ import annotations

import contextlib
import pathlib
import signal
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import ps_trainer
from benchmarks import leftovers
from tests.api import objects
from tests.api.objects import FAST
from tests.testing.processes import END_SECS, START_SECS, wait_until
from tests.testing.repetitions import repetitions
from tests.testing.user_scripts import ScriptTask

SETTINGS = {"update": "sync", "max_steps": 40, "seed": 7, "optimizer": "momentum", "learning_rate": 0.05}


def values_of(logdir):
    reader = tf.train.load_checkpoint(str(logdir / "checkpoints"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize("mode", repetitions(["in_process", "processes"]))  # tests below train in processes
def test_a_run_from_python_equals_the_run_by_flags_to_the_last_bit(create_run, tmp_path, mode):
    run = create_run(step_ms=0, flags=[f"--{name}={value}" for name, value in SETTINGS.items()])
    assert run.start_local("--model=tests.api.objects:Linear").wait(START_SECS) == 0
    result = ps_trainer.train(objects.Linear(), "digits", mode=mode, logdir=tmp_path / "api", **SETTINGS, **FAST)
    assert result.metrics["loss"] == run.summary()["metrics"]["loss"]
    expected, found = values_of(run.logdir), values_of(tmp_path / "api")
    names = {"global_step", "logits/kernel", "logits/bias", "logits/kernel/Momentum", "logits/bias/Momentum"}
    assert names <= expected.keys()
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name])
        np.testing.assert_array_equal(found[name], result.variables[name])
    assert result.staleness == {0: 80} and result.summary["workers"]["1"]["local_steps"] == 40


def test_processes_get_instances_arrays_and_functions_also_after_a_restart_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    scaled = objects.Scaled(objects.Scaled.Options(scale=0.5))
    killed = {"fault": "kill:worker:1@step=10", "max_restarts": 1, "straggler": "det:mean_ms=50"}
    result = ps_trainer.train(scaled, "digits", mode="processes", max_steps=60, **killed, **FAST)
    assert result.global_step >= 60 and result.metrics["accuracy"] > 0 and result.history
    assert {"logits/kernel", "logits/bias"} <= set(result.variables)
    assert result.summary["restarts"] == {"worker-1": 1}  # the restarted worker got the instance as well
    with ps_trainer.LocalCluster(num_ps=1, num_workers=1, mode="processes") as cluster:
        second = cluster.train(
            ps_trainer.from_model_fn(objects.model_fn, params={"rate": 0.25}), objects.input_fn, max_steps=5, **FAST
        )
        assert {"w", "w/Momentum"} <= set(second.variables) and second.metrics["loss"] > 0
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not leftovers.living(tmp_path), END_SECS, "processes of the runs still run")


def test_a_failing_model_in_processes_is_a_named_error(tmp_path):
    with pytest.raises(ps_trainer.TrainingError, match="NanLossError: the loss is nan") as caught:
        ps_trainer.train(objects.Diverges(), "digits", mode="processes", num_workers=1, logdir=tmp_path, **FAST)
    assert (caught.value.exit_code, caught.value.task, caught.value.cause) == (1, "worker-0", "NanLossError")
    wait_until(lambda: not leftovers.living(tmp_path), END_SECS, "processes of the run still run")


def test_what_only_the_launcher_can_check_is_a_value_error_too():
    with pytest.raises(ValueError, match="fault.*kil:worker") as caught:
        ps_trainer.train("softmax", "digits", mode="processes", fault="kil:worker:1@step=2", **FAST)
    assert isinstance(caught.value, ps_trainer.ArgumentError) and "--" not in str(caught.value)
    with pytest.raises(ValueError, match="max_restarts must be at least 0"):
        ps_trainer.train("softmax", "digits", mode="processes", max_restarts=-1, **FAST)


def test_what_processes_cannot_get_is_refused_with_the_fix():
    class Local(objects.Linear):
        """Of this function, so that no process can import it."""

    with pytest.raises(TypeError, match="mode='processes' sends model and data to other processes"):
        ps_trainer.train(Local(), "digits", mode="processes", **FAST)
    with pytest.raises(ValueError, match="with mode='processes' no step runs here"):
        ps_trainer.train("softmax", "digits", mode="processes", callbacks=print, **FAST)
    with pytest.raises(ValueError, match="give a class of a module, or use mode='in_process'"):
        ps_trainer.train("softmax", "digits", mode="processes", hook=lambda: None, **FAST)


class Program(ScriptTask):
    """A user's program, whose prints are in `printed`."""

    def __init__(self, folder: pathlib.Path, code: str, arguments: Sequence[str], env: Mapping[str, str]):
        self._printed = folder / "printed"
        script = folder / "program.py"
        script.write_text(f"import sys\nsys.stdout = open({str(self._printed)!r}, 'w')\n{code}")
        super().__init__("program", script, arguments, folder / "program.log", env)

    @property
    def printed(self) -> str:
        """The text that the program has printed, without TensorFlow's messages."""
        return self._printed.read_text(encoding="utf-8")


@contextlib.contextmanager
def program(folder, code, *arguments, **env):
    """A program that runs until the block ends, and is then killed."""
    started = Program(folder, code, [str(argument) for argument in arguments], env)
    try:
        yield started
    finally:
        started.kill()
        print(started.log[-6000:])


def wait_until_it_trains(logdir):
    metrics = logdir / "metrics" / "worker-0.jsonl"
    wait_until(lambda: metrics.exists() and '"train"' in metrics.read_text(), START_SECS, "no step was made")


MAIN = """
import ps_trainer
from tests.api import objects

class Mine(objects.Linear):
    pass

try:
    ps_trainer.train(Mine(), "digits", mode="processes")
except TypeError as error:
    print("refused:", error)
"""


def test_a_model_of_the_main_script_is_refused_with_the_fix(tmp_path):
    with program(tmp_path, MAIN) as started:
        assert started.wait(START_SECS) == 0
        assert "refused: Mine is defined in the notebook or main script" in started.printed


INTERRUPTED = """
import ps_trainer, sys
from tests.api import objects

try:
    ps_trainer.train("softmax", "digits", mode=sys.argv[1], logdir=sys.argv[2], max_steps=None,
                     num_epochs=10**9, straggler="det:mean_ms=20", **objects.FAST)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("mode", ["in_process", "processes"])
def test_ctrl_c_at_a_program_saves_and_leaves_no_process(tmp_path, mode):
    logdir = tmp_path / "run"
    with program(tmp_path, INTERRUPTED, mode, logdir) as started:
        wait_until_it_trains(logdir)
        started.send(signal.SIGINT)
        assert started.wait(3 * END_SECS) == 0
        assert started.printed.strip() == "interrupted"
    assert values_of(logdir)["global_step"] > 0
    wait_until(lambda: not leftovers.living(tmp_path), END_SECS, "processes of the run still run")


@pytest.mark.parametrize("mode", repetitions(["in_process", "processes"]))  # Ctrl-C takes the same way
def test_sigterm_saves_and_ends_the_program(tmp_path, mode):
    logdir = tmp_path / "run"
    with program(tmp_path, INTERRUPTED, mode, logdir) as started:
        wait_until_it_trains(logdir)
        started.send(signal.SIGTERM)
        assert started.wait(3 * END_SECS) == -signal.SIGTERM
    assert values_of(logdir)["global_step"] > 0
    wait_until(lambda: not leftovers.living(tmp_path), END_SECS, "processes of the run still run")


def test_a_killed_program_leaves_no_process_and_no_temporary_file(tmp_path):
    logdir, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    with program(tmp_path, INTERRUPTED, "processes", logdir, TMPDIR=str(temporary)):
        wait_until_it_trains(logdir)
        assert list(temporary.iterdir()), "the program has made no temporary file"
    wait_until(lambda: not leftovers.living(tmp_path), 3 * END_SECS, "processes of the run still run")
    wait_until(lambda: not list(temporary.iterdir()), END_SECS, "temporary files are left")


def test_join_takes_part_in_a_cluster_of_commands(create_run):
    flags = ["--update=sync", "--max_steps=30", "--model=tests.api.objects:Linear"]
    run = create_run(step_ms=0, flags=flags)
    ps, chief = run.start_ps(), run.start_worker(0)
    job = ps_trainer.join(
        {"ps": run.ps_hosts, "worker": run.worker_hosts},
        "worker:1",
        model=objects.Linear,
        data="digits",
        update="sync",
        max_steps=30,
        **FAST,
    )
    assert job.wait(START_SECS).global_step == 30
    assert (chief.wait(START_SECS), ps.wait(START_SECS)) == (0, 0)
    assert run.summary()["workers"]["1"]["local_steps"] == 30


@pytest.mark.parametrize(
    ("model", "data", "flags", "message"),
    [
        ("softmax", None, ["--dataset=ps_trainer.api.shipped:ShippedDataset"], "this run's dataset was an object of a"),
        (None, "digits", ["--model=tests.api.objects:model_fn"], "model_fn is not a model: it has no method `build`"),
    ],
    ids=["arrays", "model_fn"],
)
def test_commands_on_the_folder_of_a_run_name_what_python_had(create_run, tmp_path, model, data, flags, message):
    pictures = {"image": np.zeros([64, 2, 2, 1], np.float32), "label": np.arange(64) % 2}
    chosen = model or ps_trainer.from_model_fn(flat_model_fn)
    logdir = tmp_path / "run"
    ps_trainer.train(chosen, data or pictures, num_workers=1, max_steps=3, logdir=logdir, **FAST)
    command = create_run().start_command("evaluate", f"--logdir={logdir}", *flags)
    assert command.wait(START_SECS) == 2 and message in command.log


def flat_model_fn(features, labels):
    """A model in Estimator's form for images."""
    pixels = tf.reshape(features["image"], [-1, 64])
    logits = tf.matmul(pixels, tf.get_variable("w", [64, 10]))
    return ps_trainer.EstimatorSpec("train", loss=tf.losses.sparse_softmax_cross_entropy(labels, logits))
