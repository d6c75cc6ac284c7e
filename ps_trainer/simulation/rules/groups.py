"""Rules that make an update from a group of pushes: `backup`, `softsync` and the four `k_` rules.

The same four questions as `updates/group.py`: how many pushes, only of the newest parameters, does a worker wait for
the update that it is part of.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

from ps_trainer.errors import OptionError
from ps_trainer.options import option
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, ScheduleRule, check_at_least, check_at_most
from ps_trainer.simulation.schedule import DROPPED


class Grouped(ScheduleRule):
    """An update from so many pushes.

    Attributes:
        is_fresh_only: a push of an older version than the newest is dropped, and its worker goes on.
        waits: a worker whose push is in a group goes on when that is complete; else at once.
    """

    is_fresh_only: ClassVar[bool]
    waits: ClassVar[bool]

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._members: list[int] = []

    @abc.abstractmethod
    def required(self, version: int) -> int:
        """Pushes in the update that follows `version` others."""

    def push(self, worker: int, version: int) -> Outcome:
        """See `ScheduleRule.push`."""
        update = self.version
        if self.is_fresh_only and version < update:
            return Outcome(DROPPED, (worker,))
        self._members.append(worker)
        is_complete = len(self._members) == self.required(update)
        go = self._members if self.waits and is_complete else () if self.waits else (worker,)
        if is_complete:
            self._members = []
            self.version += 1
        return Outcome(update, go)


class Backup(Grouped):
    """`backup`: the first N = num_workers − backup_workers pushes of a version; who is late is dropped and goes on."""

    is_fresh_only = True
    waits = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `backup`."""

        backup_workers: int = option(1, "workers that an update does not wait for")

        def __post_init__(self):
            check_at_least(self, backup_workers=0)

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        check_at_most(cluster, cluster.num_workers - 1, backup_workers=options.backup_workers)

    def required(self, version: int) -> int:
        """See `Grouped.required`."""
        return self.num_workers - self.options.backup_workers


class SoftSync(Grouped):
    """`softsync`: every ⌈num_workers / splits⌉ pushes are an update, however old; nobody waits."""

    is_fresh_only = False
    waits = False

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `softsync`."""

        splits: int = option(1, "updates for one gradient of every worker")

        def __post_init__(self):
            check_at_least(self, splits=1)

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        check_at_most(cluster, splits=options.splits)

    def required(self, version: int) -> int:
        """See `Grouped.required`."""
        return -(-self.num_workers // self.options.splits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KOptions:
    """Options of the four `k_` rules."""

    k: int = option(1, "gradients per update, at first")
    grow_every: int = option(0, "updates after which k grows, again and again; 0 = k stays")
    grow_by: int = option(1, "what k grows by each time")
    max_k: int = option(0, "where k stops to grow; 0 = the number of workers")

    def __post_init__(self):
        check_at_least(self, k=1, grow_every=0, grow_by=1)
        if self.max_k and (not self.grow_every or self.max_k < self.k):
            raise OptionError(
                f"max_k={self.max_k}, k={self.k}, grow_every={self.grow_every}; max_k is where a growing k stops:"
                " give grow_every >= 1 and max_k >= k, or leave max_k out"
            )


class _KRule(Grouped):
    Options = KOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        if self.waits:  # a worker is in a group once
            check_at_most(cluster, k=options.k, max_k=options.max_k)

    def required(self, version: int) -> int:
        """See `Grouped.required`."""
        options = self.options
        if not options.grow_every:
            return options.k
        limit = max(options.max_k or self.num_workers, options.k)
        return min(options.k + options.grow_by * (version // options.grow_every), limit)


class KSync(_KRule):
    """`k_sync`: the first k workers' pushes of a version; the others' are dropped."""

    is_fresh_only = True
    waits = True


class KAsync(_KRule):
    """`k_async`: pushes of k workers, however old; they wait for each other."""

    is_fresh_only = False
    waits = True


class KBatchSync(_KRule):
    """`k_batch_sync`: k pushes of a version, by any workers; nobody waits, so late ones are dropped."""

    is_fresh_only = True
    waits = False


class KBatchAsync(_KRule):
    """`k_batch_async`: every k pushes, by any workers, however old; nobody waits."""

    is_fresh_only = False
    waits = False
