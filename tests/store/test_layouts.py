"""The place of each element in each layout, compared with TensorFlow's own placement or with arithmetic."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError
from ps_trainer.store import packed
from ps_trainer.store.extents import from_pieces, to_piece
from ps_trainer.store.trace import trace
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the environment

from models import layers

WORKER = "/job:worker/task:0"
SHAPES = {"a": (40, 30), "b": (30,), "c": (), "d": (7, 11, 5), "e": (3, 3), "f": (1000,), "g": (2,)}


def dense_model():
    for name, shape in SHAPES.items():
        tf.get_variable(name, shape)


def mixed_model():
    """Two types, a table, a variable without gradient and a variable without elements."""
    dense_model()
    tf.get_variable("double", (13, 9), tf.float64)
    tf.get_variable("double_bias", (5,), tf.float64)
    tf.get_variable("empty", (0, 4))
    tf.get_variable("moving", (6,), trainable=False)
    layers.embedding("table", 23, 4, tf.placeholder(tf.int64, [None]))


def create(layout, build, num_ps, *option_strings):
    cls = component_tables.LAYOUTS.load(layout)
    parsed = options_lib.parse(cls.Options, option_strings, "--layout_option")
    ps_devices = [f"/job:ps/task:{ps}" for ps in range(num_ps)]
    store = cls(parsed, ps_devices=ps_devices, worker_device=WORKER, worker_index=0)
    with tf.Graph().as_default():
        store.create(trace(build, 0))
    return store


def dense_pieces(store):
    return [piece for piece in store.pieces if piece.trainable and not piece.is_table]


def placed(store):
    """(variable, ps) of each dense piece, by the device of its handle."""
    places = [(p.variable.op.name, tf.DeviceSpec.from_string(p.variable.handle.device)) for p in dense_pieces(store)]
    assert all(device.job == "ps" for _, device in places)
    return [(name, device.task) for name, device in places]


FORMS = [
    ("packed", ()),
    ("packed", ("max_piece_bytes=4096", "table_partitions=5")),
    ("per_variable", ()),
    ("per_variable", ("placement=greedy", "table_partitions=2")),
    ("per_variable", ("partitioner=fixed_size", "partitions=4")),
    ("per_variable", ("partitioner=min_max", "min_slice_bytes=1000")),
]


@pytest.mark.parametrize("num_ps", [1, 3])
@pytest.mark.parametrize(("layout", "strings"), FORMS)
def test_every_element_lies_in_one_place_and_the_model_gets_the_requested_shapes(layout, strings, num_ps):
    store = create(layout, mixed_model, num_ps, *strings)
    values = {spec.name: spec.dtype.type(np.random.RandomState(1).standard_normal(spec.shape)) for spec in store.specs}
    pieces = [
        (piece.extents, to_piece(piece.extents, piece.variable.shape.as_list(), values)) for piece in store.pieces
    ]
    got = from_pieces(store.specs, pieces)
    for name, value in values.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    for piece in store.pieces:
        assert f"/job:ps/task:{piece.ps}" == piece.variable.handle.device
        assert 0 <= piece.ps < num_ps
    with store.clocks[0].graph.as_default(), tf.variable_scope("", custom_getter=store.model_getter):
        for spec in store.specs:
            value = tf.get_variable(spec.name, spec.shape, tf.as_dtype(spec.dtype))
            assert tuple(value.shape.as_list()) == spec.shape
            assert value.dtype.base_dtype == spec.dtype


class TestPacked:
    @pytest.mark.parametrize("num_ps", [1, 3, 7])
    def test_each_type_is_balanced_to_the_element(self, num_ps):
        store = create("packed", mixed_model, num_ps)
        for dtype, total in (("float32", sum(np.prod(s, dtype=int) for s in SHAPES.values())), ("float64", 13 * 9 + 5)):
            elements = Counter()
            for piece in dense_pieces(store):
                if piece.variable.dtype.base_dtype == dtype:
                    elements[piece.ps] += piece.variable.shape.num_elements()
            assert sum(elements.values()) == total
            assert set(elements.values()) <= {total // num_ps, -(-total // num_ps)}

    def test_one_piece_per_ps_and_type(self):
        assert Counter(ps for _, ps in placed(create("packed", mixed_model, 3))) == {0: 2, 1: 2, 2: 2}

    def test_a_variable_above_the_limit_is_cut_evenly(self):
        store = create("packed", lambda: tf.get_variable("w", [3000]), 2, "max_piece_bytes=4096")
        # 1500 floats = 6,000 bytes per ps, in 6 pieces of at most 256 floats, a quarter of the limit
        sizes = [(piece.ps, piece.variable.shape.num_elements()) for piece in dense_pieces(store)]
        assert sizes == [(ps, 250) for ps in (0, 1) for _ in range(6)]

    @pytest.mark.parametrize(("size", "sizes"), [(512, [512]), (1024, [128] * 8)])
    def test_the_limit_is_in_bytes_not_elements(self, size, sizes):
        store = create("packed", lambda: tf.get_variable("w", [size], tf.float64), 1, "max_piece_bytes=4096")
        assert [piece.variable.shape.num_elements() for piece in dense_pieces(store)] == sizes

    def test_pieces_of_about_a_quarter_of_the_limit_hold_whole_variables(self):
        def build():
            for name, size in (("a", 200), ("b", 100), ("c", 900), ("d", 60), ("e", 200)):
                tf.get_variable(name, [size])

        store = create("packed", build, 1, "max_piece_bytes=4096")  # a quarter is 256 floats
        assert [[extent.name for extent in piece.extents] for piece in dense_pieces(store)] == [
            ["a"], ["b"], ["c"], ["d", "e"],
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("mib", "on_one_host", "between_hosts"), [(0.25, 1, 1), (0.75, 1, 3), (4, 1, 16), (64, 16, 16), (100, 25, 25)]
    )
    def test_between_hosts_a_share_has_about_16_pieces_of_256_kib_to_4_mib(self, mib, on_one_host, between_hosts):
        def count(*, spans_hosts):
            sizes = [2**14] * int(mib * 16)  # variables of 64 KiB
            most = packed.default_piece_bytes(4 * sum(sizes), spans_hosts=spans_hosts)
            return len(packed.piece_sizes(sizes, most // 4))

        assert (count(spans_hosts=False), count(spans_hosts=True)) == (on_one_host, between_hosts)

    @pytest.mark.parametrize("seed", range(20))
    def test_no_piece_is_above_the_limit_or_empty(self, seed):
        random = np.random.default_rng(seed)
        sizes, limit = [int(size) for size in random.integers(1, 3000, random.integers(1, 40))], 1024
        pieces = packed.piece_sizes(sizes, limit)
        assert sum(pieces) == sum(sizes)
        assert 0 < min(pieces) <= max(pieces) <= limit
        ends, whole = set(np.cumsum(pieces)), [size <= limit for size in sizes]
        # A cut lies at the end of a variable, or within one that is too large.
        starts = np.cumsum([0, *sizes])
        for end in ends - set(starts):
            assert not whole[int(np.searchsorted(starts, end)) - 1]

    @pytest.mark.parametrize(
        ("sizes", "shares"),
        [
            ([2**14, 2**13, 10], True),
            ([2**14, 3, 2**4, 5], True),
            ([2**14, 2**4], False),  # `tf.split` shares the memory itself
            ([2**12, 10], False),
            ([3, 2**14], False),
            ([2**14, 3, 2**14], False),
        ],
    )
    def test_a_vector_is_cut_as_by_split(self, sizes, shares):
        values = np.arange(sum(sizes), dtype=np.float32)
        with tf.Graph().as_default() as graph, tf.Session() as session:
            flat = tf.constant(values)
            parts = packed.cut_flat(flat, sizes)
            # The gradient of the second part is zero, as that of a variable on which the loss does not depend.
            losses = [tf.reduce_sum(tf.square(part)) for i, part in enumerate(parts) if i != 1]
            (gradient,) = tf.gradients(losses, flat)
            got, got_gradient = session.run([parts, gradient])
            types = [op.type for op in graph.get_operations()]
        for part, wanted in zip(got, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
            np.testing.assert_array_equal(part, wanted)
        wanted = 2 * values
        wanted[sizes[0] : sizes[0] + sizes[1]] = 0
        np.testing.assert_array_equal(got_gradient, wanted)
        assert ("Slice" in types) == shares
        assert types.count("ConcatV2") == 1 and not {"Pad", "AddN"} & set(types)

    def test_fewer_elements_than_ps_tasks_leave_some_without(self):
        store = create("packed", lambda: tf.get_variable("w", [2]), 5)
        assert [piece.variable.shape.num_elements() for piece in dense_pieces(store)] == [1, 1]

    @pytest.mark.parametrize("string", ["max_piece_bytes=4095", "table_partitions=-1"])
    def test_values_out_of_range_are_rejected(self, string):
        with pytest.raises(OptionError, match=string):
            create("packed", dense_model, 1, string)


class TestPerVariable:
    @pytest.mark.parametrize("num_ps", [1, 2, 3])
    def test_round_robin_is_tensorflows_own_placement(self, num_ps):
        with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(num_ps, worker_device=WORKER)):
            own = [tf.get_variable(name, shape) for name, shape in SHAPES.items()]
        wanted = [(v.op.name, tf.DeviceSpec.from_string(v.handle.device).task) for v in own]
        assert placed(create("per_variable", dense_model, num_ps)) == wanted

    @pytest.mark.parametrize("num_ps", [1, 2, 3])
    def test_greedy_takes_the_ps_with_the_fewest_bytes(self, num_ps):
        def build():
            for i, (name, shape) in enumerate(SHAPES.items()):
                tf.get_variable(name, shape, tf.float64 if i % 2 else tf.float32)

        totals, wanted = [0] * num_ps, []
        for i, (name, shape) in enumerate(SHAPES.items()):
            ps = int(np.argmin(totals))
            totals[ps] += np.prod(shape, dtype=int) * (8 if i % 2 else 4)
            wanted.append((name, ps))
        assert placed(create("per_variable", build, num_ps, "placement=greedy")) == wanted

    def test_fixed_size_cuts_rows_evenly_and_continues_round_robin(self):
        store = create(
            "per_variable", lambda: [tf.get_variable("w", [7, 3]), tf.get_variable("b", [2])], 2,
            "partitioner=fixed_size", "partitions=3",
        )  # fmt: skip
        got = [(p.variable.op.name, p.variable.shape.as_list(), p.ps) for p in dense_pieces(store)]
        assert got == [
            ("w/part_0", [3, 3], 0),
            ("w/part_1", [2, 3], 1),
            ("w/part_2", [2, 3], 0),
            ("b/part_0", [1], 1),  # at most one part per row
            ("b/part_1", [1], 0),
        ]

    def test_fixed_size_makes_one_part_per_ps_by_default(self):
        store = create("per_variable", lambda: tf.get_variable("w", [8, 3]), 4, "partitioner=fixed_size")
        assert [(p.variable.shape.as_list(), p.ps) for p in dense_pieces(store)] == [([2, 3], ps) for ps in range(4)]

    def test_min_max_makes_no_part_smaller_than_the_least_bytes(self):
        def build():
            tf.get_variable("small", [8, 4])  # 128 bytes
            tf.get_variable("large", [64, 4])  # 1024 bytes

        strings = ("partitioner=min_max", "min_slice_bytes=256", "partitions=3")
        store = create("per_variable", build, 2, *strings)
        assert [(p.extents[0].name, p.extents[0].size) for p in dense_pieces(store)] == [
            ("small", 8 * 4),
            ("large", 22 * 4),
            ("large", 21 * 4),
            ("large", 21 * 4),
        ]
        store = create("per_variable", build, 2, *strings[:-1], "partitions=100")
        assert [p.extents[0].size for p in dense_pieces(store)] == [8 * 4] + [16 * 4] * (1024 // 256)

    @pytest.mark.parametrize(
        "string",
        [
            "placement=random",
            "partitioner=axis",
            "partitions=-1",
            "table_partitions=-2",
            "min_slice_bytes=0",
        ],
    )
    def test_values_out_of_range_are_rejected(self, string):
        with pytest.raises(OptionError, match=string):
            create("per_variable", dense_model, 1, string)


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
class TestBoth:
    @pytest.mark.parametrize(("parts", "rows"), [(0, [8, 8, 7]), (1, [23]), (2, [12, 11]), (50, [1] * 23)])
    def test_tables_are_cut_by_rows(self, layout, parts, rows):
        store = create(layout, mixed_model, 3, f"table_partitions={parts}")
        tables = [piece for piece in store.pieces if piece.is_table]
        assert [piece.variable.shape.as_list() for piece in tables] == [[count, 4] for count in rows]
        assert [piece.ps for piece in tables] == [part % 3 for part in range(len(rows))]

    def test_the_model_receives_the_table_itself(self, layout):
        """So a lookup gathers on the ps, and only rows travel."""
        store = create(layout, mixed_model, 1)
        (table,) = (piece for piece in store.pieces if piece.is_table)
        assert table.pulled is table.variable

    def test_variables_without_gradient_are_whole_and_spread(self, layout):
        def build():
            tf.get_variable("w", [4])
            for i in range(4):
                tf.get_variable(f"moving_{i}", [9, 2], trainable=False)

        store = create(layout, build, 3)
        untrained = [piece for piece in store.pieces if not piece.trainable]
        assert [(p.variable.op.name, p.variable.shape.as_list(), p.ps) for p in untrained] == [
            (f"moving_{i}", [9, 2], i % 3) for i in range(4)
        ]

    def test_each_ps_has_a_clock_and_the_first_is_global_step(self, layout):
        store = create(layout, dense_model, 3)
        assert [clock.op.name for clock in store.clocks] == [
            "global_step", "ps_trainer/clock_1", "ps_trainer/clock_2"
        ]  # fmt: skip
        assert [clock.handle.device for clock in store.clocks] == [f"/job:ps/task:{ps}" for ps in range(3)]
        assert tf.train.get_global_step(store.clocks[0].graph) is store.clocks[0]

    def test_no_variable_on_a_ps_is_in_the_collection_of_trainable_ones(self, layout):
        """TensorFlow's own `minimize` would otherwise make a second update."""
        store = create(layout, mixed_model, 2)
        with store.clocks[0].graph.as_default():
            assert not [v for v in tf.trainable_variables() if v.device.startswith("/job:ps")]

    def test_a_variable_that_was_not_traced_is_rejected(self, layout):
        store = create(layout, dense_model, 1)
        with (
            store.clocks[0].graph.as_default(),
            tf.variable_scope("", custom_getter=store.model_getter),
            pytest.raises(OptionError, match="asks for variable 'new' on this build but not on the first"),
        ):
            tf.get_variable("new", [1])


@pytest.mark.parametrize("strings", [(), ("placement=greedy",)], ids=["round_robin", "greedy"])
def test_the_ps_tasks_may_be_of_several_jobs(strings):
    ps_devices = [
        "/job:chief/task:0/device:CPU:0",
        "/job:worker/task:0/device:CPU:0",
        "/job:worker/task:1/device:CPU:0",
    ]
    cls = component_tables.LAYOUTS.load("per_variable")
    parsed = options_lib.parse(cls.Options, strings, "--layout_option")
    store = cls(parsed, ps_devices=ps_devices, worker_device="/job:worker/task:0", worker_index=1)
    with tf.Graph().as_default():
        store.create(trace(mixed_model, 0))
    for piece in store.pieces:
        assert piece.variable.handle.device == ps_devices[piece.ps] == store.ps_device(piece.ps)
    assert {piece.ps for piece in store.pieces if piece.trainable and not piece.is_table} == {0, 1, 2}
    assert [piece.ps for piece in store.pieces if piece.is_table] == [0, 1, 2]
