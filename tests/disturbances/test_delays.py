"""Delay distributions: their mean and shape, their seeds and specs, and the messages about wrong specs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.disturbances import delays
from ps_trainer.errors import DataError, OptionError, UnknownNameError
from ps_trainer.registry import split_inline


def draws(text: str, count: int, *, worker: int = 0, seed: int = 0) -> np.ndarray:
    """`count` delays in seconds."""
    sampler = delays.parse(text).sampler(delays.rng_for(seed, worker), worker)
    return np.array([sampler() for _ in range(count)])


# Each distribution with the ratio of its standard deviation to its mean, from its formula.
_SPIKE_MEAN = 1 + 0.05 * 4
_SHAPES = {
    "det:jitter=0.05": 0.05 / math.sqrt(3),
    "shifted_exp:alpha=0.3": 0.3,
    "exp": 1.0,
    "lognormal:sigma=0.5": math.sqrt(math.exp(0.5**2) - 1),
    "pareto:alpha=4": 1 / math.sqrt(4 * (4 - 2)),
    "spike:p=0.05,factor=5,jitter=0": math.sqrt(1 - 0.05 + 0.05 * 5**2 - _SPIKE_MEAN**2) / _SPIKE_MEAN,
    "burst:factor=5,begin=0.5,end=0.5,jitter=0": 2.0 / 3.0,
}


@pytest.mark.parametrize(("text", "deviation"), _SHAPES.items())
def test_has_the_asked_mean_and_the_formulas_deviation(text, deviation):
    name, options = split_inline(text)
    secs = draws(f"{name}:{','.join([*options, 'mean_ms=200'])}", 40_000)
    assert secs.mean() == pytest.approx(0.2, rel=5 * deviation / math.sqrt(40_000) + 1e-3)
    assert secs.std() / secs.mean() == pytest.approx(deviation, rel=0.06)


def test_every_registered_distribution_is_positive_and_has_the_default_mean(tmp_path):
    (tmp_path / "steps.csv").write_text("0.05\n0.15\n")
    for name in component_tables.DELAYS.names():
        secs = draws(f"trace:file={tmp_path}/steps.csv" if name == "trace" else name, 20_000, worker=1)
        assert secs.min() > 0
        assert secs.mean() == pytest.approx(0.1, rel=0.1), name


def test_pareto_has_the_tail_of_its_exponent():
    secs = draws("pareto:alpha=3,mean_ms=1000", 40_000)
    smallest = (3 - 1) / 3
    assert secs.min() >= smallest
    assert np.mean(secs > 2 * smallest) == pytest.approx(2.0**-3, rel=0.05)


def test_persistent_slows_only_its_worker():
    text = "persistent:worker=2,factor=10,alpha=0.2"
    assert draws(text, 2000, worker=1).mean() == pytest.approx(0.1, rel=0.02)
    assert draws(text, 2000, worker=2).mean() == pytest.approx(1.0, rel=0.02)


def test_persistent_requires_a_worker():
    with pytest.raises(ValueError, match="index of the delayed worker"):
        delays.parse("persistent").sampler(delays.rng_for(0, 0))


def test_bursts_have_the_length_that_their_end_probability_gives():
    is_slow = draws("burst:factor=4,begin=0.05,end=0.25,jitter=0", 60_000) > 0.1
    lengths = [len(list(run)) for slow, run in itertools.groupby(is_slow) if slow]
    assert is_slow.mean() == pytest.approx(0.05 / (0.05 + 0.25), rel=0.05)
    assert np.mean(lengths) == pytest.approx(1 / 0.25, rel=0.05)


def test_trace_replays_the_file_in_order_and_round_again(tmp_path):
    (tmp_path / "t.csv").write_text("step,secs\n1,0.5\n2,0.25\n3,0.125\n")
    secs = draws(f"trace:file={tmp_path}/t.csv,column=secs", 700).tolist()
    recorded = [0.5, 0.25, 0.125]
    start = recorded.index(secs[0])
    assert secs == [recorded[(start + i) % 3] for i in range(700)]


def test_traces_of_different_workers_begin_at_different_lines(tmp_path):
    (tmp_path / "t.csv").write_text("".join(f"{i}\n" for i in range(1, 101)))
    starts = {draws(f"trace:file={tmp_path}/t.csv,column=0", 1, worker=worker)[0] for worker in range(10)}
    assert len(starts) > 5


def test_trace_is_scaled_when_a_mean_is_given(tmp_path):
    (tmp_path / "t.csv").write_text("1\n3\n")
    assert sorted(draws(f"trace:file={tmp_path}/t.csv,mean_ms=100", 2)) == pytest.approx([0.05, 0.15])


def test_same_seed_and_worker_give_the_same_delays_and_others_do_not():
    first = draws("lognormal", 600, worker=3, seed=7)
    np.testing.assert_array_equal(first, draws("lognormal", 600, worker=3, seed=7))
    assert not np.array_equal(first, draws("lognormal", 600, worker=4, seed=7))
    assert not np.array_equal(first, draws("lognormal", 600, worker=3, seed=8))


@pytest.mark.parametrize("text", ["exp", "burst", "spike"])
def test_blocks_equal_the_samplers_values(text):
    spec = delays.parse(text)
    blocks = spec.blocks(delays.rng_for(1, 2), 2)
    np.testing.assert_array_equal(
        np.concatenate([next(blocks), next(blocks)]), draws(text, 2 * delays.BLOCK, worker=2, seed=1)
    )


def test_spec_names_mean_and_worker():
    spec = delays.parse("pareto:alpha=2.1,mean_ms=50,worker=1")
    assert (spec.mean_ms, spec.worker, spec.distribution.options.alpha) == (50.0, 1, 2.1)
    assert [spec.applies_to(worker) for worker in range(3)] == [False, True, False]
    assert all(delays.parse("persistent:worker=1").applies_to(worker) for worker in range(3))


class Own(delays.Independent):
    """A distribution of the user's own."""

    def draw(self, rng, count):
        return np.ones(count)


def test_takes_a_users_distribution():
    assert draws(f"{__name__}:Own:mean_ms=300", 3).tolist() == pytest.approx([0.3] * 3)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("lognormall", UnknownNameError, "did you mean lognormal"),
        ("exp:0.3", OptionError, "exp:key=value"),
        ("exp:alpha=1", OptionError, "unknown key 'alpha'"),
        ("exp:worker=-1", OptionError, "worker=-1"),
        ("persistent:worker=none", OptionError, "index of the slow worker"),
        ("trace", OptionError, "trace:file=PATH"),
        ("trace:file=/no/such.csv", DataError, "is not a file"),
        ("ps_trainer.disturbances.delays:DelaySpec", OptionError, "derive it from"),
    ],
)
def test_rejects_a_wrong_spec_and_shows_a_right_one(text, error, words):
    with pytest.raises(error, match=words):
        delays.parse(text)


def test_messages_name_the_flag_of_the_spec():
    for text in ("nothing", "exp:sigma=1", "det:jitter=3"):
        with pytest.raises((UnknownNameError, OptionError), match="^--compute[= ]"):
            delays.parse(text, "--compute")


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("secs\n0.1\nx\n", "secs", "line 3, column 0: 'x'"),
        ("0.1\n0\n", "0", "line 2, column 0: '0'"),
        ("0.1,2\n0.3\n", "1", "line 2, column 1: ''"),
        ("a,b\n1,2\n", "c", "columns: a, b"),
        ("1,2\n", "c", "give an index"),
        ("secs\n", "secs", "no step times"),
        ("", "0", "no step times"),
    ],
)
def test_rejects_a_broken_trace_and_names_the_line(tmp_path, text, column, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        delays.parse(f"trace:file={tmp_path}/t.csv,column={column}")


def test_specs_for_a_cluster_may_name_only_its_workers():
    assert [spec.worker for spec in delays.parse_all(["exp", "det:worker=1"], 2)] == [None, 1]
    with pytest.raises(OptionError, match="worker 2 does not exist with num_workers=2; give worker=1 or less"):
        delays.parse_all(["exp:worker=2"], 2)
