"""Examples in memory: the forms of arrays and archives, and the tensors of images."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import array_source
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from tests.data.reading import numbered_columns, read_batches


@pytest.fixture
def source():
    return ArraySource(numbered_columns(25), numbered_columns(7), num_classes=25)


def test_image_belongs_to_its_label_and_is_scaled(source):
    for batch in read_batches(lambda: source.train(shard=Shard(1, 2), batch_size=4, seed=0, num_epochs=1)):
        np.testing.assert_allclose(batch["image"][:, 0, 0, 0], batch["label"] / 255, rtol=1e-6)
        assert not batch["image"][:, 1].any()


def test_columns_that_are_not_bytes_pass_unchanged():
    arrays = {"image": np.full((2, 1), 0.25, np.float32), "weight": np.array([3.5, 4.5])}
    batch = read_batches(lambda: ArraySource(arrays, arrays, num_classes=None).test(batch_size=2))[0]
    np.testing.assert_array_equal(batch["image"], arrays["image"])
    np.testing.assert_array_equal(batch["weight"], arrays["weight"])


def test_arrays_of_different_length_are_rejected():
    arrays = {**numbered_columns(3), "label": np.arange(2)}
    with pytest.raises(DataError, match=r"test arrays .*'image': 3, 'label': 2"):
        ArraySource(numbered_columns(3), arrays, num_classes=3)


def test_empty_arrays_are_rejected():
    with pytest.raises(DataError, match="at least 1"):
        ArraySource(numbered_columns(0), numbered_columns(3), num_classes=3)


def test_other_columns_in_test_are_rejected():
    with pytest.raises(DataError, match=r"\['image', 'label'\], but the test arrays \['label'\]"):
        ArraySource(numbered_columns(3), {"label": np.arange(3)}, num_classes=3)


def test_arrays_too_large_for_the_graph_are_rejected():
    # broadcast_to has the size of that number of bytes, but does not use the memory.
    images = np.broadcast_to(np.uint8(0), (array_source.MAX_ARRAY_BYTES + 1, 1))
    with pytest.raises(DataError, match=f"{array_source.MAX_ARRAY_BYTES + 1} bytes"):
        ArraySource({"image": images}, {"image": images[:1]}, num_classes=None)


def test_an_image_file_becomes_an_example_of_the_size_of_the_others(source, tmp_path):
    height, width, channels = source.image_shape
    picture = np.full((2 * height, 3 * width, channels), 51, np.uint8)
    with tf.Session() as session:
        (tmp_path / "a.png").write_bytes(session.run(tf.io.encode_png(picture)))
    (batch,) = read_batches(lambda: source.read(tmp_path / "a.png", 2))
    np.testing.assert_allclose(batch["image"], np.full((1, height, width, channels), 51 / 255), rtol=1e-6)
    assert list(batch["label"]) == [0]


@pytest.mark.parametrize(("name", "kind"), [("a.wav", "a sound"), ("a.jpg", "an image")])
def test_a_file_of_another_kind_is_named(tmp_path, name, kind):
    arrays = {"image": np.full((2, 1), 0.25, np.float32)}  # no picture
    with pytest.raises(DataError, match=f"{name} is {kind}, which dataset ArraySource does not read"):
        ArraySource(arrays, arrays, num_classes=None).read(tmp_path / name, 2)


class TestArchives:
    def read(self, source, path, **arrays):
        np.savez(path, **arrays)
        return read_batches(lambda: source.read(path, 2))

    def test_are_read_like_the_arrays_and_may_have_no_labels(self, source, tmp_path):
        columns = numbered_columns(3)
        batches = self.read(source, tmp_path / "a.npz", **columns)
        assert [list(batch["label"]) for batch in batches] == [[0, 1], [2]]
        assert batches[1]["image"][0, 0, 0, 0] == pytest.approx(2 / 255)
        batches = self.read(source, tmp_path / "a.npz", image=columns["image"])
        assert [list(batch["label"]) for batch in batches] == [[0, 0], [0]]

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"label": np.zeros(3, np.int64)}, r"has no array 'image'; .* \(.npz\) with image, and label if"),
            ({"image": np.zeros([3, 2, 3, 1])}, r"'image' is float64 \[examples, 2, 3, 1\]; it must be uint8"),
            ({"image": np.zeros([3, 2, 2, 1], np.uint8)}, r"'image' is uint8 \[examples, 2, 2, 1\]; it must be uint8"),
            ({"image": np.zeros([0, 2, 3, 1], np.uint8)}, "at least 1"),
            ({"image": np.array([None])}, "holds more than numbers; write it again"),
        ],
    )
    def test_archives_of_another_form_are_named(self, source, tmp_path, arrays, message):
        with pytest.raises(DataError, match=f"a.npz.*{message}"):
            self.read(source, tmp_path / "a.npz", **arrays)

    @pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut"])
    def test_files_that_are_not_archives_are_named(self, source, tmp_path, content):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(
            DataError, match=r"a.npz is not a NumPy archive \(.npz\) with image, and label if"
        ) as raised:
            source.read(tmp_path / "a.npz", 2)
        assert "pickle" not in str(raised.value)

    def test_a_damaged_archive_is_named(self, source, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", **numbered_columns(300))
        content = bytearray((tmp_path / "a.npz").read_bytes())
        content[60:70] = bytes(10)
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DataError, match="a.npz is damaged"):
            source.read(tmp_path / "a.npz", 2)

    def test_an_archive_of_other_files_is_named(self, source, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            file.writestr("image", "text")
        with pytest.raises(DataError, match="a.npz: 'image' is not an array"):
            source.read(tmp_path / "a.npz", 2)
