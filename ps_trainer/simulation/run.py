"""`stream` and `simulate`: the schedule of an update rule on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ps_trainer.errors import OptionError
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.events import Events
from ps_trainer.simulation.rules import table
from ps_trainer.simulation.schedule import Block, Schedule, concatenate
from ps_trainer.simulation.vectorised import table as vectorised

# With fewer workers NumPy's calls cost more than events.
_MIN_WORKERS = 24


def stream(
    cluster: ClusterModel, update: str, option_strings: Sequence[str] = (), *, num_updates: int
) -> Iterator[Block]:
    """The schedule piece by piece, for runs too long to hold; checks everything before it returns.

    Args:
        cluster: what takes how long.
        update: a name of `--update`, see `rules/table.py`.
        option_strings: `key=value` each, as for `--update_option`.
        num_updates: where the run ends: value of global_step.

    Raises:
        UnknownNameError: no such rule in virtual time.
        OptionError: an option is wrong or does not fit the cluster.
    """
    if num_updates < 1:
        raise OptionError(f"--max_updates={num_updates}: max_updates must be at least 1")
    rule = table.create(update, option_strings, cluster)
    if cluster.num_workers >= _MIN_WORKERS and vectorised.can_run(cluster, rule):
        return vectorised.run(cluster, rule, num_updates)
    return Events(cluster, rule).run(num_updates)


def simulate(cluster: ClusterModel, update: str, option_strings: Sequence[str] = (), *, num_updates: int) -> Schedule:
    """The whole schedule, some 64 bytes per step of a worker; arguments and errors as of `stream`."""
    whole = concatenate(stream(cluster, update, option_strings, num_updates=num_updates))
    return Schedule(cluster.num_workers, whole.steps, whole.update_secs)
