"""Checkpoints move from any layout, number of ps tasks and partitioning to any other."""

from __future__ import annotations

import itertools
import os
import shutil

import numpy as np
import pytest

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.errors import CheckpointError
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import representatives

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

FORMS = {
    "packed, 1 ps": (1, "packed", ()),
    "packed, 3 ps, 2 parts": (3, "packed", ("table_partitions=2", "max_piece_bytes=4096")),
    "per_variable, 2 ps": (2, "per_variable", ("placement=greedy",)),
    "per_variable, 3 ps, partitioned": (3, "per_variable", ("partitioner=fixed_size", "partitions=4")),
    "per_variable, 1 ps, min_max": (1, "per_variable", ("partitioner=min_max", "partitions=2", "min_slice_bytes=16")),
}
# Each form is saved or restored in the moves 1, 3 and 4, which change the layout both ways.
MOVES = list(itertools.pairwise([*FORMS, next(iter(FORMS))]))
CHOSEN = representatives(MOVES, [MOVES[1], MOVES[3], MOVES[4]])
MODEL_NAMES = {"table", "logits/kernel", "logits/bias"}
SLOTS = {"Adam", "Adam_1"}


def _config(form, logdir, max_steps):
    _, layout, options = FORMS[form]
    return config_of(
        "Embedded", "Rows", layout=layout, layout_option=options, optimizer="adam", learning_rate=0.01, batch_size=4,
        max_steps=max_steps, logdir=str(logdir),
    )  # fmt: skip


@pytest.fixture(scope="module")
def clusters():
    made = {num_ps: InProcessCluster(num_ps, 1) for num_ps in (1, 2, 3)}
    yield made
    for cluster in made.values():
        cluster.close()


@pytest.mark.parametrize(("saved", "restored"), CHOSEN)
def test_a_run_continues_under_another_form(clusters, tmp_path, saved, restored):
    """Values, slots and step stay the same to the bit when the run is restored under another form."""
    (first,) = clusters[FORMS[saved][0]].run(_config(saved, tmp_path / "log", 10))
    (second,) = clusters[FORMS[restored][0]].run(_config(restored, tmp_path / "log", 20))
    assert first.progress.global_steps[-1] == 10
    assert second.progress.global_steps == list(range(11, 21))
    saved_values = checkpoint_lib.Checkpoint(tmp_path / "log" / "checkpoints" / "model.ckpt-10")
    slots = {f"{name}/{slot}" for name in MODEL_NAMES for slot in SLOTS}
    assert set(saved_values) == MODEL_NAMES | slots | {"global_step", "data/position"}
    for name, value in first.worker.final_values.items():
        np.testing.assert_array_equal(saved_values[name], value, err_msg=name)
    (third,) = clusters[FORMS[saved][0]].run(_config(saved, tmp_path / "log", 20))
    assert not third.losses  # the run had already made all steps
    for name, value in second.worker.final_values.items():
        np.testing.assert_array_equal(third.worker.final_values[name], value, err_msg=name)


def test_plain_tensorflow_restores_a_checkpoint(clusters, tmp_path):
    (outcome,) = clusters[3].run(_config("packed, 3 ps, 2 parts", tmp_path, 5))
    prefix = tf.train.latest_checkpoint(str(tmp_path / "checkpoints"))
    assert prefix == str(tmp_path / "checkpoints" / "model.ckpt-5")
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", [23, 4])
        step = tf.train.create_global_step()
        tf.train.Saver().restore(session, prefix)
        np.testing.assert_array_equal(session.run(table), outcome.worker.final_values["table"])
        assert session.run(step) == 5


def test_resume_needs_the_same_optimizer(clusters, tmp_path):
    clusters[1].run(_config("packed, 1 ps", tmp_path, 3))
    config = config_of("Embedded", "Rows", optimizer="momentum", batch_size=4, max_steps=6, logdir=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"lacks .*Momentum.*--optimizer"):
        clusters[1].run(config)


def _continued(cluster, logdir, max_steps):
    """Continues the training; returns the global steps of the new part."""
    (outcome,) = cluster.run(_config("packed, 1 ps", logdir, max_steps))
    return outcome.progress.global_steps


OLD_PLACE = b'model_checkpoint_path: "/old/place/model.ckpt-3"'


# `test_writer.py` repairs each kind of file, and `test_damage.py` reads past files of random bytes.
@pytest.mark.parametrize("content", representatives([None, b"", b"garbage", OLD_PLACE], [OLD_PLACE]))
def test_a_run_continues_with_any_state_file(clusters, tmp_path, content):
    _continued(clusters[1], tmp_path, 3)
    state = tmp_path / "checkpoints" / "checkpoint"
    state.unlink()
    if content is not None:
        state.write_bytes(content)
    assert _continued(clusters[1], tmp_path, 5) == [4, 5]
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")) == str(tmp_path / "checkpoints" / "model.ckpt-5")


def test_a_moved_logdir_continues_in_its_new_place(clusters, tmp_path):
    """Another run continues in the old place meanwhile, which must not matter."""
    _continued(clusters[1], tmp_path / "old", 3)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    _continued(clusters[1], tmp_path / "old", 9)
    assert _continued(clusters[1], tmp_path / "new", 5) == [4, 5]


def test_the_previous_checkpoint_is_used_if_the_newest_is_damaged(clusters, tmp_path):
    _continued(clusters[1], tmp_path, 3)
    _continued(clusters[1], tmp_path, 6)
    os.truncate(tmp_path / "checkpoints" / "model.ckpt-6.index", 50)
    assert _continued(clusters[1], tmp_path, 5) == [4, 5]
    assert _continued(clusters[1], tmp_path, 7) == [6, 7]


def test_a_folder_whose_checkpoints_all_fail_to_load_is_never_step_0(clusters, tmp_path):
    _continued(clusters[1], tmp_path, 3)
    for path in (tmp_path / "checkpoints").glob("*.index"):
        os.truncate(path, 50)
    with pytest.raises(CheckpointError, match="none can be loaded"):
        _continued(clusters[1], tmp_path, 5)
