"""Tables that are read during updates have the rows and slots of the held moment, to the bit."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.checkpoints import held_state, logged_rows
from ps_trainer.checkpoints.stored_state import SavedVariable
from ps_trainer.optimizers.assignment import OptimizerAssignment, VariableOptimizer
from ps_trainer.store import undo_log
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.pieces import Piece
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.exclusive import exclusive, initializers

NUM_ROWS, WIDTH, NUM_WORKERS, ROWS_OF_A_STEP = 61, 3, 3, 9
TABLE = np.arange(NUM_ROWS * WIDTH, dtype=np.float32).reshape(NUM_ROWS, WIDTH)
OPTIMIZERS = ["sgd", "momentum", "adagrad", "lazy_adam", "rmsprop", "ftrl"]


class Store:
    """The part of a store that an applier and a section need: one table on one ps task, which is this process."""

    def __init__(self):
        self.clocks = [create_variable("global_step", [], np.int64)]
        variable = create_variable("table", TABLE.shape, np.float32)
        self.pieces = [Piece(variable, 0, (Extent("table", 0, TABLE.size, 0),), variable, is_table=True)]

    def ps_device(self, ps):
        return ""


class LoggedTable:
    """A table that several workers update by random rows, each in a separate thread.

    Args:
        optimizer: Name of the optimizer.
        is_locked: Whether an update excludes other ones of the table, as in every rule but `hogwild`.
        is_in_section: Whether it is made in the exclusive section of the ps task.
    """

    def __init__(self, optimizer, *, is_locked=True, is_in_section=False):
        with tf.Graph().as_default() as graph, graph.container("run"):
            store = Store()
            (self.piece,) = store.pieces
            optimizers = OptimizerAssignment(VariableOptimizer(component_tables.OPTIMIZERS.create(optimizer), 0.5))
            applier = Applier(store, optimizers, component_tables.SCHEDULES.create("constant"))
            self.indices = tf.placeholder(tf.int64, [None])
            self.values = tf.placeholder(tf.float32, [None, WIDTH])
            gradient = tf.IndexedSlices(self.values, self.indices, TABLE.shape)
            locking = {"use_locking": is_locked, "in_section": is_in_section}
            apply = lambda value: applier.apply(0, [(self.piece, value)], **locking)  # noqa: E731
            if is_in_section:
                applier.create_slots(0, [self.piece])

                def in_section(value):
                    with tf.control_dependencies([apply(value)]):
                        return tf.constant(0)

                self.apply_op = exclusive(store, 0, in_section, gradient).op
            else:
                self.apply_op = apply(gradient)
            self.slots = [slot for _, slot in applier.slots]
            variables = {"table": self.piece.variable} | {f"table/{s.op.name}": s for s in self.slots}
            self.reads = {name: variable.read_value() for name, variable in variables.items()}
            state = types.SimpleNamespace(
                saved_variables=[
                    SavedVariable(variable, (Extent(name, 0, TABLE.size, 0),), is_slot=name != "table")
                    for name, variable in variables.items()
                ],
                count_reads={},
                clock=store.clocks[0],
                specs=[VariableSpec(name, TABLE.shape, TABLE.dtype, True, True) for name in variables],
            )
            self.undo = applier.undo_logs.get(0)
            self.held = held_state.HeldState(state, applier.undo_logs, call_secs=60.0)
            if self.undo is not None:
                self.are_kept = [
                    tf.raw_ops.VarIsInitializedOp(resource=one) for one in self.undo.tables[0].kept._handles
                ]
                size = tf.shape(
                    tf.raw_ops.ReadVariableOp(resource=self.undo.tables[0].kept._handles[0], dtype=tf.float32)
                )
                self.kept = self.undo.tables[0].kept.get(tf.range(size[0]))
                self.num_entries = self.undo.tables[0].count()
                self.stamps = self.undo.tables[0].stamps.read_value()
            load_op = self.piece.variable.assign(TABLE)
            init_op = tf.global_variables_initializer()
            section_ops = initializers()
        self.session = tf.Session(graph=graph)
        self.session.run(init_op)
        self.session.run([load_op, section_ops, self.held.release_op])
        self.num_updates = [0] * NUM_WORKERS
        self.updated = threading.Condition()
        self._is_over = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(NUM_WORKERS)

    def update(self, indices, values, **recording):
        self.session.run(self.apply_op, {self.indices: indices, self.values: values}, **recording)

    def update_at_random(self, random):
        indices = random.randint(0, NUM_ROWS, ROWS_OF_A_STEP)  # an index may occur twice
        self.update(indices, random.normal(size=[ROWS_OF_A_STEP, WIDTH]))

    @contextlib.contextmanager
    def workers(self, update):
        """Lets each worker call `update(worker)` again and again."""

        def work(worker):
            while not self._is_over.is_set():
                update(worker)
                with self.updated:
                    self.num_updates[worker] += 1
                    self.updated.notify_all()

        self._is_over.clear()
        started = [self._pool.submit(work, worker) for worker in range(NUM_WORKERS)]
        try:
            yield
        finally:
            self._is_over.set()
            for one in started:
                one.result(60)

    def present(self):
        return self.session.run(self.reads)

    def read(self, snapshot, after_slice=lambda: None):
        values = self.held.read(self.session, snapshot, after_slice)
        return {name: values[name] for name in self.reads}

    def close(self):
        self._pool.shutdown()
        self.session.close()


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """Logs even a small table, in slices of a few rows."""
    monkeypatch.setattr(undo_log, "LARGE_BYTES", 0)
    monkeypatch.setattr(held_state, "_SMALL_BYTES", 0)
    monkeypatch.setattr(logged_rows, "_SLICE_BYTES", 100)
    monkeypatch.setattr(logged_rows, "_COPY_BYTES", 100)
    monkeypatch.setattr(logged_rows, "_KEPT_BYTES", 400)
    monkeypatch.setattr(logged_rows, "_MAX_ENTRIES", 4)


@pytest.fixture
def make_run():
    with contextlib.ExitStack() as stack:

        def create(*args, **kwargs):
            run = LoggedTable(*args, **kwargs)
            stack.callback(run.close)
            return run

        yield create


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].tobytes() == value.tobytes(), name


def wait_for_updates(run, count):
    """Waits until each worker has made `count` updates more."""
    wanted = [done + count for done in run.num_updates]
    with run.updated:
        assert run.updated.wait_for(
            lambda: all(done >= least for done, least in zip(run.num_updates, wanted, strict=True)), 60
        )


@pytest.mark.parametrize(
    ("is_locked", "is_in_section"), [(True, False), (False, False), (True, True)], ids=["async", "hogwild", "section"]
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_table_and_its_slots_have_the_values_of_the_moment(make_run, optimizer, is_locked, is_in_section):
    run = make_run(optimizer, is_locked=is_locked, is_in_section=is_in_section)
    randoms = [np.random.RandomState(worker) for worker in range(NUM_WORKERS)]
    for _ in range(2):  # a second save follows the first one
        run.update_at_random(randoms[0])
        wanted = run.present()
        snapshot = run.held.hold(run.session)
        assert snapshot.of_logs[0] > 0
        with run.workers(lambda worker: run.update_at_random(randoms[worker])):
            found = run.read(snapshot, lambda: wait_for_updates(run, 2))
        assert_equal(found, wanted)
        assert not np.array_equal(run.present()["table"], wanted["table"])
        assert run.held.logged_bytes > 0


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_row_has_all_updates_before_the_moment_and_none_after_it(make_run, is_locked):
    """Only an update that is under way at the moment may be in some of its rows, or in one of its slots."""
    run = make_run("adagrad", is_locked=is_locked)
    rows = [np.arange(worker, NUM_ROWS, NUM_WORKERS) for worker in range(NUM_WORKERS)]
    # A gradient of 1 for each of its own rows: the sum of squares counts the updates of each row.
    values = [np.ones([len(own), WIDTH]) for own in rows]
    with run.workers(lambda worker: run.update(rows[worker], values[worker])):
        for _ in range(5):
            wait_for_updates(run, 1)
            done = list(run.num_updates)
            snapshot = run.held.hold(run.session)
            begun = [count + 1 for count in run.num_updates]
            wait_for_updates(run, 3)
            found = run.read(snapshot, lambda: wait_for_updates(run, 1))
            (squares,) = (value for name, value in found.items() if name != "table")
            counts = np.rint(squares - 0.1).astype(int)
            moved = np.concatenate([[0.0], np.cumsum(0.5 / np.sqrt(0.1 + np.arange(1, max(begun) + 1)))])
            for own, least, most in zip(rows, done, begun, strict=True):
                assert counts[own].min() >= least and counts[own].max() <= most
                of_table = np.abs((TABLE - found["table"])[own][..., np.newaxis] - moved).argmin(axis=-1)
                assert of_table.min() >= least and of_table.max() <= most


def test_a_save_that_is_given_up_leaves_nothing_and_the_next_one_is_right(make_run):
    run = make_run("adagrad")

    def give_up():
        run.update([60], np.ones([1, WIDTH]))
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        run.read(run.held.hold(run.session), give_up)
    assert run.session.run([run.undo.active, run.num_entries]) == [0, 0]
    assert run.session.run(run.are_kept) == [False, False]
    run.update([60], np.ones([1, WIDTH]))
    assert run.session.run(run.num_entries) == 0
    wanted = run.present()
    snapshot = run.held.hold(run.session)
    run.update([0, 60], np.ones([2, WIDTH]))
    assert_equal(run.read(snapshot), wanted)


def test_the_next_chief_ends_the_save_of_one_that_was_killed(make_run):
    run = make_run("adagrad")
    lost = run.held.hold(run.session)
    run.update([1, 2], np.ones([2, WIDTH]))
    assert run.session.run(run.num_entries) == 1
    run.session.run(run.held.release_op)
    assert run.session.run([run.undo.active, run.num_entries]) == [0, 0]
    wanted = run.present()
    snapshot = run.held.hold(run.session)
    assert snapshot.of_logs[0] > lost.of_logs[0]
    run.update([2, 3], np.ones([2, WIDTH]))
    assert_equal(run.read(snapshot), wanted)


def test_rows_that_were_logged_late_for_an_earlier_moment_are_ignored(make_run):
    run = make_run("sgd")
    earlier = run.held.hold(run.session)
    run.update([5], np.ones([1, WIDTH]))  # its entry stays, as if an update had logged it after the release
    wanted = run.present()
    snapshot = run.held.hold(run.session)
    assert snapshot.of_logs[0] != earlier.of_logs[0]
    run.update([6], np.ones([1, WIDTH]))
    assert_equal(run.read(snapshot), wanted)


def test_a_log_has_a_row_that_changes_often_once(make_run):
    run = make_run("sgd")
    snapshot = run.held.hold(run.session)
    for _ in range(3):
        run.update([7, 8], np.ones([2, WIDTH]))
    assert np.flatnonzero(run.session.run(run.stamps)).tolist() == [7, 8]
    assert run.session.run(run.num_entries) == 1
    run.read(snapshot)
    assert run.held.logged_bytes == 2 * WIDTH * 4


@pytest.mark.parametrize("is_in_section", [False, True])
def test_an_update_runs_ops_of_the_log_only_in_a_section(make_run, is_in_section):
    """An op that chooses a branch makes a task run every op of a step more slowly."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(output_partition_graphs=True)
    make_run("sgd", is_in_section=is_in_section).update(
        [1], np.ones([1, WIDTH]), options=options, run_metadata=metadata
    )
    types = {node.op for graph in metadata.partition_graphs for node in graph.node}
    assert ("Switch" in types, "If" in types) == (is_in_section, not is_in_section)


@pytest.mark.parametrize(("optimizer", "large_bytes"), [("adam", TABLE.nbytes), ("sgd", TABLE.nbytes + 1)])
def test_a_table_is_copied_if_every_row_changes_or_it_is_small(make_run, monkeypatch, optimizer, large_bytes):
    monkeypatch.setattr(undo_log, "LARGE_BYTES", large_bytes)
    run = make_run(optimizer)
    assert run.undo is None
    wanted = run.present()
    snapshot = run.held.hold(run.session)
    run.update([1, 2], np.ones([2, WIDTH]))
    assert_equal(run.read(snapshot), wanted)


@pytest.mark.parametrize("kept_bytes", [1, 200, 10**6])
def test_a_ps_task_keeps_a_part_of_a_table_until_it_is_read(make_run, monkeypatch, kept_bytes):
    monkeypatch.setattr(logged_rows, "_KEPT_BYTES", kept_bytes)
    run = make_run("adagrad")
    kept, random = [], np.random.RandomState(0)

    def watch():
        run.update_at_random(random)
        if all(run.session.run(run.are_kept)):
            kept.append(sum(part.nbytes for part in run.session.run(run.kept)))

    wanted = run.present()
    assert_equal(run.read(run.held.hold(run.session), watch), wanted)
    # The table and its slot; at least one row of them, at most all.
    assert max(kept) == min(max(kept_bytes // (2 * WIDTH * 4), 1), NUM_ROWS) * 2 * WIDTH * 4
    assert run.session.run(run.are_kept) == [False, False]


def test_updates_log_nothing_when_all_rows_are_copied(make_run, monkeypatch):
    monkeypatch.setattr(logged_rows, "_KEPT_BYTES", 10**6)
    run = make_run("sgd")
    active = []
    run.read(run.held.hold(run.session), lambda: active.append(int(run.session.run(run.undo.active)) > 0))
    num_slices = -(-NUM_ROWS // (100 // (WIDTH * 4)))
    assert active == [True] * num_slices + [False] * num_slices


def test_all_ps_tasks_copy_at_the_same_time_before_any_is_read(monkeypatch):
    monkeypatch.setattr(logged_rows, "_KEPT_BYTES", 10**6)
    first_rows = {0: NUM_ROWS, 1: 20}
    with tf.Graph().as_default() as graph, graph.container("run"):
        logs = {ps: undo_log.UndoLog(ps, "") for ps in first_rows}
        saved, change_ops, inits = {}, [], []
        for ps, num_rows in first_rows.items():
            name = f"table{ps}"
            variable = create_variable(name, [num_rows, WIDTH], np.float32)
            extents = (Extent(name, 0, num_rows * WIDTH, 0),)
            table = logs[ps].add(Piece(variable, ps, extents, variable, is_table=True), [])
            saved[ps] = [[SavedVariable(variable, extents, is_slot=False)]]
            last = tf.constant([num_rows - 1], tf.int64)
            with tf.control_dependencies([logs[ps].log([(table, last)])]):
                change_ops.append(variable.scatter_nd_add([[num_rows - 1]], tf.ones([1, WIDTH])))
            inits.append(variable.assign(TABLE[:num_rows]))
        rows = logged_rows.LoggedRows(logs, saved, tf.RunOptions())
        hold_ops = {ps: log.hold() for ps, log in logs.items()}
        active_reads = [log.active.read_value() for log in logs.values()]
        init_op = tf.global_variables_initializer()
    flat = {f"table{ps}": np.zeros([num_rows * WIDTH], np.float32) for ps, num_rows in first_rows.items()}
    active = []
    with tf.Session(graph=graph) as session:
        session.run(init_op)
        session.run(inits)

        def watch():
            active.append([value > 0 for value in session.run(active_reads)])
            session.run(change_ops)

        moments = session.run(hold_ops)
        session.run(change_ops)
        assert rows.read(session, moments, flat, watch) == 2 * WIDTH * 4  # each task has logged its last row
    copied, *read = (-(-num_rows // (100 // (WIDTH * 4))) for num_rows in (NUM_ROWS, *first_rows.values()))
    num_moves = 2  # of an entry on each task
    assert active == [[True, True]] * copied + [[False, False]] * (num_moves + sum(read))
    for ps, num_rows in first_rows.items():
        np.testing.assert_array_equal(flat[f"table{ps}"], TABLE[:num_rows].ravel())


def test_tables_are_divided_into_groups_of_bounded_size(monkeypatch):
    monkeypatch.setattr(logged_rows, "_KEPT_BYTES", 100)
    tables = [types.SimpleNamespace(num_rows=rows, row_bytes=size) for rows, size in [(3, 10), (10, 20), (2, 300)]]
    groups = [
        [(tables.index(table), first, last) for table, first, last in group] for group in logged_rows._divide(tables)
    ]
    assert groups == [[(0, 0, 3), (1, 0, 3)], [(1, 3, 8)], [(1, 8, 10)], [(2, 0, 1)], [(2, 1, 2)]]
