"""Tasks that are killed or frozen at a known point of a step: within a push in pieces, or a call that looks ahead.

The models hold a worker up at that point, and their parameters count the gradients of each worker that are in them. So
these tests know that each step is in the parameters once, and what is left of a push that was cut off.
"""

from __future__ import annotations

import itertools
import re
import signal

import numpy as np
import pytest

from tests.testing.cluster import config_of
from tests.testing.components import RowOptions, Rows
from tests.testing.live_values import live_value
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, wait_until
from tests.testing.repetitions import repetitions
from tests.updates.assembled import assemble

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from tests.processes.held_models import DIM, NUM_PIECES, NUM_WORKERS, PIECE_SIZE, VOCAB_SIZE, Permits
from tests.processes.hooks import FOLDER_VARIABLE

FLAGS = (
    *("--dataset=tests.testing.components:Rows", "--batch_size=1", "--optimizer=sgd", "--learning_rate=1"),
    *("--steps_per_call=10000", "--report_secs=1000", "--step_log"),
    *("--recover_timeout_secs=90", "--heartbeat_timeout_secs=3"),
)
FIRST_HELD = 6


@pytest.fixture
def permits(tmp_path):
    """Each worker waits first in its sixth step, the sixth of its call."""
    permits = Permits(tmp_path)
    for worker in range(NUM_WORKERS):
        permits.give(worker, FIRST_HELD - 1)
    return permits


@pytest.fixture
def start(create_run, tmp_path, permits):
    """Starts a run, and returns it with its tasks."""

    def start(model, *flags, num_ps=1):
        flags = (*FLAGS, f"--model=tests.processes.held_models:{model}", *flags)
        run = create_run(step_ms=0, num_ps=num_ps, flags=flags, env={FOLDER_VARIABLE: str(tmp_path)})
        return run, *run.start_all()

    return start


def kill(task):
    task.send(signal.SIGKILL)
    assert task.wait(END_SECS) == -signal.SIGKILL


def assert_done(*tasks):
    assert [task.wait(START_SECS) for task in tasks] == [0] * len(tasks)


def freeze_kill_and_restart(run, ps, worker, permits, wait_before_kill):
    """Freezes worker 1 in its step, lets it end ten steps of its process, and kills it in the next; returns a new one.

    Worker 0, which waits meanwhile, may make all its steps afterwards.
    """
    worker.freeze()
    ps.wait_for_log("worker 1 lost: no sign of life for", LOST_SECS)
    permits.give(1, 10)
    worker.thaw()
    permits.wait_until_held(1, 11)
    wait_before_kill()
    kill(worker)
    permits.give(1, permits.ALL)
    worker = run.start_worker(1)
    run.wait_for_logged_steps(1, 15)
    permits.give(0, permits.ALL)
    return worker


def saved(run, name):
    """A variable in the last checkpoint."""
    return tf.train.load_checkpoint(str(run.logdir / "checkpoints")).get_tensor(name)


def steps(run, worker):
    """global_step after each step that a worker has logged."""
    return [step["global_step"] for step in run.logged_steps(worker)]


class TestAPush:
    """A push whose first half has arrived: the gradients of the last two pieces."""

    def wait_for_half(self, run, worker):
        def has_half():
            values = [-live_value(run, f"packed/float32/ps_0/piece_{n}", [PIECE_SIZE])[worker] for n in range(4)]
            return values[0] == values[1] < values[2] == values[3]

        wait_until(has_half, START_SECS, f"the push of worker {worker} has not arrived in half")

    def sums(self, run):
        """Minus the sum of what each worker's gradients have changed, for each piece."""
        sums = -np.stack([saved(run, f"piece_{n}")[:NUM_WORKERS] for n in range(NUM_PIECES)])
        np.testing.assert_array_equal(sums[0], sums[1])
        np.testing.assert_array_equal(sums[2], sums[3])
        return sums[0], sums[2]

    def test_async_ends_a_frozen_workers_push_and_leaves_a_half_of_a_killed_ones(self, start, permits):
        run, ps, chief, worker = start("Pieces", "--update=async", "--max_steps=60")
        for index in range(NUM_WORKERS):
            permits.wait_until_held(index, FIRST_HELD)
            self.wait_for_half(run, index)
        permits.give(0, 10)
        permits.wait_until_held(0, 11)  # meanwhile worker 0 has ended five pushes
        worker = freeze_kill_and_restart(run, ps, worker, permits, lambda: self.wait_for_half(run, 1))
        assert_done(worker, chief, ps)
        arrived_last, arrived_first = self.sums(run)
        np.testing.assert_array_equal(arrived_first - arrived_last, [0, 1])  # the half of the killed worker's push
        # Every other push is in all pieces once, and has a number of its own.
        assert [len(steps(run, index)) for index in range(NUM_WORKERS)] == arrived_last.tolist()
        assert sorted(steps(run, 0) + steps(run, 1)) == list(range(1, run.checkpoint_step() + 1))

    @pytest.mark.parametrize("killed", repetitions([1, 0]))
    def test_sync_puts_zeros_in_the_place_of_the_half_that_a_killed_worker_did_not_send(self, start, permits, killed):
        other = 1 - killed
        permits.give(other, permits.ALL)
        run, ps, *workers = start("Pieces", "--update=sync", "--max_steps=30")
        permits.wait_until_held(killed, FIRST_HELD)
        self.wait_for_half(run, other)  # the update of the last two pieces is made, since they have both gradients
        kill(workers[killed])
        ps.wait_for_log(f"worker {killed} lost", LOST_SECS)
        permits.give(killed, permits.ALL)
        workers[killed] = run.start_worker(killed)
        assert_done(*workers, ps)
        arrived_last, arrived_first = self.sums(run)
        np.testing.assert_array_equal(2 * arrived_first, [30, 30])
        np.testing.assert_array_equal(2 * (arrived_first - arrived_last), np.eye(NUM_WORKERS)[killed])
        assert steps(run, other) == list(range(1, 31))
        assert steps(run, killed) == [step for step in range(1, 31) if step != FIRST_HELD]

    def test_sync_continues_without_a_frozen_worker_and_drops_the_half_that_comes_late(self, start, permits):
        permits.give(0, 12)
        flags = ("--update=sync", "--update_option=min_workers=1", "--max_steps=30")
        run, ps, chief, worker = start("Pieces", *flags)
        permits.wait_until_held(1, FIRST_HELD)
        self.wait_for_half(run, 0)
        worker.freeze()
        chief.wait_for_log("sync: worker 1 left", LOST_SECS)
        permits.wait_until_held(0, 13)
        permits.give(1, permits.ALL)
        worker.thaw()
        run.wait_for_logged_steps(1, FIRST_HELD)
        permits.give(0, permits.ALL)
        assert_done(worker, chief, ps)
        arrived_last, arrived_first = self.sums(run)
        np.testing.assert_array_equal(arrived_first - arrived_last, [0, 0.5])
        # The gradient of a pair counts half, and that of worker 0 alone counts once: each update has the weight 1.
        assert sum(arrived_first) == run.checkpoint_step() == 30
        used = [step for step in run.logged_steps(1) if not step["dropped"]]
        assert len(used) == 2 * arrived_first[1] >= FIRST_HELD
        assert steps(run, 0) == list(range(1, 31))


class TestACallThatLooksAhead:
    """A call in which each step looks up the table rows of the next one."""

    def wait_until_applied(self, run, worker, count):
        def is_applied():
            return live_value(run, "data/position", [NUM_WORKERS], tf.int64)[worker] == count

        wait_until(is_applied, START_SECS, f"step {count} of worker {worker} is not applied")

    def tables(self, run, num_steps):
        """The table, and what it is after that many steps of each worker if each of their batches counts once."""
        ids = Rows(RowOptions()).arrays["ids"]
        wanted = np.zeros([NUM_WORKERS, VOCAB_SIZE, DIM])
        for worker, count in enumerate(num_steps):
            for batch in itertools.islice(itertools.cycle(ids[worker::NUM_WORKERS]), count):
                np.subtract.at(wanted[worker], batch, 1)
        return saved(run, "table").reshape(wanted.shape), wanted

    def test_the_model_looks_ahead(self, tmp_path, monkeypatch):
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        config = config_of("tests.processes.held_models:Table", "Rows", batch_size=1, max_steps=60)
        names = [op.name for op in assemble(config, steps_per_call=0).graph.get_operations()]
        assert [name for name in names if re.match("call/passed/.*lookup", name)]

    def test_a_worker_that_is_frozen_and_then_killed_loses_and_repeats_no_step(self, start, permits):
        run, ps, chief, worker = start("Table", "--update=async", "--max_steps=60")
        for index in range(NUM_WORKERS):
            permits.wait_until_held(index, FIRST_HELD)
            self.wait_until_applied(run, index, FIRST_HELD)  # and the rows of the next step are looked up
        permits.give(0, 10)
        permits.wait_until_held(0, 11)  # meanwhile worker 0 has ended five steps
        worker = freeze_kill_and_restart(run, ps, worker, permits, lambda: self.wait_until_applied(run, 1, 11))
        assert_done(worker, chief, ps)
        # All steps are logged, except for the one that was applied when its worker was killed.
        logged = [len(steps(run, index)) for index in range(NUM_WORKERS)]
        num_steps = np.add(logged, [0, 1])
        assert num_steps.sum() == run.checkpoint_step()
        assert len({*steps(run, 0), *steps(run, 1)}) == sum(logged)
        np.testing.assert_array_equal(saved(run, "data/position"), num_steps)
        np.testing.assert_array_equal(*self.tables(run, num_steps))

    def test_a_ps_task_that_is_frozen_and_then_killed_loses_and_repeats_no_step(self, start, permits):
        permits.give(0, permits.ALL)
        permits.give(1, 15)
        flags = ("--update=sync", "--max_steps=60", "--save_checkpoint_steps=10")
        run, ps_0, ps_1, chief, worker = start("Table", *flags, num_ps=2)
        permits.wait_until_held(1, 16)
        self.wait_until_applied(run, 1, 16)
        ps_1.freeze()
        permits.give(1, 25)
        for task in (chief, worker):
            task.wait_for_log(r"ps-1 \(localhost:\d+\) has not answered for \d+ s", LOST_SECS)
        ps_1.thaw()
        permits.wait_until_held(1, 26)
        run.wait_for_checkpoint()
        kill(ps_1)
        permits.give(1, permits.ALL)
        ps_1 = run.start_ps(1)
        assert_done(worker, chief, ps_0, ps_1)
        *thawed, restored = [event for event in run.metrics("worker-0", "event") if event["event"] == "recovered"]
        assert all(event["rolled_back"] == 0 for event in thawed)
        assert restored["global_step"] >= 10
        for index in range(NUM_WORKERS):
            assert {*steps(run, index)} == {*range(1, 61)}
        found, wanted = self.tables(run, [60, 60])
        np.testing.assert_array_equal(2 * found, wanted)  # each update is a mean
