"""`ScheduleRule`: decides when workers continue and which pushes make an update; `events.py` computes the times."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.updates.options import RuleOptions


class StepPlan(NamedTuple):
    """Parts of a worker's step besides the computation.

    Attributes:
        pulls: Whether the step reads the parameters.
        pushes: Whether the step sends something to the ps tasks.
        pulls_last: Whether it reads the parameters between computation and push instead of before the computation.
    """

    pulls: bool = True
    pushes: bool = True
    pulls_last: bool = False


class PushOutcome(NamedTuple):
    """Result of a push.

    Attributes:
        update: Index of the update that has the push, or `schedule.DROPPED`.
        resumed: Workers that begin their next step now, in this order.
        wait_secs: Seconds until these steps begin, and until the update that this push completes takes effect.
    """

    update: int
    resumed: Sequence[int]
    wait_secs: float = 0.0


PLAIN = StepPlan()
"""Plan of a step that pulls first and pushes last."""


class ScheduleRule(abc.ABC):
    """Schedule of one update rule. All workers are there from the start to the end.

    Args:
        options: Options of the type `Options`, checked for this size of cluster.
        cluster: Cluster that the rule runs on.

    Attributes:
        Options: Type of the rule's options; some of them do not change the schedule.
        uses_ps: Whether pulls and pushes are transfers from and to the ps tasks. If not, they take no time.
        version: Number of updates made so far, which is global_step.
    """

    Options: ClassVar[type[RuleOptions] | None] = None
    uses_ps: ClassVar[bool] = True

    def __init__(self, options: Any, cluster: ClusterModel):
        self.options = options
        self.num_workers = cluster.num_workers
        self.version = 0

    def first(self) -> Sequence[int]:
        """Returns the workers that begin at time 0."""
        return range(self.num_workers)

    def plan(self, worker: int) -> StepPlan:
        """Returns the plan of the step that a worker begins now; called once for each step."""
        return PLAIN

    @abc.abstractmethod
    def push(self, worker: int, version: int) -> PushOutcome:
        """Processes a push, and counts the updates that it completes.

        Args:
            worker: Worker that pushed.
            version: Value of global_step at that worker's last pull.
        """
