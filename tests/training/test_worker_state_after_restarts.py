"""A worker's own state when it or another worker ends, is lost or is restarted, on real servers."""

from __future__ import annotations

import dataclasses
import logging as std_logging
import re

import pytest

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints import worker_file
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.errors import Interrupted, PsLostError
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.graph_parts.push_counts import PUSHES
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.repetitions import representatives

COMPRESSION = ("error_feedback", "top_k:ratio=0.1")
GOES_ON = r"continuing with this worker's own state after (\d+) pushes, from (\S+)"


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(num_ps=1, num_workers=2) as cluster:  # the counts of pushes lie on ps 0
        yield cluster


@pytest.fixture
def log(caplog):
    caplog.set_level(std_logging.INFO, logger="absl")
    return caplog


def config(logdir, max_steps, update="async", **fields):
    return config_of(
        "Dense", "Rows", update=update, batch_size=4, max_steps=max_steps, gradient_transform=COMPRESSION,
        logdir=logdir and str(logdir), **fields,
    )  # fmt: skip


def pushes_of(logdir):
    """Number of each worker's pushes, as stored in the newest checkpoint."""
    return checkpoint_lib.latest(logdir / "checkpoints")[PUSHES][1:].tolist()


RESUMED = {"async": (), "sync": (), "backup": ("backup_workers=1",), "local_sgd": ("period=3",), "easgd": ()}


# `sync` runs the code of `backup`, and two other tests of this file resume it; `easgd` loads as `local_sgd` does.
@pytest.mark.parametrize("update", representatives(RESUMED, ["async", "backup", "local_sgd"]))
def test_a_resumed_run_loads_each_workers_own_state(cluster, tmp_path, log, update):
    options = RESUMED[update]
    outcomes = cluster.run(config(tmp_path, 10, update, update_option=options))
    sent = [outcome.progress.sent_steps for outcome in outcomes]
    released = [0, 1] if update == "backup" else [0]  # its last push after the release is in no update
    assert all(many - one in released for many, one in zip(sent, pushes_of(tmp_path), strict=True))
    before = pushes_of(tmp_path)
    cluster.run(config(tmp_path, 20, update, update_option=options))
    taken_up = sorted(int(pushes) for pushes, _ in re.findall(GOES_ON, log.text))
    assert taken_up == sorted(before)
    assert "begins without" not in log.text


def test_an_interrupted_run_loads_each_workers_own_state(cluster, tmp_path, log):
    calls = [cluster.start(config(tmp_path, 10**6, "sync"), index) for index in (0, 1)]
    wait_until(lambda: all(call.made and len(call.made[-1].losses) >= 8 for call in calls))
    for call in calls:
        call.stop.request(Interrupted(15))
        call.stop.call("release")  # as `supervise` does: the other worker may be gone before this one's step ends
    assert all(isinstance(cluster.finish_call(call).error, Interrupted) for call in calls)
    cluster.run(config(tmp_path, pushes_of(tmp_path)[0] + 10, "sync"))
    assert len(re.findall(GOES_ON, log.text)) == 2, log.text


def interrupted_worker(cluster, endless):
    """A training chief, and the files of worker 1, which was told to stop."""
    chief, worker = cluster.start(endless, 0), cluster.start(endless, 1)
    wait_until(lambda: worker.made and len(worker.made[-1].losses) >= 8)
    worker.stop.request(Interrupted(15))
    assert isinstance(cluster.finish_call(worker).error, Interrupted)
    return chief


def come_back(cluster, endless, chief):
    again = cluster.start(endless, 1)
    wait_until(lambda: again.made and len(again.made[-1].losses) >= 3)
    for call in (again, chief):
        call.stop.request(Interrupted(15))
        assert isinstance(cluster.finish_call(call).error, Interrupted)


def test_a_worker_that_left_in_order_continues_where_it_was_although_the_run_went_on(cluster, tmp_path, log):
    endless = config(tmp_path, 10**6)
    chief = interrupted_worker(cluster, endless)
    (path,) = worker_file.find(tmp_path / "checkpoints", 1)
    come_back(cluster, endless, chief)
    ((pushes, where),) = re.findall(GOES_ON, log.text)
    saved = worker_file.read(path)
    assert where == str(path) and int(pushes) in (saved.pushes, saved.pushes + 1)


def test_a_worker_that_was_killed_starts_without_its_outdated_state(cluster, tmp_path, log):
    endless = config(tmp_path, 10**6)
    chief = interrupted_worker(cluster, endless)
    (path,) = worker_file.find(tmp_path / "checkpoints", 1)
    saved = worker_file.read(path)
    path.unlink()
    worker_file.write(
        worker_file.path_of(tmp_path / "checkpoints", 1, saved.pushes - 3), saved._replace(pushes=saved.pushes - 3)
    )
    come_back(cluster, endless, chief)
    assert "this worker starts without its own state" in log.text
    assert f"worker-1-{saved.pushes - 3}.npz: after push {saved.pushes - 3}" in log.text
    assert not re.findall(GOES_ON, log.text)


def test_a_worker_that_rejoins_its_run_keeps_its_state_in_memory(cluster, log):
    endless = config(None, 10**6, recover_timeout_secs=60.0)
    calls = [cluster.start(endless, index) for index in (0, 1)]
    wait_until(lambda: all(call.made and len(call.made[-1].losses) >= 8 for call in calls))
    made = len(calls[1].made)
    calls[1].stop.request(PsLostError("ps-0, as this worker thinks"))
    wait_until(lambda: len(calls[1].made) > made and len(calls[1].made[-1].losses) >= 3)
    for call in calls[::-1]:
        call.stop.request(Interrupted(15))
        cluster.finish_call(call)
    ((_, where),) = re.findall(GOES_ON, log.text)
    assert where == "memory"


def test_an_older_checkpoint_is_loaded_with_the_chiefs_state_of_that_time(cluster, tmp_path, log):
    cluster.run(config(tmp_path, 30, "sync", save_checkpoint_steps=10, save_checkpoint_secs=0.0))
    folder = tmp_path / "checkpoints"
    newest = checkpoint_lib.latest(folder)
    for path in folder.glob(f"model.ckpt-{newest.step}.*"):
        path.unlink()
    (folder / "checkpoint").unlink()
    before = pushes_of(tmp_path)
    assert before == [20, 20]
    cluster.run(config(tmp_path, 40, "sync", save_checkpoint_steps=10, save_checkpoint_secs=0.0))
    assert sorted(re.findall(GOES_ON, log.text)) == [("20", str(folder / f"worker-{i}-20.npz")) for i in (0, 1)]


@pytest.mark.parametrize("transforms", [COMPRESSION, ("dgc",), ("power_sgd:rank=1",)])
def test_a_push_leaves_after_the_update_of_its_residual(transforms):
    """A step that fails on its way may lose its push, but must not send the same gradient again later."""
    jobs = {"ps": ("localhost:2000",), "worker": ("localhost:3000",)}
    one = dataclasses.replace(config(None, 10), gradient_transform=transforms)
    task = ClusterConfig(jobs=jobs, job_name="worker", task_index=0)
    train = graph_lib.build(components_lib.load(one, 1), task, one, "run")
    before, left = set(), [train.step.phases[0].pushed.op]
    while left:
        op = left.pop()
        if op not in before:
            before.add(op)
            left += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    residuals = {v.op.name for v in train.own_variables.variables if not v.op.name.endswith("/step") and v.shape.rank}
    noted = {op.inputs[0].op.name for op in before if op.type == "AssignVariableOp" and op.inputs}
    assert residuals and residuals <= noted


def test_states_of_another_run_are_not_loaded_even_if_they_belong_to_the_same_push(cluster, tmp_path, log):
    cluster.run(config(tmp_path, 20))
    pushes = pushes_of(tmp_path)
    for index, path in enumerate(worker_file.path_of(tmp_path / "checkpoints", i, n) for i, n in enumerate(pushes)):
        saved = worker_file.read(path)
        worker_file.write(path, saved._replace(lineage=saved.lineage + 1))
        assert f"worker-{index}-{pushes[index]}.npz" == path.name
    cluster.run(config(tmp_path, 30))
    assert not re.findall(GOES_ON, log.text)
    for index, number in enumerate(pushes):
        assert f"worker-{index}-{number}.npz: from another run" in log.text


def counted_by(name, saved):
    """The only value of a worker's file whose name ends with that."""
    (value,) = [int(value) for key, value in saved.values.items() if key.endswith(name)]
    return value


# Update rule -> (options, a worker's count of its steps, the steps that it has made at a number of pushes)
COUNTERS = {
    "async": ((), "/step", lambda pushes: pushes),
    "ssp": ((), "/step", lambda pushes: pushes),
    "sync": ((), "/step", lambda pushes: pushes),
    "easgd": (("period=3",), "local_steps", lambda pushes: 3 * (pushes - 1) + 1),
    "downpour": (("n_push=2", "n_fetch=2"), "local_steps", lambda pushes: 2 * pushes),
    "local_sgd": (("period=3",), "num_applied", lambda pushes: 3 * pushes),
}


# One rule that pushes each step, and one of each counter of local steps.
@pytest.mark.parametrize("update", representatives(COUNTERS, ["async", "easgd", "local_sgd"]))
def test_each_checkpoint_is_loaded_with_each_workers_state_of_that_time(cluster, tmp_path, update):
    """The chief saves at any point of the other workers' steps; random_k counts the steps of its own worker."""
    options, counter, steps_at = COUNTERS[update]
    # So many steps that the second worker comes before the last one, also on a busy machine.
    often = config(tmp_path, 300, update, update_option=options, save_checkpoint_secs=0.02, keep_checkpoints=1000)
    cluster.run(dataclasses.replace(often, gradient_transform=("random_k:ratio=0.5",)))
    folder = tmp_path / "checkpoints"
    found = [0, 0]
    for prefix in checkpoint_lib.list_prefixes(folder):
        lineage, *counts = checkpoint_lib.Checkpoint(prefix)[PUSHES].tolist()
        for index, pushes in enumerate(counts):
            if pushes:
                saved = worker_file.read(worker_file.path_of(folder, index, pushes))
                assert (saved.lineage, saved.pushes) == (lineage, pushes)
                assert steps_at(pushes) <= counted_by(counter, saved) < steps_at(pushes + 1)
                found[index] += 1
    assert min(found) >= 1  # the last checkpoint holds both; how many come before it depends on the machine
