"""Saves while training continues: a checkpoint has exactly the state of the moment at which the chief held it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_trainer.checkpoints import folder_listing, held_state, logged_rows
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.store import extents, undo_log
from ps_trainer.training.worker_progress import WorkerProgress
from tests.testing import components as small
from tests.testing.cluster import DEADLINE_SECS, InProcessCluster, config_of, wait_until
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

STEPS, ONE_SAVE, TWO_SAVES = 12, 7, 5  # steps of a run, and from save to save in a run that has one save or two


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(num_ps=2, num_workers=2) as cluster:
        yield cluster


@pytest.fixture
def late_reads(monkeypatch):
    """Holds and slices even small variables, and reads them two steps after their moment; returns the steps."""
    monkeypatch.setattr(held_state, "_SMALL_BYTES", 0)
    monkeypatch.setattr(held_state, "_SLICE_BYTES", 16)
    read, passed = held_state.HeldState.read, []

    def read_late(self, session, moment, *args, **options):
        step = lambda: int(session.run(current))  # noqa: E731
        current = session.graph.get_tensor_by_name(self._step_read.name)
        wait_until(lambda: step() >= min(moment.step + 2, STEPS))
        passed.append(step() - moment.step)
        return read(self, session, moment, *args, **options)

    monkeypatch.setattr(held_state.HeldState, "read", read_late)
    return passed


@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"]))
@pytest.mark.parametrize(
    ("model", "optimizer", "create"),
    repetitions(
        [
            ("Embedded", "momentum", lambda: tf.train.MomentumOptimizer(0.1, 0.9)),  # this model has dense parts
            ("Dense", "adam", lambda: tf.train.AdamOptimizer(0.1)),
        ]
    ),
)
def test_a_checkpoint_has_the_parameters_and_slots_of_its_step(
    two_workers, late_reads, tmp_path, layout, model, optimizer, create
):
    config = config_of(
        model, "Rows", layout=layout, update="sync", optimizer=optimizer, batch_size=4, max_steps=STEPS,
        logdir=str(tmp_path), save_checkpoint_secs=0.0, save_checkpoint_steps=TWO_SAVES,
    )  # fmt: skip
    two_workers.run(config)
    assert max(late_reads) >= 2
    steps = folder_listing.read_folder(tmp_path / "checkpoints").steps
    assert steps[0] == TWO_SAVES and steps[-1] == STEPS
    for step in steps:
        saved = checkpoint_lib.Checkpoint(tmp_path / "checkpoints" / f"model.ckpt-{step}")
        _, values = small.plain_loop(getattr(small, model)(), small.global_batches(4, step, 2), create)
        assert int(saved["global_step"]) == step
        for name in saved:
            if name in values:
                np.testing.assert_allclose(saved[name], values[name], rtol=0, atol=1e-5)
        assert any("/" in name and name.split("/")[-1] in ("Adam", "Momentum") for name in saved)


class Hold:
    """The hold of a run: its state, read while no worker is in a step.

    Under an asynchronous rule the other worker stops after its first step until the chief has held the state. Under a
    synchronous rule it waits in its step for the chief.

    Attributes:
        states: The state by its step.
        stopping: Workers that stop.
    """

    def __init__(self):
        self.states = {}
        self.stopping = []
        self._knows = threading.Event()  # which workers stop
        self._has_stopped = threading.Event()
        self._has_held = threading.Event()

    def stop(self, *workers):
        """Lets the run begin, in which these workers stop."""
        self.stopping[:] = workers
        self._knows.set()

    def before(self, state, session):
        """Called by the chief before it holds."""
        if self.stopping:
            assert self._has_stopped.wait(DEADLINE_SECS)
        values = snapshot(state, session)
        self.states[int(values["global_step"])] = values

    def after(self):
        """Called by the chief after it has held."""
        self._has_held.set()

    def step(self, progress):
        """Called by each worker after each of its steps."""
        assert self._knows.wait(DEADLINE_SECS)
        if any(progress is worker._progress for worker in self.stopping):
            self._has_stopped.set()
            assert self._has_held.wait(DEADLINE_SECS)


def snapshot(state, session):
    """The current values by name, read as a whole."""
    values, counts, step = session.run([state._reads, state.count_reads, state.clock])
    pieces = [(saved.extents, value) for saved, value in zip(state.saved_variables, values, strict=True)]
    return extents.from_pieces(state.specs, pieces) | counts | {"global_step": step}


@pytest.fixture
def watched_hold(monkeypatch):
    """Logs even small tables, in slices of a few rows."""
    monkeypatch.setattr(undo_log, "LARGE_BYTES", 0)
    monkeypatch.setattr(logged_rows, "_SLICE_BYTES", 100)
    monkeypatch.setattr(logged_rows, "_COPY_BYTES", 100)
    hold, add, watched = held_state.HeldState.hold, WorkerProgress.add, Hold()

    def hold_alone(self, session):
        watched.before(self._state, session)
        moment = hold(self, session)
        watched.after()
        assert len(set(moment.of_logs.values())) == 1
        return moment

    def add_and_stop(self, *args):
        add(self, *args)
        watched.step(self)

    monkeypatch.setattr(held_state.HeldState, "hold", hold_alone)
    monkeypatch.setattr(WorkerProgress, "add", add_and_stop)
    return watched


@pytest.mark.parametrize(
    ("update", "options", "steps_per_call"),
    [
        pytest.param("sync", (), 1, marks=pytest.mark.full),  # as in the test below
        ("async", (), 1),
        pytest.param("hogwild", (), 1, marks=pytest.mark.full),
        ("hogwild", (), 4),
        pytest.param("k_async", ("k=1",), 1, marks=pytest.mark.full),  # `sync` collects gradients as well
    ],
)
@pytest.mark.parametrize("optimizer", ["lazy_adam", "adagrad"])
def test_a_table_that_is_not_copied_is_that_of_its_moment_to_the_bit(
    two_workers, late_reads, watched_hold, tmp_path, update, options, steps_per_call, optimizer
):
    config = config_of(
        "Embedded", "Rows", update=update, update_option=options, optimizer=optimizer, batch_size=4,
        steps_per_call=steps_per_call, max_steps=STEPS, logdir=str(tmp_path), save_checkpoint_secs=0.0,
        save_checkpoint_steps=ONE_SAVE,
    )  # fmt: skip
    calls = [two_workers.start(config, index) for index in range(2)]
    watched_hold.stop(*(call.worker for call in calls[1:] if update != "sync"))
    for outcome in map(two_workers.finish, calls):
        assert outcome.error is None, outcome.error
    assert late_reads[0] >= 2  # the others are reads at the end of the run
    for step, wanted in watched_hold.states.items():
        assert_equal(load(tmp_path, step), wanted)


def test_a_save_changes_neither_losses_nor_parameters(late_reads, watched_hold, tmp_path):
    losses, last = [], []
    watched_hold.stop()
    for every in (ONE_SAVE, 0):
        folder = tmp_path / f"every-{every}"
        config = config_of(
            "Embedded", "Rows", update="sync", optimizer="lazy_adam", batch_size=4, max_steps=STEPS,
            logdir=str(folder), save_checkpoint_secs=0.0, save_checkpoint_steps=every,
        )  # fmt: skip
        with InProcessCluster(1, 2) as cluster:  # the tests above have two ps tasks
            losses.append([outcome.losses for outcome in cluster.run(config)])
        last.append(load(folder, STEPS))
    assert losses[0] == losses[1]
    assert_equal(*last)
    assert late_reads[0] >= 2
    step, wanted = next(iter(watched_hold.states.items()))
    assert_equal(load(tmp_path / f"every-{ONE_SAVE}", step), wanted)


def load(logdir, step):
    return checkpoint_lib.Checkpoint(logdir / "checkpoints" / f"model.ckpt-{step}")


def assert_equal(found, wanted):
    assert set(found) == set(wanted)
    for name in found:
        assert np.asarray(found[name]).tobytes() == np.asarray(wanted[name]).tobytes(), name
