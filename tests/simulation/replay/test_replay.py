"""`Replay` and `train`: their curves, ends, kept versions, and rejected input."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.simulation import given_staleness
from ps_trainer.simulation.replay.replay import Replay
from ps_trainer.simulation.replay.train import train
from tests.simulation import runs
from tests.simulation.replay import on_cluster
from tests.testing.components import RowOptions, Rows
from tests.testing.script import EmbeddedLinear, Linear

NUM_WORKERS = 3


def training_of(model=Linear, optimizer="sgd", **fields):
    return on_cluster.training_of(model(), optimizer, **fields)


def test_the_curve_has_the_mean_loss_of_the_steps_since_the_last_update():
    # k_batch_sync takes two gradients per update; late gradients are in none.
    schedule = on_cluster.schedule_of("k_batch_sync", ("k=2",), NUM_WORKERS, num_updates=6)
    with Replay(training_of(), schedule, "k_batch_sync", ("k=2",)) as replay:
        steps = list(replay.steps())
    ends = [step.step_index for step in steps if step.has_updated]
    assert len(ends) == 6 < len(steps) / 2
    parts = np.split([step.loss for step in steps], np.array(ends[:-1]) + 1)
    curve = train(training_of(), schedule, "k_batch_sync", ("k=2",)).curve
    np.testing.assert_array_equal(curve.version, [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(curve.secs, schedule.update_secs)
    np.testing.assert_array_equal(curve.num_steps, np.array(ends) + 1)
    np.testing.assert_allclose(curve.loss, [np.mean(part) for part in parts])
    assert set(curve.metrics) == {"accuracy"}
    assert ((curve.metrics["accuracy"] >= 0) & (curve.metrics["accuracy"] <= 1)).all()


def test_each_replay_of_a_schedule_gives_the_same_numbers():
    schedule = on_cluster.schedule_of("async", (), NUM_WORKERS, num_updates=10)
    one, other = (train(training_of(optimizer="adam"), schedule, "async") for _ in range(2))
    np.testing.assert_array_equal(one.curve.loss, other.curve.loss)
    for name, value in one.values.items():
        np.testing.assert_array_equal(value, other.values[name])


def test_training_lowers_the_loss():
    trained = train(training_of(learning_rate=0.1), on_cluster.schedule_of("async", (), NUM_WORKERS, 300), "async")
    first, *_, last = (part.mean() for part in np.split(trained.curve.loss, 3))
    assert last < 0.95 * first


def test_evaluates_as_often_as_asked_and_at_the_end():
    schedule = on_cluster.schedule_of("async", (), NUM_WORKERS, num_updates=7)
    training = training_of(dataset=Rows(RowOptions(has_test=True)))
    evaluations = train(training, schedule, "async", evaluate_every=3).evaluations
    assert [evaluation.version for evaluation in evaluations] == [3, 6, 7]
    assert [evaluation.secs for evaluation in evaluations] == [schedule.update_secs[i - 1] for i in (3, 6, 7)]
    assert set(evaluations[0].metrics) == {"loss", "accuracy"}
    assert len({evaluation.metrics["loss"] for evaluation in evaluations}) == 3


def test_stops_when_an_evaluation_reaches_the_target():
    schedule = on_cluster.schedule_of("async", (), NUM_WORKERS, num_updates=50)
    trained = train(training_of(), schedule, "async", evaluate_every=4, stop_when=lambda e: e.version >= 8)
    assert [evaluation.version for evaluation in trained.evaluations] == [4, 8]
    assert trained.curve.version[-1] == 8
    assert not trained.has_diverged


def test_a_loss_that_is_not_finite_ends_the_run():
    schedule = given_staleness.constant(2, 100)
    trained = train(training_of(learning_rate=3e38), schedule, "async")
    assert trained.has_diverged
    assert not np.isfinite(trained.curve.loss[-1])
    assert np.isfinite(trained.curve.loss[:-1]).all()
    assert len(trained.curve.version) < 100


@pytest.mark.parametrize(
    ("update", "options"), [("async", ()), ("local_sgd", ("period=3",)), ("softsync", ("splits=1",)), ("sync", ())]
)
def test_keeps_no_more_versions_than_workers_read(update, options):
    schedule = on_cluster.schedule_of(update, options, NUM_WORKERS, num_updates=12)
    with Replay(training_of(), schedule, update, options) as replay:
        kept = [replay.num_kept_versions for _ in replay.steps()]
    assert max(kept) <= NUM_WORKERS
    assert kept[-1] == 0


def test_a_group_of_rows_also_counts_rows_of_few_workers():
    """n workers in lock-step at one version train like one process with all their examples."""
    schedule = runs.scripted("sync", (), ["1", "1", "1"], num_updates=1)
    with Replay(training_of(EmbeddedLinear), schedule, "sync") as replay:
        before = replay.values()["table"]
        for _ in replay.steps():
            pass
        after = replay.values()["table"]
    touched = np.any(after != before, axis=1)
    assert 0 < touched.sum() < len(touched)


def test_tables_are_rejected_where_the_rule_cannot_train_them():
    schedule = given_staleness.constant(1, 3)
    with pytest.raises(OptionError, match=r"embedding tables \(table\); use --update=async or sync"):
        Replay(training_of(EmbeddedLinear), schedule, "dc_asgd")


def test_wrong_names_and_options_are_rejected():
    schedule = given_staleness.constant(1, 3)
    with pytest.raises(UnknownNameError, match="--update=hybrid: cannot train in virtual time; choose from async"):
        Replay(training_of(), schedule, "hybrid")
    with pytest.raises(OptionError, match="update rule 'async' takes no options"):
        Replay(training_of(), schedule, "async", ("staleness=1",))
    with pytest.raises(OptionError, match="unknown key 'stale'"):
        Replay(training_of(), schedule, "drop_stale", ("stale=1",))
