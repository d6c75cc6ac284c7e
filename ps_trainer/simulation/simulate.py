"""`stream` and `simulate`: the schedule of an update rule on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.events import Events
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import Schedule, ScheduleBlock, concatenate
from ps_trainer.simulation.vectorised import dispatch

_MIN_WORKERS = 24  # with fewer workers, calls of NumPy take longer than events


def stream(
    cluster: ClusterModel, update: str, option_strings: Sequence[str] = (), *, num_updates: int
) -> Iterator[ScheduleBlock]:
    """Simulates a run and returns its schedule piece by piece, for runs that are too long for the memory.

    The function checks its arguments before it returns.

    Args:
        cluster: Durations of computation and transfers.
        update: Name of the update rule, as for `--update`.
        option_strings: Options of the rule, each as `key=value`, as for `--update_option`.
        num_updates: Value of global_step at which the run ends, at least 1.

    Raises:
        UnknownNameError: There is no rule of this name, or it has no schedule.
        OptionError: An option is wrong or does not fit the cluster.
    """
    # Here and not in the generators, which would raise only when the first block is asked for.
    rule = schedule_table.create(update, option_strings, cluster)
    if cluster.num_workers >= _MIN_WORKERS and dispatch.can_run(cluster, rule):
        return dispatch.run(cluster, rule, num_updates)
    return Events(cluster, rule).run(num_updates)


def simulate(cluster: ClusterModel, update: str, option_strings: Sequence[str] = (), *, num_updates: int) -> Schedule:
    """Simulates a run and returns its whole schedule, which takes about 64 bytes per step of a worker.

    Args:
        cluster: Durations of computation and transfers.
        update: Name of the update rule, as for `--update`.
        option_strings: Options of the rule, each as `key=value`, as for `--update_option`.
        num_updates: Value of global_step at which the run ends, at least 1.

    Raises:
        UnknownNameError: There is no rule of this name, or it has no schedule.
        OptionError: An option is wrong or does not fit the cluster.
    """
    whole = concatenate(stream(cluster, update, option_strings, num_updates=num_updates))
    return Schedule(cluster.num_workers, whole.steps, whole.update_secs)
