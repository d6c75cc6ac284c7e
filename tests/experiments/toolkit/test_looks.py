"""What colours mean, in the plots of the experiments."""

from __future__ import annotations

from matplotlib import colors

from ps_trainer.experiments.toolkit import looks


def lightness(colour):
    red, green, blue = colors.to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_shades_of_a_quantity_grow_lighter_and_none_is_faint():
    shades = looks.shades([16, 4, 8, 4, 1])
    assert list(shades) == [1, 4, 8, 16]
    values = [lightness(colour) for colour in shades.values()]
    assert values == sorted(values)
    assert min(b - a for a, b in zip(values, values[1:], strict=False)) > 0.05
    assert values[-1] < 0.8
    assert list(looks.shades([2])) == [2]


def test_each_shape_and_each_kind_of_updates_has_a_look_of_its_own():
    kinds = [looks.ASYNC, looks.SYNC, looks.SYNC_GLOBAL, looks.TOKEN_QUEUE, looks.RING, looks.COLOCATED]
    assert len(set(kinds)) == len(kinds)
    assert len({looks.ASYNC, looks.SYNC, looks.SSP, looks.SSP_CACHE}) == 4
    shapes = [tuple(looks.of_shape(shape).values()) for shape in looks.SHAPE_COLOURS]
    assert len(set(shapes)) == len(shapes)
    assert len(set(looks.SHAPE_MARKERS.values())) == len(looks.SHAPE_MARKERS)
