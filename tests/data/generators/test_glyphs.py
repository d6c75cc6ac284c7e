"""Synthetic pictures of digits: their content, and that a seed determines everything in them."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.data.generators.glyphs import FONT, Glyphs, bitmap
from ps_trainer.errors import OptionError
from tests.data.reading import read_batches


def pictures(**options):
    source = Glyphs(Glyphs.Options(num_train=1, **options))
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


def test_every_digit_has_a_bitmap_of_its_own():
    assert len({bitmap(digit).tobytes() for digit in range(10)}) == len(FONT) == 10
    np.testing.assert_array_equal(bitmap(1).sum(axis=0), [0, 2, 7, 1, 0])


def test_without_noise_each_picture_is_its_digits_bitmap_magnified():
    batch = pictures(noise=0.0, num_test=40, size=24)
    for image, label in zip(batch["image"], batch["label"], strict=True):
        colours, counts = np.unique(image.reshape(-1, 3), axis=0, return_counts=True)
        assert len(colours) == 2
        ground = colours[counts.argmax()]  # a digit covers less than half of the picture
        is_set = np.any(image != ground, axis=2)
        rows, columns = np.flatnonzero(is_set.any(axis=1)), np.flatnonzero(is_set.any(axis=0))
        found = is_set[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        glyph = bitmap(label)
        glyph = glyph[:, glyph.any(axis=0)]
        height, width = (side // small for side, small in zip(found.shape, glyph.shape, strict=True))
        np.testing.assert_array_equal(found, np.kron(glyph, np.ones((height, width), bool)))
        assert ground.max() * 255 < 80 and image[is_set].min() * 255 > 175


def test_shapes_classes_and_range():
    batch = pictures(num_test=500, size=9, channels=1)
    assert batch["image"].shape == (500, 9, 9, 1)
    assert np.bincount(batch["label"], minlength=10).min() > 20
    assert (batch["image"].min(), batch["image"].max()) == (0, 1)


def test_same_seed_same_pictures_other_seed_other_ones():
    first, again, other = (pictures(seed=seed, num_test=20)["image"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9


def test_options_come_from_the_command_line():
    source = component_tables.DATASETS.create("glyphs", ["num_train=12", "num_test=5"], data_dir=None)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (12, 5, 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"characters": "1"}, "characters='1' must have at least two characters"),
        ({"characters": "121"}, "each only once"),
        ({"characters": "12a"}, "the built-in font has only digits; give font as well"),
        ({"num_train": 10**6}, "the examples take 776000000 bytes"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        Glyphs.Options(**options)


def test_characters_of_a_font_are_drawn_in_the_picture():
    pytest.importorskip("matplotlib")
    batch = pictures(font="DejaVu Sans", characters="oIW", size=24, channels=1, noise=0.0, num_test=90)
    assert set(batch["label"]) == {0, 1, 2}
    widths = [[] for _ in range(3)]
    for image, label in zip(batch["image"], batch["label"], strict=True):
        is_set = image[..., 0] > (image.min() + image.max()) / 2
        rows, columns = np.flatnonzero(is_set.any(axis=1)), np.flatnonzero(is_set.any(axis=0))
        widths[label].append((columns[-1] - columns[0] + 1) / (rows[-1] - rows[0] + 1))
    o, stroke, w = (np.median(one) for one in widths)
    assert stroke < 0.4 < 0.8 < o < 1.2 < w


def test_a_missing_font_is_named(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(OptionError, match="font=No Such Font: no such file or font; fonts: .*DejaVu Sans"):
        Glyphs(Glyphs.Options(font="No Such Font"))
    (tmp_path / "text.ttf").write_text("no font")
    with pytest.raises(OptionError, match="Pillow cannot read .*text.ttf"):
        Glyphs(Glyphs.Options(font=str(tmp_path / "text.ttf")))
