"""Runs in virtual time: schedules of the simulator for experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.disturbances import delays
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.schedule import DROPPED, Schedule, StepColumns
from ps_trainer.simulation.simulate import simulate


class VirtualRun(NamedTuple):
    """A run in virtual time."""

    schedule: Schedule  # all steps and updates

    @property
    def warm_steps(self) -> StepColumns:
        """The steps that ended after the first 20 % of the updates."""
        updates = self.schedule.update_secs
        num_warmup = int(WARMUP_SHARE * len(updates))
        begin = updates[num_warmup - 1] if num_warmup else -np.inf
        return self.schedule.steps.select(self.schedule.steps.t_push_done > begin)

    def staleness_by_worker(self) -> dict[int, Counter[int]]:
        """Returns the histogram of the staleness of each worker's used gradients, after warm-up."""
        steps = self.warm_steps
        used = steps.select(steps.update >= 0)
        return {
            worker: Counter(used.staleness[used.worker == worker].tolist())
            for worker in range(self.schedule.num_workers)
        }

    def step_records(self, num_steps: int) -> Iterator[dict[str, Any]]:
        """Yields a record for each of the first steps, with the fields of real clusters' records."""
        steps = self.schedule.steps.select(slice(num_steps))
        for step in zip(*(column.tolist() for column in steps), strict=True):
            row = StepColumns(*step)
            yield {
                "worker": row.worker,
                "local_step": row.local_step + 1,
                "gs_read": row.version,
                "gs_applied": row.update + 1 if row.update >= 0 else None,
                "staleness": row.staleness if row.update >= 0 else None,
                "dropped": int(row.update == DROPPED),
                "t_start": row.t_start,
                "t_pull_done": row.t_pull_done,
                "t_compute_done": row.t_compute_done,
                "t_push_done": row.t_push_done,
            }


def run(
    update: str,
    options: Sequence[str] = (),
    *,
    num_workers: int,
    compute: Sequence[str],
    num_updates: int,
    seed: int,
    **cluster: Any,
) -> VirtualRun:
    """Returns the schedule of an update rule.

    Args:
        update: Name of `--update`.
        options: Values of `--update_option`.
        num_workers: Number of workers.
        compute: Step times, as for `--compute`.
        num_updates: Value of global_step at the end.
        seed: Seed of the step times.
        **cluster: More fields of `simulation.cluster.ClusterModel`.
    """
    model = ClusterModel(
        num_workers=num_workers,
        compute=tuple(delays.parse(text, "--compute") for text in compute),
        seed=seed,
        **cluster,
    )
    return VirtualRun(simulate(model, update, options, num_updates=num_updates))
