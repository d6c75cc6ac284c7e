"""Schedules whose staleness is given, not the outcome of a cluster: update v applies a gradient of version v − τ_v.

One stream of batches, one gradient per update; virtual time counts updates. To be replayed as `async`, or by any other
rule in which each push is an update (`staleness_aware`, `dc_asgd`).

Source: simulated staleness, Chen et al. 2016 ("Revisiting Distributed Synchronous SGD", section 2), who draw from a
buffer of old gradients and let the staleness grow over the first epochs; Dai et al. 2019 ("Toward Understanding the
Impact of Staleness in Distributed Machine Learning") draw it uniformly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.schedule import Schedule, Steps


def constant(tau: int, num_updates: int, *, ramp_updates: int = 0) -> Schedule:
    """Every gradient is `tau` updates old.

    Args:
        tau: updates.
        num_updates: of the schedule.
        ramp_updates: see `given`.
    """
    _check(tau, num_updates)
    return given(np.full(num_updates, tau), ramp_updates=ramp_updates)


def uniform(tau: int, num_updates: int, *, seed: int = 0, ramp_updates: int = 0) -> Schedule:
    """τ uniform on 0 … 2 `tau`, of which `tau` is the mean."""
    _check(tau, num_updates)
    return given(np.random.default_rng(seed).integers(0, 2 * tau + 1, num_updates), ramp_updates=ramp_updates)


def geometric(tau: float, num_updates: int, *, seed: int = 0, ramp_updates: int = 0) -> Schedule:
    """P(τ = k) = p (1 − p)^k with p = 1 / (1 + `tau`), so that `tau` is the mean.

    That is the staleness of 1 + `tau` asynchronous workers with exponential compute times.
    """
    _check(tau, num_updates)
    staleness = np.random.default_rng(seed).geometric(1 / (1 + tau), num_updates) - 1
    return given(staleness, ramp_updates=ramp_updates)


def given(staleness: Sequence[int] | np.ndarray, *, ramp_updates: int = 0) -> Schedule:
    """The staleness of each update as given.

    Args:
        staleness: integers, 0 or more, an entry per update; v of update v at most, as there is no older version.
        ramp_updates: updates in which the staleness grows: that of update v < ramp_updates is multiplied by
            v / ramp_updates and rounded down.

    Raises:
        OptionError: a staleness below 0 or of no update, or `ramp_updates` below 0.
    """
    taken = np.asarray(staleness, np.int64)
    if not len(taken):
        raise OptionError("the staleness of no update is given; give 1 or more")
    if taken.min() < 0:
        raise OptionError(f"staleness {taken.min()}; give 0 (the newest parameters) or more")
    if ramp_updates < 0:
        raise OptionError(f"ramp_updates={ramp_updates}; give 0 (no ramp) or more")
    update = np.arange(len(taken), dtype=np.int64)
    if ramp_updates:
        taken = taken * np.minimum(update, ramp_updates) // ramp_updates
    taken = np.minimum(taken, update)
    begin, end = update.astype(np.float64), update + 1.0
    steps = Steps(
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
        raise OptionError(f"tau={tau}; give 0 (no staleness) or more")
    if num_updates < 1:
        raise OptionError(f"num_updates={num_updates}; give 1 or more")
