"""`ScheduleRule`: who goes on when, and whose push makes which update; the times are `events.py`'s."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.updates.options import RuleOptions


class Plan(NamedTuple):
    """What a worker's step consists of, beside the computation.

    Attributes:
        pulls: it reads the parameters.
        pushes: it sends something to the ps tasks.
        pulls_last: it reads the parameters between computation and push, not before.
    """

    pulls: bool = True
    pushes: bool = True
    pulls_last: bool = False


class Outcome(NamedTuple):
    """What became of a push.

    Attributes:
        update: index of the update that it is in, or `schedule.DROPPED`.
        go: workers that go on with their next step now, in this order.
        wait_secs: time until they do, and until the update that this push has made is made.
    """

    update: int
    go: Sequence[int]
    wait_secs: float = 0.0


PLAIN = Plan()


class ScheduleRule(abc.ABC):
    """The schedule of one update rule; no worker comes late, leaves or dies.

    Args:
        options: of the type `Options`, checked for this size of cluster.
        cluster: where it runs.

    Attributes:
        Options: those of the rule in `ps_trainer.updates`; some of them do not change the schedule.
        uses_ps: whether pulls and pushes are transfers from and to the ps tasks; else they take no time.
        version: updates made so far, which is global_step.
    """

    Options: ClassVar[type[RuleOptions] | None] = None
    uses_ps: ClassVar[bool] = True

    def __init__(self, options: Any, cluster: ClusterModel):
        self.options = options
        self.num_workers = cluster.num_workers
        self.version = 0

    def first(self) -> Sequence[int]:
        """The workers that begin at time 0."""
        return range(self.num_workers)

    def plan(self, worker: int) -> Plan:
        """The step that a worker begins now; called once for each."""
        return PLAIN

    @abc.abstractmethod
    def push(self, worker: int, version: int) -> Outcome:
        """A push has been taken in; counts the updates that it makes.

        Args:
            worker: whose push it is.
            version: global_step at that worker's last pull.
        """
