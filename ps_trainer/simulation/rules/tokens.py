"""The token queue of `tf.train.SyncReplicasOptimizer`, for comparison with `sync`; the cluster has no such rule."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PushOutcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import SyncOptions


class TokenQueue(ScheduleRule):
    """`token_queue`: the first R pushes with the right stamp make an update; a worker continues with the next token.

    The stamp of a push is the token that its worker took last (0 at first). A push is dropped if its stamp is not
    global_step. Each update puts num_workers tokens with the new global_step into a first-in-first-out queue. Any
    worker takes any token. So a fast worker can take the token of a slow one and be counted twice. Or its push can be
    dropped because of an old token, although it has the newest parameters.

    Departs from TensorFlow: the chief takes no time to make the update, so that no more than R pushes are in it. The
    options are those of `sync`. No worker is ever lost, so `min_workers` has no effect.
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

    def push(self, worker: int, version: int) -> PushOutcome:
        update = self.version
        is_fresh = self._stamps[worker] == update
        self._num_fresh += is_fresh
        self._waiting.append(worker)
        if self._num_fresh == self.required:
            self._num_fresh = 0
            self.version += 1
            self.tokens.extend([self.version] * self.num_workers)
        resumed = [self._waiting.popleft() for _ in range(min(len(self._waiting), len(self.tokens)))]
        for resumed_worker in resumed:
            self._stamps[resumed_worker] = self.tokens.popleft()
        return PushOutcome(update if is_fresh else DROPPED, resumed)


class StockSync(TokenQueue):
    """`stock_sync`: as `token_queue`, with R tokens of value 0 at the start, as TensorFlow's own session hook does.

    Every worker begins its first step without a token. So fast workers are a step ahead until a gradient of each of
    these steps has been dropped.
    """

    starts_with_tokens = True
