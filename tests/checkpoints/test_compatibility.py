"""The tensors of a checkpoint that a run takes, ignores or misses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import compatibility
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.store.extents import VariableSpec
from tests.checkpoints.checkpoint_files import write


def spec(name, shape, dtype=np.float32):
    return VariableSpec(name=name, shape=shape, dtype=np.dtype(dtype), trainable=True, is_table=False)


W, B, SLOT = spec("dense/w", (2, 3)), spec("dense/b", (3,)), spec("dense/w/Momentum", (2, 3))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write(folder, 7)
    return Checkpoint(folder / "model.ckpt-7")


def test_the_same_variables_fit(checkpoint):
    found = compatibility.compare([W, B, SLOT], checkpoint)
    assert found == compatibility.Fit(["dense/w", "dense/b", "dense/w/Momentum"], [], [], [], [])
    assert found.faults() == []


def test_slots_of_another_optimizer_are_ignored(checkpoint):
    found = compatibility.compare([W, B], checkpoint)
    assert found.ignored == ["dense/w/Momentum"] and found.faults() == []


def test_missing_variables_are_named_with_their_shapes(checkpoint):
    found = compatibility.compare([W, B, spec("dense/w/Adam", (2, 3)), spec("new", ())], checkpoint)
    assert found.faults() == ["it lacks dense/w/Adam [2, 3], new []"]


def test_another_shape_is_an_error_with_both_shapes(checkpoint):
    (fault,) = compatibility.compare([spec("dense/w", (3, 2))], checkpoint).faults()
    assert fault == "dense/w has the shape [2, 3] and the type float32, but the run needs [3, 2] of float32"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
def test_another_floating_type_is_converted_and_reported(checkpoint, dtype):
    found = compatibility.compare([spec("dense/w", (2, 3), dtype)], checkpoint)
    assert found.converted == found.restored == ["dense/w"]


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.uint8])
def test_a_type_that_would_lose_the_values_is_rejected(checkpoint, dtype):
    (fault,) = compatibility.compare([spec("dense/w", (2, 3), dtype)], checkpoint).faults()
    assert "the type float32" in fault and str(np.dtype(dtype)) in fault


def test_a_long_list_is_cut_and_counted(checkpoint):
    many = [spec(f"v{index}", ()) for index in range(8)] + [W._replace(shape=(9,)), B._replace(shape=(9,))]
    faults = compatibility.compare(many, checkpoint).faults(limit=1)
    assert (
        faults[0] == "it lacks v0 [] and 7 more" and faults[1].startswith("dense/w ") and faults[2] == "1 more differ"
    )
