"""Rules that make an update from a group of pushes: `sync`, `backup`, `softsync` and the four `k_` rules.

As in `updates/gradient_group.py`, they differ in the number of pushes, and in whether pushes of older parameters count.
They also differ in whether a worker waits for the update with its push.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PushOutcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import (
    BackupOptions,
    KAsyncOptions,
    KBatchOptions,
    KSyncOptions,
    SoftSyncOptions,
    SyncOptions,
    SyncReplicasOptions,
)


class GroupedRule(ScheduleRule):
    """Rule that makes an update from a number of pushes.

    Attributes:
        is_fresh_only: Whether pushes of older versions than the newest are dropped; their workers continue at once.
        waits: Whether a worker whose push is in a group waits until the group is complete, or continues at once.
    """

    is_fresh_only: ClassVar[bool]
    waits: ClassVar[bool]

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._members: list[int] = []

    @abc.abstractmethod
    def num_required(self, version: int) -> int:
        """Returns the number of pushes in the update that follows `version` others."""

    def push(self, worker: int, version: int) -> PushOutcome:
        update = self.version
        if self.is_fresh_only and version < update:
            return PushOutcome(DROPPED, (worker,))
        self._members.append(worker)
        is_complete = len(self._members) == self.num_required(update)
        # In the order of arrival, which also decides between their next steps if these end at the same time.
        resumed = self._members if self.waits and is_complete else () if self.waits else (worker,)
        if is_complete:
            self._members = []
            self.version += 1
        return PushOutcome(update, resumed)


class Sync(GroupedRule):
    """`sync`: the first R pushes of a version make an update; later ones are dropped, and their workers continue.

    No worker is ever lost, so `min_workers` has no effect.
    """

    is_fresh_only = True
    waits = True
    Options = SyncOptions

    def num_required(self, version: int) -> int:
        return self.options.replicas_to_aggregate or self.num_workers


class SyncReplicas(GroupedRule):
    """`sync_replicas`: as `sync`; the chief takes no time to make an update, so R gradients are in it."""

    is_fresh_only = True
    waits = True
    Options = SyncReplicasOptions

    def num_required(self, version: int) -> int:
        return self.options.replicas_to_aggregate or self.num_workers


class Backup(GroupedRule):
    """`backup`: as `sync`, with the first N = num_workers − backup_workers pushes of a version."""

    is_fresh_only = True
    waits = True
    Options = BackupOptions

    def num_required(self, version: int) -> int:
        return self.num_workers - self.options.backup_workers


class SoftSync(GroupedRule):
    """`softsync`: every ⌈num_workers / splits⌉ pushes make an update, however old they are; no worker waits."""

    is_fresh_only = False
    waits = False
    Options = SoftSyncOptions

    def num_required(self, version: int) -> int:
        return -(-self.num_workers // self.options.splits)


class _KFamilySchedule(GroupedRule):
    Options = KBatchOptions

    def num_required(self, version: int) -> int:
        options = self.options
        if not options.grow_every:
            return options.k
        grown = options.k + options.grow_by * (version // options.grow_every)
        return min(grown, options.largest_k(self.num_workers))


class KSync(_KFamilySchedule):
    """`k_sync`: the pushes of the first k workers of a version make an update; later ones are dropped."""

    Options = KSyncOptions
    is_fresh_only = True
    waits = True


class KAsync(_KFamilySchedule):
    """`k_async`: pushes of k workers make an update, however old they are; the k workers wait for it."""

    Options = KAsyncOptions
    is_fresh_only = False
    waits = True


class KBatchSync(_KFamilySchedule):
    """`k_batch_sync`: k pushes of a version, by any workers, make an update; no worker waits; late ones are dropped."""

    is_fresh_only = True
    waits = False


class KBatchAsync(_KFamilySchedule):
    """`k_batch_async`: every k pushes, by any workers and however old, make an update; no worker waits."""

    is_fresh_only = False
    waits = False
