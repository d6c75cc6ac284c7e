"""The chief's files during a run, and after a run that does not reach its end."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter

import pytest

from models import layers
from ps_trainer.errors import DataError, Interrupted, OptionError, PeerFailedError, PsLostError
from ps_trainer.training import components, graph, initial_state
from tests.testing.cluster import DEADLINE_SECS, InProcessCluster, config_of, wait_until
from tests.testing.components import NUM_CLASSES, Rows

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment


class Narrow:
    """`Dense` without its hidden layer."""

    def build(self, batch, training):
        return layers.classifier_output(layers.dense(batch["x"], NUM_CLASSES, "logits"), batch["label"])


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


def config(tmp_path, **fields):
    return config_of("Dense", "Rows", batch_size=4, logdir=str(tmp_path), **({"max_steps": 10**9} | fields))


def summary(tmp_path):
    return json.loads((tmp_path / "summary.json").read_text())


def test_saves_during_a_run_without_a_target_metric(cluster, tmp_path):
    (outcome,) = cluster.run(config(tmp_path, max_steps=5, save_checkpoint_steps=2))
    assert outcome.code == 0
    assert {path.name for path in (tmp_path / "checkpoints").glob("*.index")} >= {
        f"model.ckpt-{step}.index" for step in (2, 4, 5)
    }


def test_the_summary_of_an_interrupted_run_says_so(cluster, tmp_path):
    call = cluster.start(config(tmp_path), 0)
    wait_until(lambda: call.made and len(call.made[-1].losses) > 3)
    call.stop.request(Interrupted(15))
    assert isinstance(cluster.finish_call(call).error, Interrupted)
    assert summary(tmp_path)["status"] == "interrupted"


class Silent(Rows):
    """Rows that never come."""

    def train(self, **kwargs):
        silence = tf.FIFOQueue(1, [tf.int64], shapes=[[]])

        def wait(batch):
            with tf.control_dependencies([silence.dequeue()]):
                return tf.nest.map_structure(tf.identity, batch)

        return super().train(**kwargs).map(wait)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_stop_before_the_first_step_ends_that_step_at_once_and_saves_nothing_again(tmp_path, is_resumed):
    with InProcessCluster(1, 1) as cluster:
        if is_resumed:
            cluster.run(config(tmp_path, max_steps=3))
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").glob("*")}
        call = cluster.start(dataclasses.replace(config(tmp_path), dataset=f"{__name__}:Silent"), 0)
        wait_until(lambda: call.made and call.made[-1].is_in_step)
        call.stop.request(Interrupted(15))
        call.stop.call("release")  # not "abort", which comes seconds later
        assert isinstance(cluster.finish_call(call).error, Interrupted)
    assert summary(tmp_path)["status"] == "interrupted"
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").glob("*")}
    assert not [path for path in after if path.suffix == ".index"] or after == before
    assert bool(before) == is_resumed


def test_a_stop_before_the_chiefs_first_step_saves_the_steps_of_other_workers(tmp_path):
    silent = components.load(dataclasses.replace(config(tmp_path), dataset=f"{__name__}:Silent"), 2)
    with InProcessCluster(1, 2) as cluster:
        chief, other = cluster.start(config(tmp_path), 0, components=silent), cluster.start(config(tmp_path), 1)
        wait_until(lambda: other.made and len(other.made[-1].losses) > 3)
        chief.stop.request(Interrupted(15))
        chief.stop.call("release")
        assert isinstance(cluster.finish_call(chief).error, Interrupted)
        cluster.finish_call(other)
    assert chief.made[-1].losses == []
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.index")] not in ([], ["model.ckpt-0.index"])


def test_a_worker_whose_model_has_other_variables_than_the_chiefs_is_rejected_with_two_ps_tasks():
    chief = config_of("Dense", "Rows", batch_size=4, max_steps=10**9)
    other = config_of(f"{__name__}:Narrow", "Rows", batch_size=4)
    with InProcessCluster(2, 2) as cluster:
        chiefs_call = cluster.start(chief, 0)
        call = cluster.start(chief, 1, components=components.load(other, 2))  # the same flags with another model file
        error = cluster.finish_call(call).error
        chiefs_call.stop.request(Interrupted(15))
        cluster.finish_call(chiefs_call)
    assert isinstance(error, OptionError)
    assert "worker-1 has other variables than the one on the chief" in str(error)


@pytest.mark.parametrize("is_broken", [False, True])
def test_data_that_do_not_fit_end_the_run_with_one_line(tmp_path, cluster, is_broken):
    lines = ["1 1:1", "0 two:1" if is_broken else "0 9:1"]
    (tmp_path / "a").write_text("\n".join(2 * lines) + "\n")
    few = dataclasses.replace(
        config_of("Dense", "Rows", batch_size=4, max_steps=2), model="logistic_regression", dataset="libsvm",
        model_option=("num_features=5",), dataset_option=("train_files=a", "test_files=a"), data_dir=str(tmp_path),
    )  # fmt: skip
    broken, too_large = r"a: line 2: not <label> .*: 0 two:1$", r"has 10 ids of features, .* set .* num_features=10, or"
    error, wanted = (DataError, broken) if is_broken else (OptionError, too_large)
    with pytest.raises(error, match=wanted):
        cluster.run(few)


def test_inputs_without_scaling_are_warned_of(tmp_path, cluster):
    (tmp_path / "a").write_text("1 1:50000\n0 1:40000\n1 1:1\n0 1:2\n")
    unscaled = dataclasses.replace(
        config(tmp_path, max_steps=20), model="logistic_regression", dataset="libsvm",
        model_option=("num_features=5",), dataset_option=("train_files=a", "test_files=a"), data_dir=str(tmp_path),
    )  # fmt: skip
    cluster.run(unscaled)
    lines = [json.loads(line) for line in (tmp_path / "metrics" / "worker-0.jsonl").read_text().splitlines()]
    warned = [
        line["state"] for line in lines if line["kind"] == "state" and "warning: the loss has grown" in line["state"]
    ]
    assert len(warned) == 1


def test_the_join_number_grows_over_the_processes_of_a_worker():
    endless = config_of("Dense", "Rows", batch_size=4, max_steps=10**9, recover_timeout_secs=60.0)
    with InProcessCluster(1, 2) as cluster:
        chief, worker = cluster.start(endless, 0), cluster.start(endless, 1)
        wait_until(lambda: worker.made and len(worker.made[-1].losses) > 3)
        assert (chief.worker._join_number, worker.worker._join_number) == (1, 1)
        made = len(worker.made)
        worker.stop.request(PsLostError("ps-0, as this worker thinks"))
        wait_until(lambda: len(worker.made) > made and len(worker.made[-1].losses) > 3)
        assert worker.worker._join_number == 2
        worker.stop.request(Interrupted(15))
        cluster.finish_call(worker)
        again = cluster.start(endless, 1)
        wait_until(lambda: again.made and len(again.made[-1].losses) > 3)
        assert again.worker._join_number == 3
        for call in (again, chief):
            call.stop.request(Interrupted(15))
            cluster.finish_call(call)


@pytest.mark.parametrize("joins_first", [False, True])
def test_a_worker_builds_its_graph_once_and_while_the_chief_sets_up(tmp_path, monkeypatch, joins_first):
    build, set_up = graph.build, initial_state.set_up
    built: Counter[int] = Counter()
    is_built, is_begun = threading.Event(), threading.Event()

    def counted(components, cluster, *args, **kwargs):
        train = build(components, cluster, *args, **kwargs)
        built[cluster.worker_index] += 1
        if cluster.worker_index:
            is_built.set()
        return train

    def held(*args):
        is_begun.set()
        assert is_built.wait(DEADLINE_SECS)
        return set_up(*args)

    monkeypatch.setattr(graph, "build", counted)
    monkeypatch.setattr(initial_state, "set_up", held)
    with InProcessCluster(1, 2) as cluster:
        for steps in (10, 20):  # a fresh run, and the same one continued
            built.clear(), is_built.clear(), is_begun.clear()
            settings = config(tmp_path, max_steps=steps, update="sync")
            calls = {0: cluster.start(settings, 0)}
            assert joins_first or is_begun.wait(DEADLINE_SECS)
            calls[1] = cluster.start(settings, 1)
            assert [cluster.finish(calls[index]).code for index in (0, 1)] == [0, 0]
            assert built == {0: 1, 1: 1}


def test_an_error_in_a_graph_that_was_prepared_is_told_to_the_others(monkeypatch):
    build = graph.build

    def broken(components, cluster, *args, **kwargs):
        if cluster.worker_index:
            raise ValueError("this worker's op is missing")
        return build(components, cluster, *args, **kwargs)

    monkeypatch.setattr(graph, "build", broken)
    settings = config_of("Dense", "Rows", batch_size=4, max_steps=10**9, update="sync")
    with InProcessCluster(1, 2) as cluster:
        calls = [cluster.start(settings, index) for index in (0, 1)]
        errors = [cluster.finish_call(call).error for call in calls]
    assert str(errors[1]) == "this worker's op is missing"
    assert isinstance(errors[0], PeerFailedError) and "worker 1" in str(errors[0])


def test_only_the_chief_needs_the_folder_of_the_checkpoints(tmp_path):
    of_worker = tmp_path / "of_worker"
    of_worker.mkdir()
    (of_worker / "checkpoints").write_text("no folder")
    with InProcessCluster(1, 2) as cluster:
        logdirs = (tmp_path / "of_chief", of_worker)
        calls = [cluster.start(config(logdir, max_steps=10, update="sync"), at) for at, logdir in enumerate(logdirs)]
        assert [cluster.finish(call).code for call in calls] == [0, 0]
