"""Texts of step times, and the draws from them."""

from __future__ import annotations

import pytest

from ps_trainer.experiments.toolkit.step_times import samplers, with_mean


def test_a_text_gives_its_mean_and_its_worker():
    assert with_mean("exp", 80.0) == "exp:mean_ms=80"
    assert with_mean("lognormal:sigma=0.5", 62.5, 3) == "lognormal:sigma=0.5,mean_ms=62.5,worker=3"


def test_the_last_text_that_applies_to_a_worker_counts_and_seeds_repeat():
    compute = ["det:jitter=0.0,mean_ms=100", "det:jitter=0.0,mean_ms=400,worker=1"]
    assert [sample() for sample in samplers(compute, 3, 0)] == pytest.approx([0.1, 0.4, 0.1])
    first, again, other = ([sample() for sample in samplers(["exp"], 2, seed)] for seed in (5, 5, 6))
    assert first == again != other
    assert first[0] != first[1]
