"""Generated sets as files: the loader reads the written examples, and no file is overwritten or partial."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.data.generators import generate
from ps_trainer.data.generators.known_truth import PlantedRatings
from ps_trainer.errors import DataError, OptionError, UnknownNameError
from tests.data.reading import read_batches

# Generator and options -> dataset that reads it, its options, and the built-in set with the same examples.
READ_BY = {
    ("glyphs", ("size=9", "channels=1")): ("mnist", (), "glyphs"),
    ("glyphs", ("size=32", "channels=3")): ("cifar10", (), "glyphs"),
    ("synthetic", ("height=3", "width=5", "num_classes=4")): ("mnist", (), "synthetic"),
    ("planted_weights", ("num_features=30", "num_ids=4", "num_planted=3")): (
        "libsvm",
        ("train_files=train.libsvm", "test_files=test.libsvm"),
        "planted_weights",
    ),
    ("planted_clicks", ("num_values=5",)): ("criteo", ("test_files=test.txt",), "planted_clicks"),
}
COUNTS = ("num_train=25", "num_test=10")


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


@pytest.mark.parametrize(("name", "options"), READ_BY)
def test_the_loader_reads_the_examples_of_the_built_in_set(tmp_path, name, options):
    dataset, dataset_options, built_in = READ_BY[name, options]
    files = generate.generate(name, [*options, *COUNTS], tmp_path / "set")
    assert sorted(files) == sorted(path for path in (tmp_path / "set").rglob("*") if path.is_file())
    read = component_tables.DATASETS.create(dataset, dataset_options, data_dir=str(tmp_path / "set"))
    made = component_tables.DATASETS.create(built_in, [*options, *COUNTS], data_dir=None)
    assert (read.num_train_examples, read.num_test_examples) == (25, 10)
    found, expected = all_of_test(read), all_of_test(made)
    if name == "planted_weights":
        expected["ids"] = np.sort(expected["ids"]) + 1
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-6)  # TensorFlow's logarithms differ from NumPy's


def test_ratings_are_read_back_to_four_decimals(tmp_path):
    generate.generate("planted_ratings", COUNTS, tmp_path / "set")
    read = all_of_test(component_tables.DATASETS.create("movielens", ["test_every=35"], data_dir=str(tmp_path / "set")))
    first = {
        key: values[0] for key, values in PlantedRatings(PlantedRatings.Options(num_train=25)).arrays["train"].items()
    }
    assert (read["user"], read["item"]) == (first["user"] + 1, first["item"] + 1)
    np.testing.assert_allclose(read["rating"], first["rating"], atol=1e-4)


@pytest.mark.parametrize("name", generate.GENERATORS)
def test_same_options_same_bytes(tmp_path, name):
    first, again = (generate.generate(name, COUNTS, tmp_path / folder) for folder in ("a", "b"))
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(DataError, match="is not empty, and this command overwrites no file"):
        generate.generate("glyphs", COUNTS, tmp_path)
    with pytest.raises(DataError, match="mine is a file"):
        generate.generate("glyphs", COUNTS, tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    assert generate.generate("glyphs", COUNTS, tmp_path / "empty")


def test_an_interrupted_generator_is_noticed(tmp_path, monkeypatch):
    def broken_off(options, folder: pathlib.Path):
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    broken_off.__annotations__["options"] = PlantedRatings.Options
    monkeypatch.setattr(generate, "load", lambda name: broken_off)
    with pytest.raises(KeyboardInterrupt):
        generate.generate("glyphs", (), tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["set.partial"]
    with pytest.raises(DataError, match="set.partial exists: another command is still writing it, or was interrupted"):
        generate.generate("glyphs", (), tmp_path / "set")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("glyphs", ["channels=3"], "size=28 channels=3: no file format has these"),
        (
            "glyphs",
            ["size=32", "channels=3", "num_train=4"],
            "num_train=4 must be at least 5, the number of CIFAR-10's training files",
        ),
        ("glyphs", ["sise=8"], "unknown key 'sise'; did you mean size"),
        ("synthetic", ["channels=2"], "channels=2: files like MNIST's have one"),
        ("synthetic", ["num_classes=11"], "num_classes=11: files like MNIST's have at most 10"),
    ],
)
def test_examples_that_the_format_cannot_hold_are_rejected_and_leave_no_file(tmp_path, name, options, message):
    with pytest.raises(OptionError, match=message):
        generate.generate(name, options, tmp_path / "set")
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="unknown name; did you mean glyphs[?] known: glyphs, synthetic"):
        generate.load("glyph")
