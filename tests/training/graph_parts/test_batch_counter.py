"""The counts of examples that workers have read under `--sharding=static`: from a checkpoint, and after a restart."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.checkpoints import reader as checkpoint_lib
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import representatives
from tests.testing.rule_promises import PROMISES
from tests.training.test_graph import build, crossings

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training.graph_parts.batch_counter import EXAMPLE_COUNTS, create_example_counts

TINY_RATE = 1e-30  # so the loss of a step identifies its batch
LOCAL = ["accumulate", "downpour", "easgd", "local_sgd", "model_averaging"]


def config(logdir=None, update="async", **fields):
    """A config with a shuffled dataset of 100 examples, so that no batch of 8 ends with an epoch."""
    promises = PROMISES[update]
    return config_of(
        "Dense",
        "Shuffled",
        update=update,
        update_option=promises.options,
        **{"learning_rate": TINY_RATE, "batch_size": 8, "logdir": logdir} | fields,
    )


def saved_counts(logdir):
    return checkpoint_lib.latest(logdir / "checkpoints")[EXAMPLE_COUNTS].tolist()


@pytest.fixture(scope="module")
def one_worker():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(1, 2) as cluster:  # the counts lie on ps 0
        yield cluster


def test_a_run_in_three_pieces_reads_what_it_reads_in_one(one_worker, tmp_path):
    (whole,) = one_worker.run(config(max_steps=30))
    losses = []
    for piece in range(1, 4):
        (outcome,) = one_worker.run(config(str(tmp_path), max_steps=10 * piece))
        losses += outcome.losses
        assert saved_counts(tmp_path) == [8 * 10 * piece]
    assert losses == whole.losses
    assert len(set(losses)) == 30  # 2.4 epochs


# All rules but `accumulate` keep the steps that they have not pushed.
@pytest.mark.parametrize("update", representatives(["sync", "async", "all_reduce", *LOCAL], ["accumulate", "downpour"]))
def test_each_worker_reads_on_in_its_own_part(two_workers, tmp_path, update):
    whole = two_workers.run(config(update=update, max_steps=None, num_epochs=3))
    first = two_workers.run(config(str(tmp_path), update=update, max_steps=5))
    made = [len(outcome.losses) for outcome in first]
    left = [position // 8 for position in saved_counts(tmp_path)]
    for made_steps, counted in zip(made, left, strict=True):
        # Steps that a worker did not push before its end are not in the counts, but in its own state.
        assert made_steps - 1 <= counted <= made_steps
    rest = two_workers.run(config(str(tmp_path), update=update, max_steps=None, num_epochs=3))
    for worker in range(2):
        read = [*first[worker].losses, *rest[worker].losses]
        if update == "accumulate" and made[worker] != left[worker]:
            del read[left[worker] : made[worker]]  # its sum is not saved, so it reads these batches again
        assert read == whole[worker].losses
        assert len(read) == 3 * 50 // 8


def test_epochs_count_over_all_starts(one_worker, tmp_path):
    fields = {"max_steps": None, "batch_size": 25}
    counts = [len(one_worker.run(config(str(tmp_path), num_epochs=n, **fields))[0].losses) for n in (1, 1, 3, 3)]
    assert counts == [4, 0, 2 * 4, 0]


def test_another_batch_size_continues_after_the_same_examples(one_worker, tmp_path):
    one_worker.run(config(str(tmp_path), max_steps=5, batch_size=8))
    one_worker.run(config(str(tmp_path), max_steps=8, batch_size=20))
    assert saved_counts(tmp_path) == [5 * 8 + 3 * 20]


@pytest.mark.parametrize(
    ("saved", "wanted"), [([10, 20], [10, 20]), ([7, 8, 3], [9, 9]), ([40], [20, 20]), (None, [0, 0])]
)
def test_with_another_number_of_workers_all_start_at_the_mean_position(saved, wanted, caplog):
    with tf.Graph().as_default():
        position = create_example_counts(2, "/job:ps/task:0")
    assert position.adapt(None if saved is None else np.array(saved, np.int64)).tolist() == wanted
    if saved != [10, 20]:
        assert "the examples" in caplog.text or "its examples" in caplog.text


@pytest.mark.parametrize("update", LOCAL)
def test_a_phase_without_a_push_counts_nothing_on_a_ps(update):
    train = build(config_of("Dense", "Rows", update=update, update_option=PROMISES[update].options))
    for phase, fetches in zip(train.step.phases, train.fetches, strict=True):
        to_ps, _ = crossings(train, fetches)
        places = [shape for _, kind, shape in to_ps if kind == "data" and shape == (None, 1)]
        assert len(places) == (phase.pushed is not None)
