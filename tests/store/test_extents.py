"""Cutting a model's variables into pieces and joining them again loses and moves no element."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.store.extents import Extent, VariableSpec, allocate, cut, from_pieces, to_piece

NUM_CASES = 60


def spec_of(name: str, shape: tuple[int, ...], dtype: str = "float32") -> VariableSpec:
    return VariableSpec(name, shape, np.dtype(dtype), trainable=True, is_table=False)


def random_case(seed: int):
    """Specs of random shapes (including scalars and empty ones), values, and sizes that sum to all elements."""
    random = np.random.RandomState(seed)
    specs = [
        spec_of(f"v{i}", tuple(random.randint(0 if random.rand() < 0.1 else 1, 6, random.randint(0, 4))))
        for i in range(random.randint(1, 7))
    ]
    values = {spec.name: np.float32(random.standard_normal(spec.shape)) for spec in specs}
    total = sum(spec.size for spec in specs)
    cuts = np.sort(random.randint(0, total + 1, random.randint(0, 6)))
    return specs, values, np.diff([0, *cuts, total]).tolist()


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_cut_gives_each_piece_its_part_of_the_line(seed):
    specs, values, sizes = random_case(seed)
    line = np.concatenate([values[spec.name].ravel() for spec in specs])
    pieces = cut(specs, sizes)
    assert len(pieces) == len(sizes)
    start = 0
    for extents, size in zip(pieces, sizes, strict=True):
        assert sum(extent.size for extent in extents) == size
        assert all(extent.size > 0 for extent in extents)
        if size:
            np.testing.assert_array_equal(to_piece(extents, [size], values), line[start : start + size])
        start += size


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_pieces_give_the_variables_back_to_the_bit(seed):
    specs, values, sizes = random_case(seed)
    places = zip(cut(specs, sizes), sizes, strict=True)
    pieces = [(extents, to_piece(extents, [size], values)) for extents, size in places if size]
    got = from_pieces(specs, pieces[::-1])  # the order of pieces does not matter
    assert set(got) == set(values)
    for name, value in values.items():
        assert got[name].shape == value.shape
        assert got[name].dtype == value.dtype
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def test_a_variable_over_a_border_lies_in_both_pieces():
    specs = [spec_of("a", (2, 2)), spec_of("b", (3,)), spec_of("scalar", ())]
    assert cut(specs, [3, 5]) == [
        [Extent("a", 0, 3, 0)],
        [Extent("a", 3, 4, 0), Extent("b", 0, 3, 1), Extent("scalar", 0, 1, 4)],
    ]


def test_a_long_variable_lies_in_many_pieces():
    assert cut([spec_of("a", (7,))], [3, 3, 1]) == [
        [Extent("a", 0, 3, 0)],
        [Extent("a", 3, 6, 0)],
        [Extent("a", 6, 7, 0)],
    ]


def test_a_variable_without_elements_is_in_no_piece_and_is_restored():
    specs = [spec_of("empty", (0, 3)), spec_of("a", (2,)), spec_of("last", (4, 0))]
    pieces = cut(specs, [2])
    assert pieces == [[Extent("a", 0, 2, 0)]]
    got = from_pieces(specs, [(pieces[0], np.array([1.0, 2.0], np.float32))])
    assert got["empty"].shape == (0, 3) and got["last"].shape == (4, 0)
    np.testing.assert_array_equal(got["a"], [1, 2])


def test_a_piece_takes_the_shape_of_its_variable():
    value = np.arange(6.0).reshape(3, 2)
    rows = to_piece([Extent("a", 2, 6, 0)], [2, 2], {"a": value})
    np.testing.assert_array_equal(rows, value[1:])
    assert to_piece([Extent("s", 0, 1, 0)], [], {"s": np.float64(3.0)}).shape == ()


@pytest.mark.parametrize(
    "extents",
    [
        [],
        [Extent("a", 0, 3, 0)],
        [Extent("a", 1, 4, 0)],
        [Extent("a", 0, 2, 0), Extent("a", 2, 4, 2), Extent("a", 0, 1, 0)],
        [Extent("a", 0, 2, 0), Extent("a", 0, 2, 2)],
        [Extent("a", 0, 3, 0), Extent("a", 2, 3, 2)],
    ],
    ids=["nothing", "no end", "no start", "a part twice", "one half twice", "an overlap for a hole"],
)
def test_elements_that_are_not_covered_exactly_once_are_an_error(extents):
    with pytest.raises(ValueError, match="exactly once: a$"):
        from_pieces([spec_of("a", (4,)), spec_of("b", ())], [(extents, np.zeros(4)), ([Extent("b", 0, 1, 0)], 0.0)])


def test_sizes_count_elements_and_bytes():
    assert (spec_of("a", (3, 4), "float64").size, spec_of("a", (3, 4), "float64").num_bytes) == (12, 12 * 8)
    assert (spec_of("s", ()).size, spec_of("s", ()).num_bytes) == (1, 4)
    assert spec_of("e", (0, 9)).num_bytes == 0


def test_the_values_of_a_save_are_aligned_so_that_tensorflow_does_not_copy_them():
    specs = [
        VariableSpec(name, (size,), np.dtype(np.float32), True, False) for name, size in (("a", 5), ("b", 300_001))
    ]
    flat = allocate(specs, [(Extent(spec.name, 0, spec.size, 0),) for spec in specs])
    assert [(value.shape, value.dtype, value.ctypes.data % 64) for value in flat.values()] == [
        ((spec.size,), spec.dtype, 0) for spec in specs
    ]
