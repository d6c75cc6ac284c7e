"""Tasks that are killed or frozen at a known point of a step: in a push in pieces, a call that looks ahead, or a log.

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

from tests.processes.gates import Gate
from tests.processes.held_models import DIM, GATES, NUM_PIECES, NUM_WORKERS, PIECE_SIZE, VOCAB_SIZE, Permits
from tests.processes.hooks import FOLDER_VARIABLE

FLAGS = (
    *("--dataset=tests.testing.components:Rows", "--batch_size=1", "--optimizer=sgd", "--learning_rate=1"),
    *("--report_secs=1000", "--step_log"),
    *("--recover_timeout_secs=90", "--heartbeat_timeout_secs=3"),
)
FIRST_HELD = 6
SINGLE_CALLS = "--steps_per_call=1"
MANY_OR_ONE = pytest.mark.parametrize("calls", ["--steps_per_call=10000", SINGLE_CALLS])


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
        flags = (*FLAGS, "--steps_per_call=10000", f"--model=tests.processes.held_models:{model}", *flags)
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

    @MANY_OR_ONE
    def test_async_ends_a_frozen_workers_push_and_leaves_a_half_of_a_killed_ones(self, start, permits, calls):
        run, ps, chief, worker = start("Pieces", "--update=async", "--max_steps=60", calls)
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


def wait_until_applied(run, worker, count):
    def is_applied():
        return live_value(run, "data/position", [NUM_WORKERS], tf.int64)[worker] == count

    wait_until(is_applied, START_SECS, f"step {count} of worker {worker} is not applied")


def tables(run, num_steps):
    """The saved table, and what it is after that many steps of each worker if each of their batches counts once."""
    ids = Rows(RowOptions()).arrays["ids"]
    wanted = np.zeros([NUM_WORKERS, VOCAB_SIZE, DIM])
    for worker, count in enumerate(num_steps):
        for batch in itertools.islice(itertools.cycle(ids[worker::NUM_WORKERS]), count):
            np.subtract.at(wanted[worker], batch, 1)
    return saved(run, "table").reshape(wanted.shape), wanted


class TestATable:
    """A step of a table; in a call of several steps, each looks up the rows of the next one."""

    def test_the_model_looks_ahead(self, tmp_path, monkeypatch):
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        config = config_of("tests.processes.held_models:Table", "Rows", batch_size=1, max_steps=60)
        names = [op.name for op in assemble(config, steps_per_call=0).graph.get_operations()]
        assert [name for name in names if re.match("call/passed/.*lookup", name)]

    @MANY_OR_ONE
    def test_a_worker_that_is_frozen_and_then_killed_loses_and_repeats_no_step(self, start, permits, calls):
        run, ps, chief, worker = start("Table", "--update=async", "--max_steps=60", calls)
        for index in range(NUM_WORKERS):
            permits.wait_until_held(index, FIRST_HELD)
            wait_until_applied(run, index, FIRST_HELD)  # and the rows of the next step are looked up
        permits.give(0, 10)
        permits.wait_until_held(0, 11)  # meanwhile worker 0 has ended five steps
        worker = freeze_kill_and_restart(run, ps, worker, permits, lambda: wait_until_applied(run, 1, 11))
        assert_done(worker, chief, ps)
        # All steps are logged, except for the one that was applied when its worker was killed.
        logged = [len(steps(run, index)) for index in range(NUM_WORKERS)]
        num_steps = np.add(logged, [0, 1])
        assert num_steps.sum() == run.checkpoint_step()
        assert len({*steps(run, 0), *steps(run, 1)}) == sum(logged)
        np.testing.assert_array_equal(saved(run, "data/position"), num_steps)
        np.testing.assert_array_equal(*tables(run, num_steps))

    @MANY_OR_ONE
    def test_a_ps_task_that_is_frozen_and_then_killed_loses_and_repeats_no_step(self, start, permits, calls):
        permits.give(0, permits.ALL)
        permits.give(1, 15)
        flags = ("--update=sync", "--max_steps=60", "--save_checkpoint_steps=10", calls)
        run, ps_0, ps_1, chief, worker = start("Table", *flags, num_ps=2)
        permits.wait_until_held(1, 16)
        wait_until_applied(run, 1, 16)
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
        found, wanted = tables(run, [60, 60])
        np.testing.assert_array_equal(2 * found, wanted)  # each update is a mean


class TestALoggedUpdate:
    """An update of a table that logs the old rows for a save, in a call of one step.

    The save of step 20 has begun, after 15 steps of worker 0 and 5 of worker 1, and has read no row. Worker 0 has made
    three more steps since. Worker 1 waits before the log in its sixth update.
    """

    AT_SAVE = (15, 5)

    @pytest.fixture
    def gates(self):
        return {name: Gate(name) for name in GATES}

    @pytest.fixture
    def started(self, start, permits, gates, tmp_path):
        (tmp_path / "gates").touch()
        permits.give(1, permits.ALL)
        flags = ("--update=async", "--max_steps=60", "--save_checkpoint_steps=10", SINGLE_CALLS)
        run, *tasks = start("LoggedTable", *flags)
        permits.wait_until_held(0, FIRST_HELD)
        gates["before"].give(run, FIRST_HELD - 1)
        gates["before"].wait_until_held(run)
        permits.give(0, 12)
        self.wait_for_save(run, 10)
        (tmp_path / "hold").touch()
        permits.give(0, 17)
        permits.wait_until_held(0, 18)
        wait_until((tmp_path / "held").exists, START_SECS, "the chief has begun no save")
        return run, *tasks

    def pass_gates_before(self, place, run, gates):
        """Lets the update of worker 1 come to a gate."""
        for name in itertools.takewhile(lambda name: name != place, GATES):
            gates[name].give(run, 1)
        gates[place].wait_until_held(run)

    def wait_for_save(self, run, step):
        def is_saved():
            return (run.logdir / "checkpoints" / "checkpoint").exists() and run.checkpoint_step() >= step

        wait_until(is_saved, START_SECS, f"step {step} is not saved")

    def assert_save_is_exact(self, run, hold):
        """Lets the save of step 20 continue, and compares it with what had been applied when it began."""
        hold.unlink()
        self.wait_for_save(run, 20)
        np.testing.assert_array_equal(saved(run, "data/position"), self.AT_SAVE)
        np.testing.assert_array_equal(*tables(run, self.AT_SAVE))

    def assert_all_steps_are_in_the_table(self, run, num_unlogged=0):
        """Compares the table with the steps that each worker has logged, and a number of others of worker 1."""
        num_steps = np.add([len(steps(run, index)) for index in range(NUM_WORKERS)], [0, num_unlogged])
        assert num_steps.sum() == run.checkpoint_step()
        np.testing.assert_array_equal(saved(run, "data/position"), num_steps)
        np.testing.assert_array_equal(*tables(run, num_steps))

    # A cancelled step starts no function any more, and ends the one that it is in: it logs the rows in a second one.
    @pytest.mark.parametrize(("place", "is_made"), [("before", False), ("inside", False), ("logged", True)])
    def test_of_a_killed_worker_is_made_as_a_whole_or_not_at_all(
        self, started, permits, gates, tmp_path, place, is_made
    ):
        run, ps, chief, worker = started
        self.pass_gates_before(place, run, gates)
        kill(worker)
        ps.wait_for_log("worker 1 lost", LOST_SECS)
        gates[place].give(run, 1)
        gates[place].wait_until_passed(run)
        if is_made:
            wait_until_applied(run, 1, FIRST_HELD)
        self.assert_save_is_exact(run, tmp_path / "hold")
        (tmp_path / "gates").unlink()
        permits.give(0, permits.ALL)
        assert_done(run.start_worker(1), chief, ps)
        self.assert_all_steps_are_in_the_table(run, num_unlogged=int(is_made))

    def test_of_a_frozen_worker_that_logs_after_the_save_spoils_no_later_save(self, started, permits, gates, tmp_path):
        run, ps, chief, worker = started
        self.pass_gates_before("inside", run, gates)
        worker.freeze()
        ps.wait_for_log("worker 1 lost: no sign of life for", LOST_SECS)
        self.assert_save_is_exact(run, tmp_path / "hold")
        for name in ("inside", "logged"):
            gates[name].give(run, 1)
        wait_until_applied(run, 1, FIRST_HELD)
        permits.give(0, 26)  # the save of step 30 begins after 24 of these
        self.wait_for_save(run, 30)
        np.testing.assert_array_equal(*tables(run, saved(run, "data/position")))
        assert saved(run, "data/position")[1] == FIRST_HELD
        worker.thaw()
        for gate in gates.values():
            gate.give(run, 60)
        permits.give(0, permits.ALL)
        assert_done(worker, chief, ps)
        self.assert_all_steps_are_in_the_table(run)

    def test_is_lost_with_its_ps_task_as_a_whole(self, started, permits, gates, tmp_path):
        run, ps, chief, worker = started
        self.pass_gates_before("inside", run, gates)
        for name in ("gates", "hold"):
            (tmp_path / name).unlink()
        kill(ps)
        permits.give(0, permits.ALL)
        assert_done(worker, chief, run.start_ps(0))
        (restored,) = [event for event in run.metrics("worker-0", "event") if event["event"] == "recovered"]
        assert 10 <= restored["global_step"] < 20
        num_steps = saved(run, "data/position")
        assert num_steps.sum() == run.checkpoint_step() >= 60
        np.testing.assert_array_equal(*tables(run, num_steps))
