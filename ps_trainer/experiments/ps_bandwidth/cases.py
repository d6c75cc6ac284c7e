"""Cases of the experiment on bandwidth: settings, predictions by closed forms, and measurements with pooled seeds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case, cases_by
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import shaped_clusters, theory, virtual_run
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster, payload_bytes_per_sec
from ps_trainer.experiments.toolkit.shaped_hosts import CONGESTION_CONTROL, SHORT_QUEUE_SECS
from ps_trainer.experiments.toolkit.sized_settings import ROW_BYTES, variable_rows
from ps_trainer.experiments.toolkit.socket_rounds import SocketCluster
from ps_trainer.experiments.toolkit.statistics import (
    IntervalEstimate,
    Spread,
    mean_estimate,
    mean_ratio,
    ratio_by_seed,
    spread,
    without_warmup,
)
from ps_trainer.launch.hosts_netns import QUEUE_SECS
from ps_trainer.simulation.host_links import HostLinks

NUM_CHUNKS = 16  # of a ps task's share, where pushes and pulls overlap
MOST_WORKERS = 64  # in the simulator
LARGEST_SHARE = 0.75  # share of the model in one variable; VGG-16's fc6 has 0.74 of its parameters

# Time of an asynchronous step besides its transfers, without computation, where none was measured.
IDLE_SECS = 0.02
LEAST_IDLE_SECS = 1e-3  # the simulator needs a pause
_NO_STEP = "det:mean_ms=0.001,jitter=0"
_VIRTUAL_UPDATES = 20_000


class Arm(Label):
    """The update rule, and the place of the ps tasks."""

    PS = "ps"  # synchronous, each ps task on a separate host
    ASYNC = "async"  # the same, asynchronous
    COLOCATED = "colocated"  # synchronous, ps task i on the host of worker i
    RING = "ring"  # all-reduce among the workers
    UNSHARDED = "unsharded"  # as `PS`, each variable whole on one ps task
    PARTITIONED = "partitioned"  # the same variables, each cut into as many parts as there are ps tasks
    SOCKETS = "sockets"  # as `PS`, by plain sockets
    PIPELINED = "pipelined"  # as `SOCKETS`, in chunks: pushes and pulls overlap
    SOCKETS_COLOCATED = "sockets_colocated"  # as `COLOCATED`, by plain sockets

    @property
    def words(self) -> str:
        """Name in plots, tables and claims."""
        return _WORDS.get(self, self.value)

    @property
    def is_of_sockets(self) -> bool:
        """Whether plain sockets move the gradients, in place of a cluster of ps_trainer."""
        return self in (Arm.SOCKETS, Arm.PIPELINED, Arm.SOCKETS_COLOCATED)

    @property
    def is_colocated(self) -> bool:
        """Whether ps task i is on the host of worker i."""
        return self in (Arm.COLOCATED, Arm.SOCKETS_COLOCATED)


_WORDS = {
    Arm.UNSHARDED: "largest variable whole",
    Arm.PARTITIONED: "largest variable in parts",
    Arm.PIPELINED: "sockets, overlapped",
    Arm.SOCKETS_COLOCATED: "sockets, colocated",
}


@dataclasses.dataclass(frozen=True)
class LinkSetting(Record):
    """The cluster and the model of a run."""

    arm: Arm
    n: int  # number of workers
    p: int  # number of ps tasks; 0 for the ring, whose only ps task takes no part
    num_bytes: int  # M, bytes of the model
    rate: str  # rate of each host's link
    rounds: int  # steps of each worker
    congestion_control: str = CONGESTION_CONTROL  # of TCP
    queue_secs: float | None = None  # longest queue at each end of a link; None = the arm's usual one

    @property
    def name(self) -> str:
        p = "" if self.arm is Arm.RING else f", p={self.p}"
        tcp = "" if self.congestion_control == CONGESTION_CONTROL else f", {self.congestion_control}"
        queue = "" if self.queue_secs is None else f", queues of {1000 * self.queue_secs:g} ms"
        return f"{self.arm.words}, n={self.n}{p}{tcp}{queue}"

    @property
    def is_usual(self) -> bool:
        """Whether it has the congestion control and the queues of all claims about times, and no other to compare."""
        return self.congestion_control == CONGESTION_CONTROL and self.queue_secs is None

    @property
    def longest_queue_secs(self) -> float:
        """Longest queue at each end of a link; short where workers do not wait for each other, or they get in step."""
        return self.queue_secs or (SHORT_QUEUE_SECS if self.arm is Arm.ASYNC else QUEUE_SECS)

    @property
    def bytes_per_sec(self) -> float:
        """B, payload."""
        return payload_bytes_per_sec(self.rate)

    @property
    def num_hosts(self) -> int:
        """Number of hosts that take part."""
        return self.n if self.arm is Arm.RING or self.arm.is_colocated else self.n + self.p

    @property
    def unit_secs(self) -> float:
        """M/B: the whole model over one link."""
        return self.num_bytes / self.bytes_per_sec

    @property
    def is_skewed(self) -> bool:
        """Whether the model has one variable that is much larger than the others."""
        return self.arm in (Arm.UNSHARDED, Arm.PARTITIONED)

    def sockets(self) -> SocketCluster:
        """Returns the tasks that make the run by plain sockets."""
        return SocketCluster(
            num_workers=self.n,
            num_ps=self.p,
            num_bytes=self.num_bytes,
            rate=self.rate,
            num_rounds=self.rounds,
            num_chunks=NUM_CHUNKS if self.arm is Arm.PIPELINED else 1,
            shared=self._shared,
            congestion_control=self.congestion_control,
        )

    def cluster(self, seed: int) -> ShapedCluster:
        """Returns the cluster that makes the run."""
        update = {Arm.ASYNC: "async", Arm.RING: "all_reduce"}.get(self.arm, "sync")
        model = self._skewed_model() if self.is_skewed else shaped_clusters.dense_model(self.num_bytes)
        return ShapedCluster(
            num_workers=self.n,
            num_ps=max(1, self.p),
            rate=self.rate,
            shared=self._shared,
            congestion_control=self.congestion_control,
            queue_secs=self.longest_queue_secs,
            settings={
                **model,
                "update": update,
                "max_steps": self.rounds * (self.n if self.arm is Arm.ASYNC else 1),
                "seed": seed,
            },
        )

    def predicted_secs(self, idle_secs: float = IDLE_SECS) -> float:
        """Returns the closed form's time per round; for asynchronous workers the simulator's, with `idle_secs`."""
        m, n, p, b = self.num_bytes, self.n, self.p, self.bytes_per_sec
        if self.arm is Arm.RING:
            return theory.ring_secs(m, n, b)
        if self.arm.is_colocated:
            return colocated_secs(m, n, p, b)
        if self.arm is Arm.PIPELINED:
            return theory.byteps_secs(m, n, p, b)
        if self.arm is Arm.UNSHARDED:
            return 2 * max(m / b, theory.slowest_ps_secs(self.bytes_by_ps, n, b))
        return simulated_secs(m, n, p, b, idle_secs) if self.arm is Arm.ASYNC else theory.ps_round_secs(m, n, p, b)

    @property
    def bytes_by_ps(self) -> list[int]:
        """Bytes of the skewed model's whole variables on each ps task, placed in turn."""
        rows = variable_rows(self.num_bytes // ROW_BYTES, self.p, LARGEST_SHARE)
        return [count * ROW_BYTES for count in rows]  # a variable for each ps task, in turn

    def predicted_bytes(self) -> float:
        """Returns the bytes that the busiest host receives in a round, without headers."""
        m, n, p = self.num_bytes, self.n, self.p
        if self.arm is Arm.RING:
            payload = 2 * (n - 1) / n * m
        elif self.arm.is_colocated:  # pushes of n - 1 other workers, and pulls from p - 1 other ps tasks
            payload = (n - 1) / p * m + (p - 1) / p * m
        else:
            payload = max(n * (max(self.bytes_by_ps) if self.arm is Arm.UNSHARDED else m / p), m)
        return payload

    @property
    def _shared(self) -> dict[str, str]:
        return {f"ps-{i}": f"worker-{i}" for i in range(self.p)} if self.arm.is_colocated else {}

    def _skewed_model(self) -> dict[str, Any]:
        partitioner = "fixed_size" if self.arm is Arm.PARTITIONED else "none"
        sizes = (f"num_rows={self.num_bytes // ROW_BYTES}", f"num_variables={self.p}", f"largest_share={LARGEST_SHARE}")
        return {
            "model": "ps_trainer.experiments.toolkit.skewed_model:Skewed",
            "model_option": sizes,
            "layout": "per_variable",
            "layout_option": (f"partitioner={partitioner}",),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkFigures(Record):
    """Figures of a run after warm-up."""

    round_secs: float  # time in which every worker makes a step
    bytes_per_round: Mapping[str, Sequence[float]]  # host -> bytes that it receives and sends, headers included
    num_retransmitted: int = 0  # TCP segments that all hosts have sent again, in the whole run
    num_dropped: int | None = None  # packets to all hosts that found a queue full, in the whole run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedFigures(Record):
    """Figures of a run of the simulator."""

    round_secs: float  # time in which every worker makes a step


class D2lBar(NamedTuple):
    """A way to add up gradients in the figure of "Dive into Deep Learning", and ours that is like it."""

    what: str  # description
    published_ms: float  # published time for 160 MB and 4 GPUs
    arm: Arm  # our arm, with 4 workers
    p: int  # number of ps tasks of that arm


# The fourth way there, a ring over a faster kind of link, has no counterpart where all links are alike.
D2L_WORKERS = 4
D2L_BARS = (
    D2lBar("all on one worker", 60.0, Arm.COLOCATED, 1),
    D2lBar("all on one host of its own", 80.0, Arm.PS, 1),
    D2lBar("a share on each worker", 15.0, Arm.COLOCATED, D2L_WORKERS),
)


@functools.cache
def simulated_secs(num_bytes: int, n: int, p: int, bytes_per_sec: float, idle_secs: float = IDLE_SECS) -> float:
    """Returns the simulator's time in which each of n asynchronous workers makes a step, long after their start.

    On a cluster the workers do not begin together: they join one after the other. Of the step, `idle_secs` on average
    are no transfers. They are exponential, so that workers do not stay in step.
    """
    setting = LinkSetting(Arm.ASYNC, n, p, num_bytes, "", _VIRTUAL_UPDATES // n)
    return simulated_round_secs(setting, bytes_per_sec, seed=0, idle_secs=idle_secs)


def simulated_round_secs(setting: LinkSetting, bytes_per_sec: float, seed: int, idle_secs: float = IDLE_SECS) -> float:
    """Returns the simulator's time in which each worker makes a step, with links of this rate, after warm-up.

    Synchronous workers compute nothing, and asynchronous ones pause for `idle_secs` on average. For a ring it sends the
    parts from host to host, turn by turn, in place of the formula that the simulator has for it.
    """
    n, num_bytes = setting.n, setting.num_bytes
    if setting.arm is Arm.RING:
        return _ring_turns_secs(n, num_bytes, bytes_per_sec)
    is_async = setting.arm is Arm.ASYNC
    schedule = virtual_run.run(
        "async" if is_async else "sync",
        num_workers=n,
        compute=[f"exp:mean_ms={1000 * idle_secs:g}" if is_async else _NO_STEP],
        num_updates=setting.rounds * (n if is_async else 1),
        seed=seed,
        num_ps=setting.p,
        model_bytes=num_bytes,
        worker_bytes_per_sec=bytes_per_sec,
        **({"colocated": True} if setting.arm.is_colocated else {"ps_bytes_per_sec": bytes_per_sec}),
    ).schedule
    warm, _ = without_warmup(schedule.update_secs)
    return (n if is_async else 1) * float(warm[-1] - warm[0]) / (len(warm) - 1)


def _ring_turns_secs(n: int, num_bytes: int, bytes_per_sec: float) -> float:
    links, hosts, now = HostLinks([bytes_per_sec] * n), np.arange(n), 0.0
    for _ in range(2 * (n - 1)):  # each host sends a part to the next, first sums of gradients and then the means
        links.begin(0, now, hosts, (hosts + 1) % n, num_bytes / n)
        while (end := links.next_end()) is not None:
            now = end
            links.end(now)
    return now


def colocated_secs(num_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """Returns a pull and a push with ps task i < p ≤ n on worker i's host: 2 · max((n − 1)/p, 1 − [p = n]/n) · M/B.

    With p = n this is the ring's 2(n − 1)M/(nB), because transfers within a host pass no link.
    With p < n some workers have no ps task on their host and need the whole model.
    """
    of_worker = (p - 1) / p if p == n else 1.0
    return 2 * max((n - 1) / p, of_worker) * num_bytes / bytes_per_sec


@dataclasses.dataclass(frozen=True)
class LinkCase(Case):
    """A setting and the measurements of its runs."""

    # seconds of one asynchronous worker's step besides its transfers, mean over the seeds; None where none was measured
    idle: IntervalEstimate | None = None

    @functools.cached_property
    def setting(self) -> LinkSetting:
        """Setting that the runs share."""
        return self.runs[0].run.settings

    @functools.cached_property
    def secs(self) -> Spread | None:
        """Time of a round over the seeds; None where no run is comparable."""
        quiet = self.runs.uncontended()
        return spread(quiet.figures("round_secs")) if quiet else None

    @property
    def timed_secs(self) -> Spread:
        """`secs` of a case that has a time; every case from `timed_cases` has one."""
        if self.secs is None:
            raise ValueError(f"{self.setting.name}: no run is comparable")
        return self.secs

    @property
    def most_bytes(self) -> float:
        """Bytes that the busiest host received in a round; all runs count, because CPU load does not change bytes."""
        return spread(self._received).median

    @property
    def secs_by_seed(self) -> dict[int, float]:
        """Time of a round by seed, of the runs whose times count."""
        return LinkCase(self.runs.uncontended()).by_seed("round_secs")

    @property
    def units_by_seed(self) -> dict[int, float]:
        """Time of a round in M/B by seed, of the runs whose times count: links of two arms may have other rates."""
        return {seed: secs / self.setting.unit_secs for seed, secs in self.secs_by_seed.items()}

    @property
    def bytes_over_predicted(self) -> IntervalEstimate:
        """Bytes that the busiest host received in a round over the predicted ones, mean over all runs."""
        return mean_estimate(self._received).over(self.setting.predicted_bytes())

    @property
    def over_predicted(self) -> IntervalEstimate:
        """Time of a round over the predicted one, geometric mean of the runs whose times count; at least one does."""
        return mean_ratio([*self.secs_by_seed.values()], self.predicted_secs)

    @property
    def predicted_secs(self) -> float:
        """Predicted time of a round."""
        return self.setting.predicted_secs(max(self.idle.value, LEAST_IDLE_SECS) if self.idle else IDLE_SECS)

    @property
    def in_units(self) -> float:
        """Median time in M/B."""
        return self.timed_secs.median / self.setting.unit_secs

    @property
    def _received(self) -> list[float]:
        by_run = self.runs.figures("bytes_per_round")
        return [max(received for received, _ in hosts.values()) for hosts in by_run]


class SimulatedCase(Case):
    """A setting in the simulator, with one run."""

    @property
    def setting(self) -> LinkSetting:
        """Setting of the run."""
        return self.runs[0].run.settings

    @property
    def round_secs(self) -> float:
        """Time in which each worker makes a step."""
        return self.runs.median("round_secs")

    @property
    def in_units(self) -> float:
        """Time of a round in M/B."""
        return self.round_secs / self.setting.unit_secs

    @property
    def predicted_secs(self) -> float:
        """The closed form's time of a round, for asynchronous workers too."""
        setting = self.setting
        if setting.arm is Arm.ASYNC:
            sizes = (setting.num_bytes, setting.n, setting.p, setting.bytes_per_sec)
            return theory.async_round_secs(IDLE_SECS, *sizes)
        return setting.predicted_secs()


_SETTINGS = [field.name for field in dataclasses.fields(LinkSetting)]


def cases_of(results: Results) -> list[LinkCase]:
    """Returns the cases, in the order of the runs; one asynchronous worker says how long a step idles."""
    cases = cases_by(LinkCase, results, *_SETTINGS)
    alone = [case for case in timed_cases(cases, Arm.ASYNC) if case.setting.n == 1]
    if not alone:
        return cases
    transfer_secs = 2 * alone[0].setting.unit_secs
    idle = mean_estimate([secs - transfer_secs for secs in alone[0].secs_by_seed.values()])
    return [dataclasses.replace(case, idle=idle) for case in cases]


def simulated_cases(results: Results) -> list[SimulatedCase]:
    """Returns the cases of the simulator, in the order of the runs."""
    return cases_by(SimulatedCase, results, *_SETTINGS)


def timed_cases(cases: Sequence[LinkCase], *arms: Arm) -> list[LinkCase]:
    """Returns the cases of some arms whose times count, with the usual congestion control and queues."""
    return [case for case in cases if case.setting.arm in arms and case.setting.is_usual and case.secs is not None]


def beside_usual(cases: Sequence[LinkCase], field: str) -> list[tuple[LinkCase, LinkCase]]:
    """Returns each case with an unusual value of a field, and the same case with the usual one; both have a time."""
    timed = {case.setting: case for case in cases if case.secs is not None}
    usual = getattr(LinkSetting, field)  # the field's default
    others = {setting: dataclasses.replace(setting, **{field: usual}) for setting in timed}
    return [(timed[one], timed[other]) for one, other in others.items() if other != one and other in timed]


def pairs(cases: Sequence[LinkCase], arm: Arm, other: Arm) -> list[tuple[LinkCase, LinkCase]]:
    """Returns the cases of two arms with the same number of workers and with p = n, where the arm has ps tasks."""
    found = []
    for one in timed_cases(cases, arm):
        for two in timed_cases(cases, other):
            alike = one.setting.n == two.setting.n and all(c.setting.p in (0, c.setting.n) for c in (one, two))
            found += [(one, two)] if alike else []
    return found


def d2l_ratios(cases: Sequence[LinkCase]) -> list[tuple[D2lBar, float, IntervalEstimate]]:
    """Returns each bar, its published and measured time over the last bar's times; empty unless all were measured."""
    by_key = {(c.setting.arm, c.setting.n, c.setting.p): c for c in timed_cases(cases, *Arm)}
    d2l_cases = [case for bar in D2L_BARS if (case := by_key.get((bar.arm, D2L_WORKERS, bar.p))) is not None]
    if len(d2l_cases) < len(D2L_BARS):
        return []
    last_bar, last = D2L_BARS[-1], d2l_cases[-1].units_by_seed
    return [
        (bar, bar.published_ms / last_bar.published_ms, ratio_by_seed(case.units_by_seed, last))
        for bar, case in zip(D2L_BARS, d2l_cases, strict=True)
    ]
