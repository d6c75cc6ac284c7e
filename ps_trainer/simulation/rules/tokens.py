"""The token queue of `tf.train.SyncReplicasOptimizer`: what `sync` is measured against, and no rule of the cluster."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import SyncOptions


class TokenQueue(ScheduleRule):
    """`token_queue`: the first R pushes with the right stamp make an update; a worker goes on with the next token.

    A push is stamped with the token that its worker took last (0 at first), and dropped if global_step has moved
    on. Each update puts num_workers tokens worth the new global_step into a queue, first in, first out. Any worker
    takes any token: a fast one can take a slow one's, count twice, or be late for want of a new one, even with the
    newest parameters.

    Departs from TensorFlow: the chief takes no time to make the update, so that no more than R pushes are in it. The
    options are those of `sync`; no worker is ever lost, so `min_workers` changes nothing.
    """

    Options = SyncOptions
    starts_with_tokens: ClassVar[bool] = False

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self.required = options.replicas_to_aggregate or cluster.num_workers
        self.tokens: deque[int] = deque([0] * self.required if self.starts_with_tokens else [])
        self._stamps = [0] * cluster.num_workers
        self._waiting: deque[int] = deque()
        self._num_fresh = 0

    def push(self, worker: int, version: int) -> Outcome:
        update = self.version
        is_fresh = self._stamps[worker] == update
        self._num_fresh += is_fresh
        self._waiting.append(worker)
        if self._num_fresh == self.required:
            self._num_fresh = 0
            self.version += 1
            self.tokens.extend([self.version] * self.num_workers)
        go = [self._waiting.popleft() for _ in range(min(len(self._waiting), len(self.tokens)))]
        for going in go:
            self._stamps[going] = self.tokens.popleft()
        return Outcome(update if is_fresh else DROPPED, go)


class StockSync(TokenQueue):
    """`stock_sync`: the same with R tokens worth 0 at the start, as TensorFlow's own session hook puts there.

    As every worker begins its first step without a token, fast ones are a step ahead until
    a gradient of every such step has been dropped.
    """

    starts_with_tokens = True
