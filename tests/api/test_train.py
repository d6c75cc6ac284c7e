"""Training from Python in one process: results, failures, interruption, and what is left afterwards."""

from __future__ import annotations

import functools
import pathlib
import signal
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import ps_trainer
from ps_trainer import LocalCluster
from ps_trainer.api import servers
from ps_trainer.errors import NanLossError
from tests.api import objects
from tests.api.objects import FAST
from tests.testing.cluster import wait_until


class Threads:
    """The threads of this process that are not those of the beginning of the test."""

    def __init__(self):
        self._before = set(threading.enumerate())

    def new(self):
        """Names of the new threads that belong to the package."""
        return [thread.name for thread in threading.enumerate() if thread not in self._before]

    def wait_until_ended(self):
        """Waits until none is left."""
        wait_until(lambda: not self.new(), 60.0)


@pytest.fixture
def threads():
    """Other tests of this process may have left clusters, whose threads do not count here."""
    return Threads()


def listening_ports():
    """Ports on which this process listens."""
    inodes = set()
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            inodes.add(str(link.readlink()))
        except OSError:
            continue
    rows = [line.split() for line in pathlib.Path("/proc/self/net/tcp6").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_an_instance_and_arrays_train_and_the_result_says_how():
    result = ps_trainer.train(
        objects.Linear(),
        objects.arrays(),
        test_data=objects.arrays(100, seed=1),
        update="sync",
        learning_rate=0.5,
        max_steps=60,
        **FAST,
    )
    assert result.global_step == 60
    assert result.metrics["accuracy"] > 0.9 and set(result.metrics) == {"loss", "accuracy"}
    assert result.loss < result.history[0].loss
    assert result.staleness == {0: 120} and result.staleness_mean == 0
    assert {step.worker for step in result.history} == {0, 1} and len(result.history) == 120
    assert sorted(result.variables) == ["global_step", "logits/bias", "logits/kernel"]
    assert result.summary["status"] == "done" and not result.stop_reason
    assert str(result).startswith("step 60: loss ")
    figure = result.plot()
    assert [axes.get_xlabel() for axes in figure.axes] == ["global step", "staleness"]


def test_a_class_of_this_function_with_options():
    class Mine(objects.Scaled):
        """No other process could import it."""

    result = ps_trainer.train(
        Mine, "digits", model_option={"scale": 0.5}, num_workers=1, max_steps=5, update="async", **FAST
    )
    assert result.global_step == 5
    with pytest.raises(ValueError, match="model_option scale=-1: scale must be above 0"):
        ps_trainer.train(Mine, "digits", model_option={"scale": -1}, **FAST)
    with pytest.raises(ValueError, match="model is an instance, which has its options already"):
        ps_trainer.train(objects.Linear(), "digits", model_option={"scale": 1}, **FAST)


def test_an_input_function_and_a_model_function_in_estimators_form():
    model = ps_trainer.from_model_fn(objects.model_fn, params={"rate": 0.25})
    result = ps_trainer.train(model, objects.input_fn, batch_size=20, max_steps=80, num_workers=2, **FAST)
    assert result.metrics["accuracy"] > 0.8
    assert {"w", "b", "w/Momentum", "b/Momentum"} <= set(result.variables)
    with pytest.raises(ValueError, match="optimizer is given, and model_fn makes its own optimizer"):
        ps_trainer.train(model, objects.input_fn, optimizer="adam", **FAST)


def test_feeds_without_test_data_have_no_metrics():
    result = ps_trainer.train(objects.Linear(), objects.feeds, num_workers=1, max_steps=10, **FAST)
    assert result.metrics == {} and result.global_step == 10


def test_two_trainings_use_the_same_servers_and_leave_no_thread(threads):
    sizes = {"num_ps": 2, "num_workers": 1}
    with LocalCluster(**sizes) as cluster:
        first = cluster.train(objects.Linear(), "digits", max_steps=5, seed=3, **FAST)
        ports = listening_ports()
        second = cluster.train(objects.Linear(), "digits", max_steps=5, seed=3, **FAST)
    ps_trainer.train(objects.Linear(), "digits", max_steps=5, **sizes, **FAST)
    assert listening_ports() == ports
    threads.wait_until_ended()
    for name, value in first.variables.items():
        np.testing.assert_array_equal(value, second.variables[name])


@pytest.mark.parametrize("update", ["async", "sync"])
def test_a_callback_stops_the_run_with_a_result(update):
    seen = []

    def stop_at_ten(step):
        seen.append(step)
        if step.local_step == 10 and step.worker == 1:
            raise ps_trainer.StopTraining("worker 1 has seen enough")

    result = ps_trainer.train(
        objects.Linear(), "digits", update=update, callbacks=stop_at_ten, max_steps=1_000_000, **FAST
    )
    assert result.stop_reason == "worker 1 has seen enough"
    assert 10 <= result.global_step < 1_000_000
    assert result.metrics["accuracy"] > 0 and list(result.history) == seen


def test_an_error_of_a_callback_fails_the_run_and_is_the_cause():
    def callback(step):
        raise KeyError("no such step")

    with pytest.raises(ps_trainer.TrainingError, match="worker-0 failed: KeyError: 'no such step'") as caught:
        ps_trainer.train(objects.Linear(), "digits", callbacks=[callback], num_workers=1, **FAST)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_model_that_cannot_be_built_fails_before_anything_starts(threads):
    with pytest.raises(ZeroDivisionError, match="the model divides by zero"):
        ps_trainer.train(objects.Broken(), "digits", **FAST)
    assert threads.new() == []


def test_a_model_that_fails_in_a_step_is_a_named_error(threads):
    with pytest.raises(ps_trainer.TrainingError, match="the model fails in a step") as caught:
        ps_trainer.train(objects.FailsInAStep(), "digits", **FAST)
    assert caught.value.exit_code == 1 and caught.value.task.startswith("worker-")
    assert caught.value.cause == "InvalidArgumentError"
    assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
    threads.wait_until_ended()


def test_a_loss_that_is_nan_is_a_named_error():
    with pytest.raises(ps_trainer.TrainingError, match="NanLossError: the loss is nan at global step") as caught:
        ps_trainer.train(objects.Diverges(), "digits", num_workers=1, **FAST)
    assert caught.value.cause == "NanLossError" and isinstance(caught.value.__cause__, NanLossError)


def test_wrong_arguments_start_nothing(threads):
    before = listening_ports()
    for error, message, given in [
        (TypeError, "has no argument 'max_step'; did you mean max_steps", {"max_step": 5}),
        (ValueError, "learning_rate must be above 0", {"learning_rate": -1}),
        (ValueError, "num_workers must be at least 1", {"num_workers": 0}),
        (ValueError, "mode='inprocess': unknown; did you mean in_process", {"mode": "inprocess"}),
        (ValueError, "max_restarts is for tasks that are processes; add mode='processes'", {"max_restarts": 1}),
        (ValueError, "momentum must be at least 0", {"optimizer": "momentum", "optimizer_option": {"momentum": 2}}),
        (ValueError, "too many for one process", {"num_workers": 100}),
        (TypeError, "each worker needs its own hook", {"hook": [tf.train.SessionRunHook()]}),
        (TypeError, "cannot be called; give functions of one argument, the step", {"callbacks": [3]}),
    ]:
        with pytest.raises(error, match=message):
            ps_trainer.train(objects.Linear(), "digits", **(FAST | given))
    with pytest.raises(ValueError, match="model 'softmax' takes batches that are dicts, and data gives a tuple; give"):
        ps_trainer.train("softmax", objects.arrays(), **FAST)
    with pytest.raises(TypeError, match="is a function; give ps_trainer.from_model_fn"):
        ps_trainer.train(objects.model_fn, "digits", **FAST)
    with pytest.raises(TypeError, match="is not a model: it has no method `build`"):
        ps_trainer.train(7, "digits", **FAST)
    assert (threads.new(), listening_ports()) == ([], before)
    with pytest.raises(ValueError, match=r"build\(batch\) cannot be called as build\(batch, training=True\)"):
        ps_trainer.train(objects.NoTraining(), "digits", **FAST)


def test_trains_in_a_thread_without_signal_handlers():
    outcome = []
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]

    def call():
        outcome.append(ps_trainer.train(objects.Linear(), "digits", num_workers=1, max_steps=5, **FAST))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(120)
    assert outcome and outcome[0].global_step >= 5
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_ctrl_c_saves_a_checkpoint_and_is_raised(tmp_path, threads):
    def interrupt(step):
        if step.worker == 0 and step.local_step == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ps_trainer.train(
            objects.Linear(),
            "digits",
            callbacks=interrupt,
            max_steps=None,
            num_epochs=1_000_000,
            logdir=tmp_path,
            straggler="det:mean_ms=5",
            num_workers=1,
            **FAST,
        )
    reader = tf.train.load_checkpoint(str(tmp_path / "checkpoints"))
    assert reader.get_tensor("global_step") >= 5
    threads.wait_until_ended()
    again = ps_trainer.train(objects.Linear(), "digits", num_workers=1, max_steps=2, logdir=tmp_path, **FAST)
    assert again.global_step >= 5


def test_a_job_goes_on_in_the_background_until_it_is_stopped():
    with LocalCluster(num_ps=1, num_workers=1) as cluster:
        job = cluster.start(objects.Linear(), "digits", max_steps=None, num_epochs=1_000_000, **FAST)
        with pytest.raises(TimeoutError, match="the job has not ended within 0.2 s; it still runs"):
            job.wait(0.2)
        assert job.is_running
        job.stop()
        with pytest.raises(ps_trainer.TrainingError, match="ended by SIGTERM") as caught:
            job.wait(60)
        assert (caught.value.exit_code, caught.value.cause) == (143, "Interrupted")
        assert not job.is_running


def test_leaving_the_cluster_stops_what_runs(threads):
    with LocalCluster(num_ps=1, num_workers=1) as cluster:
        job = cluster.start(objects.Linear(), "digits", max_steps=None, num_epochs=1_000_000, **FAST)
    assert not job.is_running
    threads.wait_until_ended()


def test_without_ps_tasks_the_result_is_that_of_one_worker(threads):
    """Fails if the process that trains alone computes anything else than a worker with a ps task."""
    before = listening_ports()
    alone = ps_trainer.train(objects.Linear(), "digits", num_ps=0, num_workers=1, max_steps=20, seed=5, **FAST)
    assert listening_ports() == before
    threads.wait_until_ended()
    with_ps = ps_trainer.train(objects.Linear(), "digits", num_ps=1, num_workers=1, max_steps=20, seed=5, **FAST)
    assert [step.loss for step in alone.history] == [step.loss for step in with_ps.history]
    assert alone.metrics == with_ps.metrics


def test_workers_without_ps_tasks_hold_the_parameters(threads):
    """Fails if they compute anything else than workers with as many ps tasks."""
    run = functools.partial(
        ps_trainer.train, objects.Linear(), "digits", num_workers=2, update="sync", max_steps=20, seed=5, **FAST
    )
    colocated = run(num_ps=0)
    threads.wait_until_ended()
    apart = run(num_ps=2)
    assert colocated.metrics == apart.metrics
    assert sorted(step.loss for step in colocated.history) == sorted(step.loss for step in apart.history)
    with pytest.raises(ValueError, match="placement=colocated num_ps=2: the workers hold the parameters"):
        run(num_ps=2, placement="colocated")
    with pytest.raises(ValueError, match="without ps tasks the workers hold the parameters; give placement=colocated"):
        run(num_ps=0, placement="data_parallel")


@pytest.mark.parametrize("num_ps", [0, 1])
def test_several_devices_give_the_losses_of_one(num_ps):
    one, two = (
        ps_trainer.train(
            objects.Linear(),
            objects.arrays(),
            num_ps=num_ps,
            num_workers=1,
            max_steps=10,
            devices_per_worker=devices,
            **FAST,
        )
        for devices in (1, 2)
    )
    np.testing.assert_allclose([s.loss for s in two.history], [s.loss for s in one.history], rtol=0, atol=2e-6)


def test_hooks_are_created_for_each_worker():
    made = []

    class Hook(tf.train.SessionRunHook):
        def __init__(self):
            made.append(self)

    ps_trainer.train(objects.Linear(), "digits", hook=Hook, max_steps=4, **FAST)
    assert len(made) == 2 and made[0] is not made[1]


def test_servers_of_a_failed_run_are_not_used_again():
    with pytest.raises(ps_trainer.TrainingError):
        ps_trainer.train(objects.Diverges(), "digits", num_ps=3, num_workers=1, **FAST)
    abandoned = {address for one in servers._abandoned for hosts in one.jobs.values() for address in hosts}
    with LocalCluster(num_ps=3, num_workers=1) as cluster:
        assert cluster.train(objects.Linear(), "digits", max_steps=3, **FAST).global_step == 3
    sets = [one for free in servers._free.values() for one in free]
    free = {address for one in sets for hosts in one.jobs.values() for address in hosts}
    assert not abandoned & free


def test_join_runs_the_tasks_of_a_cluster():
    from ps_trainer.cluster.ports import pick_free_ports

    addresses = [f"localhost:{port}" for port in pick_free_ports(3)]
    cluster = {"ps": addresses[:1], "worker": addresses[1:]}
    run = {"model": objects.Linear(), "data": "digits", "update": "sync", "max_steps": 20} | FAST
    for _ in range(2):  # the second time on the servers of the first
        jobs = [ps_trainer.join(cluster, "ps:0", **FAST)]
        jobs += [ps_trainer.join(cluster, ("worker", index), **run) for index in range(2)]
        ps, chief, worker = [job.wait(120) for job in jobs]
        assert chief.global_step == 20 and chief.metrics["accuracy"] > 0
        assert worker.global_step == 20 and worker.metrics == {} and len(worker.history) == 20
        assert ps.summary == {} and not ps.history


@pytest.mark.parametrize(
    ("cluster", "task", "error", "message"),
    [
        ({"ps": ["localhost:1"], "worker": ["localhost:2"]}, "worker:1", ValueError, "is out of range: worker has 1"),
        ({"ps": ["localhost:1"], "worker": ["localhost:2"]}, "worker", ValueError, "is not a task; write 'worker:1'"),
        ({"ps": ["localhost:1"], "worker": ["localhost:2"]}, None, ValueError, "needs the task"),
        ({"worker": ["localhost:2"]}, "worker:0", ValueError, "cluster.ps is missing"),
        (["localhost:1"], "worker:0", TypeError, "give a dict of addresses by job"),
        (None, None, ValueError, "needs the cluster: give its addresses by job"),
    ],
)
def test_join_refuses_a_wrong_cluster(cluster, task, error, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(error, match=message):
        ps_trainer.join(cluster, task)


def test_join_names_the_process_that_has_the_port():
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen(1)
        address = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match="is in use by pid"):
            ps_trainer.join({"ps": [address], "worker": ["localhost:2"]}, "ps:0")
