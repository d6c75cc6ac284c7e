"""Images with a known teacher."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.data.generators.random_images import Synthetic
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import OptionError
from tests.data.reading import read_batches


def _test_set(**options):
    source = Synthetic(Synthetic.Options(**options), data_dir=None)
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return source, batch


def test_linear_teacher_gives_every_label():
    source, batch = _test_set(num_test=300, num_classes=4, height=5, width=3, channels=2)
    assert batch["image"].shape == (300, 5, 3, 2)
    x = np.float64(batch["image"].reshape(300, -1)) * 2 - 1
    np.testing.assert_array_equal(batch["label"], np.argmax(x @ source.teacher[0], axis=1))


def test_mlp_teacher_gives_every_label():
    source, batch = _test_set(num_test=300, teacher="mlp", teacher_hidden=6)
    x = np.float64(batch["image"].reshape(300, -1)) * 2 - 1
    first, second = source.teacher
    assert (first.shape, second.shape) == ((64, 6), (6, 10))
    np.testing.assert_array_equal(batch["label"], np.argmax(np.maximum(x @ first, 0) @ second, axis=1))


@pytest.mark.parametrize("teacher", ["linear", "mlp"])
def test_every_class_occurs(teacher):
    labels = _test_set(teacher=teacher)[1]["label"]
    assert np.bincount(labels, minlength=10).min() > len(labels) / 10 / 4


def test_same_seed_same_data_other_seed_other_data():
    first, again, other = (_test_set(seed=seed, num_test=50)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["image"], again["image"])
    np.testing.assert_array_equal(first["label"], again["label"])
    assert (first["image"] != other["image"]).mean() > 0.9


def test_training_and_test_images_differ():
    source, test = _test_set(num_train=64, num_test=64)
    (train,) = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=64, seed=0, num_epochs=1))
    images = {image.tobytes() for image in train["image"]} | {image.tobytes() for image in test["image"]}
    assert len(images) == 2 * 64


def test_options_come_from_the_command_line():
    source = component_tables.DATASETS.create("synthetic", ["num_train=12", "num_classes=3"], data_dir=None)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (12, 1024, 3)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("num_train=10000000", r"the examples take 720000000 bytes, but at most 33554432 are allowed"),
    ],
)
def test_wrong_option_is_named(option, message):
    with pytest.raises(OptionError, match=f"--dataset_option: {message}"):
        component_tables.DATASETS.create("synthetic", [option], data_dir=None)
