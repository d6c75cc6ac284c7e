"""Rules that make an update from a group of pushes: `sync`, `backup`, `softsync` and the four `k_` rules.

The same four questions as `updates/gradient_group.py`: how many pushes, only of the newest parameters, does a worker
wait for the update that it is part of.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import (
    BackupOptions,
    KAsyncOptions,
    KBatchOptions,
    KSyncOptions,
    SoftSyncOptions,
    SyncOptions,
)


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


class Sync(Grouped):
    """`sync`: the first R pushes of a version; who is late is dropped and goes on.

    No worker is ever lost, so `min_workers` changes nothing.
    """

    is_fresh_only = True
    waits = True
    Options = SyncOptions

    def required(self, version: int) -> int:
        return self.options.replicas_to_aggregate or self.num_workers


class Backup(Grouped):
    """`backup`: the first N = num_workers − backup_workers pushes of a version; who is late is dropped and goes on."""

    is_fresh_only = True
    waits = True
    Options = BackupOptions

    def required(self, version: int) -> int:
        return self.num_workers - self.options.backup_workers


class SoftSync(Grouped):
    """`softsync`: every ⌈num_workers / splits⌉ pushes are an update, however old; nobody waits."""

    is_fresh_only = False
    waits = False
    Options = SoftSyncOptions

    def required(self, version: int) -> int:
        return -(-self.num_workers // self.options.splits)


class _KRule(Grouped):
    Options = KBatchOptions

    def required(self, version: int) -> int:
        options = self.options
        if not options.grow_every:
            return options.k
        grown = options.k + options.grow_by * (version // options.grow_every)
        return min(grown, options.largest_k(self.num_workers))


class KSync(_KRule):
    """`k_sync`: the first k workers' pushes of a version; the others' are dropped."""

    Options = KSyncOptions
    is_fresh_only = True
    waits = True


class KAsync(_KRule):
    """`k_async`: pushes of k workers, however old; they wait for each other."""

    Options = KAsyncOptions
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
