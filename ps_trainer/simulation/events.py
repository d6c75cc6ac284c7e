"""`Events`: the schedule of any rule on any cluster, event by event; about 5 µs per step of a worker."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ps_trainer.disturbances import delays
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.host_links import ColocatedTransfers, HostLinks
from ps_trainer.simulation.link import SharedLink
from ps_trainer.simulation.rules.base import ScheduleRule, StepPlan
from ps_trainer.simulation.schedule import LOCAL, ScheduleBlock, as_steps

# As arrays, about 4 MB.
_BLOCK_STEPS = 1 << 16

_Link: TypeAlias = SharedLink | ColocatedTransfers


class Events:
    """A run in virtual time.

    A step of a worker has six parts: read the parameters on the ps tasks when the step begins; transfer them to the
    worker; compute; transfer the gradient to the ps tasks; wait until they have processed all earlier pushes; process
    this one. The rule decides what happens then.

    Args:
        cluster: Durations of computation and transfers.
        rule: Schedule rule for that cluster, at its start; the run changes it.
    """

    def __init__(self, cluster: ClusterModel, rule: ScheduleRule):
        n = cluster.num_workers
        self._rule = rule
        # A random stream for each worker, so that its compute times depend on neither the rule nor the order of events.
        self._compute = [
            cluster.compute_of(worker).sampler(delays.rng_for(cluster.seed, worker), worker) for worker in range(n)
        ]
        self._pull_link, self._push_link = _links_of(cluster) if rule.uses_ps else (None, None)
        self._after_transfer: list[Callable[[float, int], None]] = [self._have_pulled] * n
        self._start_secs = cluster.start_secs
        self._latency_secs = cluster.latency_secs
        self._transfer_secs = cluster.transfer_secs if rule.uses_ps else 0.0
        self._work_secs = cluster.push_work_secs if rule.uses_ps else 0.0
        self._work_done_at = 0.0
        self._events: list[tuple[float, int, Callable[[float, Any], None], Any]] = []
        self._num_events = 0
        self._plans = [StepPlan()] * n
        self._versions = [0] * n
        self._local_steps = [0] * n
        self._started, self._pulled, self._computed = [0.0] * n, [0.0] * n, [0.0] * n
        self._ended: list[tuple[int | float, ...]] = []  # an entry of `StepColumns` each
        self._update_secs: list[float] = []

    def run(self, num_updates: int) -> Iterator[ScheduleBlock]:
        """Yields the schedule until `num_updates` updates are made, piece by piece."""
        for worker in self._rule.first():
            self._schedule(self._start_secs * worker / len(self._plans), self._begin, worker)
        while self._rule.version < num_updates:
            now, _, happen, subject = heapq.heappop(self._events)
            happen(now, subject)
            if len(self._ended) >= _BLOCK_STEPS:
                yield self._take_block()
        yield self._take_block()

    def _schedule(self, when: float, happen: Callable[[float, Any], None], subject: Any) -> None:
        # The number makes simultaneous events happen in the order in which they were added, and keeps `heapq` from
        # comparing functions.
        self._num_events += 1
        heapq.heappush(self._events, (when, self._num_events, happen, subject))

    def _begin(self, now: float, worker: int) -> None:
        self._plans[worker] = plan = self._rule.plan(worker)
        self._started[worker] = self._pulled[worker] = now
        if plan.pulls:
            self._pull(now, worker)
        else:
            self._begin_to_compute(now, worker)

    def _pull(self, now: float, worker: int) -> None:
        # The version at the beginning of the transfer: the ps tasks send the parameters of that moment.
        self._versions[worker] = self._rule.version
        if self._pull_link is None:
            self._have_pulled(now + self._transfer_secs, worker)
        else:
            self._transfer(self._pull_link, now, worker, self._have_pulled)

    def _have_pulled(self, when: float, worker: int) -> None:
        # The end of a pull needs no event: it concerns this worker alone, so its computation can be planned at once.
        self._pulled[worker] = when
        if self._plans[worker].pulls_last:
            self._schedule(when, self._push, worker)
        else:
            self._begin_to_compute(when, worker)

    def _begin_to_compute(self, when: float, worker: int) -> None:
        self._computed[worker] = computed = when + self._compute[worker]()
        plan = self._plans[worker]
        if not plan.pushes:
            self._schedule(computed, self._end_locally, worker)
        elif plan.pulls_last:
            self._schedule(computed, self._pull, worker)
        elif self._push_link is None:
            self._schedule(computed + self._transfer_secs, self._arrive, worker)
        else:
            self._schedule(computed, self._push, worker)

    def _push(self, now: float, worker: int) -> None:
        if self._push_link is None:
            self._schedule(now + self._transfer_secs, self._arrive, worker)
        else:
            self._transfer(self._push_link, now, worker, self._have_pushed)

    def _have_pushed(self, when: float, worker: int) -> None:
        self._schedule(when, self._arrive, worker)

    def _transfer(self, link: _Link, now: float, worker: int, then: Callable[[float, int], None]) -> None:
        # Pulls and pushes may pass the same links, so the end of one is found while waiting for the other.
        self._after_transfer[worker] = then
        link.begin(worker, now)
        self._await_link(link)

    def _await_link(self, link: _Link) -> None:
        """Adds an event for the end of the link's next transfer.

        A transfer that begins or ends before that changes the rates of all, and adds an event with the new time. The
        old event finds another `num_changes` and does nothing.
        """
        end = link.next_end()
        if end is not None:
            self._schedule(end, self._look_at_link, (link, link.num_changes))

    def _look_at_link(self, now: float, subject: tuple[_Link, int]) -> None:
        link, num_changes = subject
        if num_changes == link.num_changes:
            worker = link.end(now)
            self._await_link(link)
            if worker is not None:
                # Latency is added after the transfer, because it does not keep the link busy for others.
                self._after_transfer[worker](now + self._latency_secs, worker)

    def _arrive(self, now: float, worker: int) -> None:
        if not self._work_secs:
            self._take_in(now, worker)
            return
        # The ps tasks process one push after the other, so a push waits for all that arrived earlier.
        self._work_done_at = max(now, self._work_done_at) + self._work_secs
        self._schedule(self._work_done_at, self._take_in, worker)

    def _take_in(self, now: float, worker: int) -> None:
        before, version = self._rule.version, self._versions[worker]
        outcome = self._rule.push(worker, version)
        self._record(worker, now, outcome.update, before - version)
        if self._rule.version > before:
            self._update_secs.append(now + outcome.wait_secs)
        for resumed_worker in outcome.resumed:
            self._begin(now + outcome.wait_secs, resumed_worker)

    def _end_locally(self, now: float, worker: int) -> None:
        self._record(worker, now, LOCAL, -1)
        self._begin(now, worker)

    def _record(self, worker: int, now: float, update: int, staleness: int) -> None:
        self._ended.append(
            (
                worker,
                self._local_steps[worker],
                self._versions[worker],
                self._started[worker],
                self._pulled[worker],
                self._computed[worker],
                now,
                update,
                staleness,
            )
        )
        self._local_steps[worker] += 1

    def _take_block(self) -> ScheduleBlock:
        block = ScheduleBlock(as_steps(zip(*self._ended, strict=True)), np.array(self._update_secs))
        self._ended, self._update_secs = [], []
        return block


def _links_of(cluster: ClusterModel) -> tuple[_Link | None, _Link | None]:
    """Returns the links of pulls and of pushes; None where no transfer slows another one down."""
    if not cluster.has_shared_link:
        return None, None
    if cluster.colocated:
        links = HostLinks([cluster.worker_bytes_per_sec] * cluster.num_workers)
        pulls, pushes = (
            ColocatedTransfers(links, cluster.num_ps, cluster.model_bytes, is_push=is_push) for is_push in (False, True)
        )
        return pulls, pushes
    pull, push = (
        SharedLink(cluster.ps_link_bytes_per_sec, cluster.worker_bytes_per_sec, cluster.model_bytes) for _ in range(2)
    )
    return pull, push
