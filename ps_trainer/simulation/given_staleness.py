"""Schedules with a given staleness instead of a cluster's: update v applies a gradient of version v − τ_v.

A schedule has one stream of batches and one gradient per update. Virtual time counts updates. `Replay` can train along
it with `async` or any other rule in which each push is an update (`staleness_aware`, `dc_asgd`).

Source: Chen et al. 2016 ("Revisiting Distributed Synchronous SGD", section 2) simulate staleness with a buffer of old
gradients, and let it grow over the first epochs. Dai et al. 2019 ("Toward Understanding the Impact of Staleness in
Distributed Machine Learning") draw it uniformly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.schedule import Schedule, StepColumns


def constant(tau: int, num_updates: int, *, ramp_updates: int = 0) -> Schedule:
    """Makes a schedule in which every gradient is `tau` updates old.

    Args:
        tau: Staleness in updates.
        num_updates: Number of updates in the schedule.
        ramp_updates: Number of first updates in which the staleness grows linearly to `tau`.
    """
    _check(tau, num_updates)
    return create_schedule(np.full(num_updates, tau), ramp_updates=ramp_updates)


def uniform(tau: int, num_updates: int, *, seed: int = 0, ramp_updates: int = 0) -> Schedule:
    """Makes a schedule with τ uniform on 0 … 2 `tau`, so that `tau` is the mean."""
    _check(tau, num_updates)
    return create_schedule(np.random.default_rng(seed).integers(0, 2 * tau + 1, num_updates), ramp_updates=ramp_updates)


def geometric(tau: float, num_updates: int, *, seed: int = 0, ramp_updates: int = 0) -> Schedule:
    """Makes a schedule with P(τ = k) = p (1 − p)^k and p = 1 / (1 + `tau`), so that `tau` is the mean.

    1 + `tau` asynchronous workers with exponential compute times have this staleness.
    """
    _check(tau, num_updates)
    staleness = np.random.default_rng(seed).geometric(1 / (1 + tau), num_updates) - 1
    return create_schedule(staleness, ramp_updates=ramp_updates)


def create_schedule(staleness: Sequence[int] | np.ndarray, *, ramp_updates: int = 0) -> Schedule:
    """Makes a schedule with the given staleness of each update.

    Args:
        staleness: int [num_updates], 0 or more. Update v has at most the staleness v, because no older version exists;
            larger values are reduced to v.
        ramp_updates: Number of first updates in which the staleness grows: for update v < ramp_updates it is multiplied
            by v / ramp_updates and rounded down.

    Raises:
        OptionError: A staleness is below 0, no staleness is given, or `ramp_updates` is below 0.
    """
    taken = np.asarray(staleness, np.int64)
    if not len(taken):
        raise OptionError("no staleness is given; give it for at least 1 update")
    if taken.min() < 0:
        raise OptionError(f"staleness={taken.min()} must be at least 0 (the newest parameters)")
    if ramp_updates < 0:
        raise OptionError(f"ramp_updates={ramp_updates} must be at least 0 (no ramp)")
    update = np.arange(len(taken), dtype=np.int64)
    if ramp_updates:
        taken = taken * np.minimum(update, ramp_updates) // ramp_updates
    # After the ramp, which may leave a larger staleness than there are versions.
    taken = np.minimum(taken, update)
    begin, end = update.astype(np.float64), update + 1.0
    steps = StepColumns(
        worker=np.zeros(len(update), np.int32),
        local_step=update.astype(np.int32),
        version=update - taken,
        t_start=begin,
        t_pull_done=begin,
        t_compute_done=end,
        t_push_done=end,
        update=update,
        staleness=taken,
    )
    return Schedule(1, steps, end)


def _check(tau: float, num_updates: int) -> None:
    if not 0 <= tau < np.inf:
        raise OptionError(f"tau={tau} must be at least 0 (no staleness) and finite")
    if num_updates < 1:
        raise OptionError(f"num_updates={num_updates} must be at least 1")
