"""A replay that is followed to its target, with given steps."""

from __future__ import annotations

import math
from types import SimpleNamespace

from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES, crossing, follow

BATCH_SIZE = WINDOW_EXAMPLES // 4  # a window of four steps


def replay_of(accuracies, losses=None):
    losses = losses or [1.0] * len(accuracies)
    taken = []

    def steps():
        for index, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True)):
            taken.append(index)
            yield SimpleNamespace(version=(index + 1) // 2, loss=loss, metrics={"accuracy": accuracy})

    return SimpleNamespace(steps=steps, taken=taken)


def test_the_target_is_a_mean_over_a_whole_window():
    replay = replay_of([1.0, 1.0, 0.0, 0.6, 1.0, 1.0, 1.0, 1.0, 1.0])
    course = follow(replay, BATCH_SIZE, target=0.9)
    # Steps 4 to 7 are 0.6, 1, 1, 1 with the mean 0.9; steps 1 and 2 alone are not a window.
    assert (course.target_step, course.target_version, course.num_steps) == (7, 3, 7)
    assert replay.taken == list(range(7))


def test_without_a_target_the_schedule_is_followed_to_its_end():
    course = follow(replay_of([1.0] * 6, losses=[1.0, 2.0, 3.0, 4.0, 7.0, 9.0]), BATCH_SIZE, target=None)
    assert (course.target_step, course.num_steps, course.has_diverged) == (None, 6, False)
    assert course.losses == [(1 + 2 + 3 + 4) / 4, (7 + 9) / 2]
    assert list(course.records())[0] == {"examples": WINDOW_EXAMPLES, "loss": 2.5}


def test_a_target_that_is_not_reached():
    course = follow(replay_of([0.5] * 5), BATCH_SIZE, target=0.9)
    assert (course.target_step, course.num_steps, course.accuracy) == (None, 5, 0.5)


def test_a_loss_that_is_not_finite_ends_the_training():
    course = follow(replay_of([0.5] * 5, losses=[1.0, math.nan, 1.0, 1.0, 1.0]), BATCH_SIZE, target=0.9)
    assert (course.has_diverged, course.num_steps, course.target_step) == (True, 2, None)


def test_the_crossing_of_a_target_lies_between_two_tests():
    assert crossing([10.0, 20.0, 30.0], [1.0, 0.6, 0.2], 0.5) == 20.0 + 10.0 * (0.6 - 0.5) / (0.6 - 0.2)
    assert crossing([10.0, 20.0], [0.4, 0.2], 0.5) == 10.0  # below the target at the first test
    assert crossing([10.0, 20.0, 30.0], [1.0, 0.5, 0.7], 0.5) == 20.0
