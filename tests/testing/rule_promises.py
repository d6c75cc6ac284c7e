"""A table of the promises in each update rule's docstring, for the conformance suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

GlobalSteps = Callable[[Sequence[int], Sequence[int]], tuple[int, int]]
"""(steps of each worker, dropped gradients of each worker) -> least and greatest global_step at the end."""


LIKE_ANOTHER = ("backup", "softsync", "k_sync", "k_async", "k_batch_sync", "k_batch_async", "model_averaging")
"""Rules whose graph is built by the code of another rule: `gradient_collector.py` also builds that of `sync`, with
another `GroupPolicy`, and `averaging.py` also that of `local_sgd`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promises:
    """The promises in a rule's docstring.

    Attributes:
        counts: Function from the workers' steps to global_step.
        options: Options of the rule in a cluster of three workers.
        alone: Options of the rule with one worker.
        plain: Options with which one worker computes the same as plain SGD; None if there are none.
        steps_per_update: Steps of such a worker per global step.
        overshoot: Number of steps by which a run of three workers may exceed max_steps.
        model: Model for the checks that work with any model.
        holds_tables: Whether the rule trains embedding tables.
        takes_momentum: Whether the rule runs with --optimizer=momentum.
        takes_lossy: Whether the rule runs with lossy gradient transforms.
        max_steps: Global steps of a run of three workers.
        gradients_per_update: Number of whole gradients by which one global step moves the parameters: 1 if an update is
            one gradient or an average; None if it depends on the order of arrival.
        share: Part of each used gradient that moves the parameters in a run of three workers that ends at `max_steps`;
            None if the last gradient may wait for others in vain.
        drops: Whether the rule may leave out a gradient that it received.
    """

    counts: GlobalSteps
    options: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    plain: tuple[str, ...] | None = ()
    steps_per_update: int = 1
    overshoot: int = 0
    model: str = "Dense"
    holds_tables: bool = True
    takes_momentum: bool = True
    takes_lossy: bool = True
    max_steps: int = 30
    gradients_per_update: int | None = 1
    share: float | None = None
    drops: bool = False


def _each_used(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
    return sum(steps) - sum(dropped), sum(steps) - sum(dropped)


def _rounds_of(period: int) -> GlobalSteps:
    """One update for every `period` steps of all workers that have that number left."""

    def count(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
        return max(steps) // period, max(steps) // period

    return count


def _one_in(period: int) -> GlobalSteps:
    """One update per worker for every `period` of its steps; its remaining steps at the end make none."""

    def count(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
        total = sum(num_steps // period for num_steps in steps)
        return total, total

    return count


def _first_of(period: int) -> GlobalSteps:
    """One update per worker with the first of every `period` of its steps."""

    def count(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
        total = sum(-(-num_steps // period) for num_steps in steps)
        return total, total

    return count


def _groups_of(size: int) -> GlobalSteps:
    """One update for every `size` gradients from any workers; an open group at the end makes none."""

    def count(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
        total = (sum(steps) - sum(dropped)) // size
        return total, total

    return count


def _pairs_of_workers(steps: Sequence[int], dropped: Sequence[int]) -> tuple[int, int]:
    """One update for a gradient from each of two workers, or from the last worker alone."""
    used = [made - lost for made, lost in zip(steps, dropped, strict=True)]
    others = sum(used) - max(used)  # when these are used up, one worker may remain, and makes updates alone
    return max(max(used), sum(used) // 2), sum(used) - others // 2


PROMISES = {
    "async": Promises(counts=_each_used, overshoot=2, share=1),
    "downpour": Promises(
        counts=_one_in(2),
        options=("n_push=2", "n_fetch=3"),
        alone=("n_push=2", "n_fetch=5"),  # a restart after 14 steps falls between two fetches
        # Local SGD and the push of the sum are the same step when the fetch comes with a push.
        plain=("n_push=2", "n_fetch=4"),
        steps_per_update=2,
        overshoot=2,
        holds_tables=False,
        takes_momentum=False,
        gradients_per_update=2,
    ),
    "hogwild": Promises(counts=_each_used, overshoot=2, share=1),
    "sync": Promises(counts=_rounds_of(1), share=1 / 3),
    "sync_replicas": Promises(counts=_rounds_of(1), share=1 / 3),
    "backup": Promises(
        counts=_pairs_of_workers,
        options=("backup_workers=1",),
        alone=("backup_workers=0",),
        plain=("backup_workers=0",),
        share=1 / 2,
        drops=True,
    ),
    "softsync": Promises(counts=_groups_of(2), options=("splits=2",), drops=True),
    "k_sync": Promises(counts=_pairs_of_workers, options=("k=2",), share=1 / 2, drops=True),
    "k_async": Promises(counts=_pairs_of_workers, options=("k=2",), drops=True),
    "k_batch_sync": Promises(counts=_groups_of(2), options=("k=2",), share=1 / 2, drops=True),
    "k_batch_async": Promises(counts=_groups_of(2), options=("k=2",), drops=True),
    "ssp": Promises(counts=_each_used, overshoot=2, options=("staleness=1",), share=1),
    "drop_stale": Promises(counts=_each_used, overshoot=2, options=("staleness=1",), share=1, drops=True),
    "staleness_aware": Promises(counts=_each_used, overshoot=2, gradients_per_update=None),
    "dc_asgd": Promises(counts=_each_used, overshoot=2, holds_tables=False, share=1),
    "easgd": Promises(
        counts=_first_of(2),
        options=("period=2",),
        # The exchange belongs to the first step of a period: 7 of them are over after 43 steps, 12 after 78.
        alone=("period=7",),
        plain=None,  # the centre follows the replica
        overshoot=2,
        holds_tables=False,
        takes_momentum=False,
        gradients_per_update=None,
    ),
    "model_averaging": Promises(
        counts=_rounds_of(2),
        options=("period=2",),
        alone=("period=2",),
        plain=("period=2",),
        steps_per_update=2,
        holds_tables=False,
        takes_lossy=False,
        gradients_per_update=2,
        share=1 / 3,
    ),
    "local_sgd": Promises(
        counts=_rounds_of(2),
        options=("period=2",),
        alone=("period=2",),
        plain=("period=2",),
        steps_per_update=2,
        holds_tables=False,
        gradients_per_update=2,
        share=1 / 3,
    ),
    "all_reduce": Promises(counts=_rounds_of(1), holds_tables=False, takes_lossy=False, share=1 / 3),
    "hybrid": Promises(counts=_rounds_of(1), model="Embedded", takes_lossy=False, share=1 / 3),
    "accumulate": Promises(
        counts=_one_in(2),
        options=("steps=2",),
        alone=("steps=2",),
        plain=("steps=1",),
        overshoot=2,
        gradients_per_update=2,
    ),
}
