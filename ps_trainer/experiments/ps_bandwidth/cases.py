"""Cases of the experiment on bandwidth: what is run for each, what the closed forms say of it, seeds pooled."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.frame.base import Results
from ps_trainer.experiments.lab import shaped, theory, virtual
from ps_trainer.experiments.lab.shaped import ShapedCluster, payload_bytes_per_sec
from ps_trainer.experiments.lab.statistics import Spread, spread, without_warmup
from ps_trainer.experiments.ps_bandwidth.skewed_sizes import ROW_BYTES, variable_rows

LARGEST_SHARE = 0.75  # of the model in one variable; VGG-16's fc6 has 0.74 of its parameters

# Of a step that computes nothing, beside its transfers; exponential, so that workers do not stay in step.
_IDLE_STEP = "exp:mean_ms=20"
_VIRTUAL_UPDATES = 20_000


class Arm(str, enum.Enum):
    """How gradients become an update, and where the ps tasks are."""

    PS = "ps"  # synchronous, each ps task on a host of its own
    ASYNC = "async"  # the same, asynchronous
    COLOCATED = "colocated"  # synchronous, ps task i on the host of worker i
    RING = "ring"  # all-reduce among the workers
    UNSHARDED = "unsharded"  # as `PS`, each variable whole on one ps task
    PARTITIONED = "partitioned"  # the same variables, each cut into as many parts as there are ps tasks

    __str__ = str.__str__  # its value, under every version of Python


class Setting(NamedTuple):
    """What a run measures.

    Attributes:
        arm: see there.
        n: workers.
        p: ps tasks; 0 for the ring, which has one that takes no part.
        num_bytes: M.
        rate: of each host's link.
        rounds: steps of each worker.
    """

    arm: Arm
    n: int
    p: int
    num_bytes: int
    rate: str
    rounds: int

    @property
    def name(self) -> str:
        """For tables and plots."""
        return f"{self.arm}, n={self.n}" if self.arm is Arm.RING else f"{self.arm}, n={self.n}, p={self.p}"

    @property
    def bytes_per_sec(self) -> float:
        """B, payload."""
        return payload_bytes_per_sec(self.rate)

    @property
    def num_hosts(self) -> int:
        """Hosts that take part."""
        return self.n if self.arm in (Arm.RING, Arm.COLOCATED) else self.n + self.p

    @property
    def unit_secs(self) -> float:
        """M/B: the whole model over one link."""
        return self.num_bytes / self.bytes_per_sec

    @property
    def is_skewed(self) -> bool:
        """Whether the model has one variable that is much larger than the others."""
        return self.arm in (Arm.UNSHARDED, Arm.PARTITIONED)

    def cluster(self, seed: int) -> ShapedCluster:
        """The cluster that makes the run."""
        update = {Arm.ASYNC: "async", Arm.RING: "all_reduce"}.get(self.arm, "sync")
        model = self._skewed_model() if self.is_skewed else shaped.dense_model(self.num_bytes)
        return ShapedCluster(
            num_workers=self.n,
            num_ps=max(1, self.p),
            rate=self.rate,
            shared={f"ps-{i}": f"worker-{i}" for i in range(self.p)} if self.arm is Arm.COLOCATED else {},
            settings={
                **model,
                "update": update,
                "max_steps": self.rounds * (self.n if self.arm is Arm.ASYNC else 1),
                "seed": seed,
            },
        )

    def predicted_secs(self) -> float:
        """The closed form's time per round: A10, A11 or A18; for asynchronous workers the simulator's."""
        m, n, p, b = self.num_bytes, self.n, self.p, self.bytes_per_sec
        if self.arm is Arm.RING:
            return theory.ring_secs(m, n, b)
        if self.arm is Arm.COLOCATED:
            return colocated_secs(m, n, p, b)
        if self.arm is Arm.UNSHARDED:
            return 2 * max(m / b, theory.slowest_ps_secs(self.bytes_by_ps, n, b))
        return simulated_secs(m, n, p, b) if self.arm is Arm.ASYNC else theory.ps_round_secs(m, n, p, b)

    @property
    def bytes_by_ps(self) -> list[int]:
        """Bytes of the skewed model's whole variables on each ps task, placed in turn."""
        rows = variable_rows(self.num_bytes // ROW_BYTES, self.p, LARGEST_SHARE)
        return [count * ROW_BYTES for count in rows]  # a variable for each ps task, in turn

    def predicted_bytes(self) -> float:
        """Bytes that the busiest host receives in a round, without headers."""
        m, n, p = self.num_bytes, self.n, self.p
        if self.arm is Arm.RING:
            payload = 2 * (n - 1) / n * m
        elif self.arm is Arm.COLOCATED:  # what n - 1 others push, and what this worker pulls from p - 1 others
            payload = (n - 1) / p * m + (p - 1) / p * m
        else:
            payload = max(n * (max(self.bytes_by_ps) if self.arm is Arm.UNSHARDED else m / p), m)
        return payload

    def _skewed_model(self) -> dict[str, Any]:
        partitioner = "fixed_size" if self.arm is Arm.PARTITIONED else "none"
        sizes = (f"num_rows={self.num_bytes // ROW_BYTES}", f"num_variables={self.p}", f"largest_share={LARGEST_SHARE}")
        return {
            "model": "ps_trainer.experiments.ps_bandwidth.skewed_model:Skewed",
            "model_option": sizes,
            "layout": "per_variable",
            "layout_option": (f"partitioner={partitioner}",),
        }


@functools.cache
def simulated_secs(num_bytes: int, n: int, p: int, bytes_per_sec: float) -> float:
    """The simulator's time in which each of n asynchronous workers makes a step, long after they began together.

    On a cluster they do not begin together: they join it one after the other.

    Args:
        num_bytes: M.
        n: workers.
        p: ps tasks.
        bytes_per_sec: B.
    """
    run = virtual.run(
        "async",
        num_workers=n,
        compute=[_IDLE_STEP],
        num_updates=_VIRTUAL_UPDATES,
        seed=0,
        num_ps=p,
        model_bytes=num_bytes,
        worker_bytes_per_sec=bytes_per_sec,
        ps_bytes_per_sec=bytes_per_sec,
    )
    warm, _ = without_warmup(run.schedule.update_secs)
    return n * float(warm[-1] - warm[0]) / (len(warm) - 1)


def colocated_secs(num_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """A pull and a push with ps task i < p on worker i's host: 2 · max((n − 1)/p, 1 − [p = n]/n) · M/B.

    With p = n that is the ring's 2(n − 1)M/(nB) (A11). What a worker exchanges with the ps task on its own host
    passes no link; with p < n there are workers without one, which need the whole model.

    Args:
        num_bytes: M.
        n: workers.
        p: ps tasks, at most n.
        bytes_per_sec: B.
    """
    of_worker = (p - 1) / p if p == n else 1.0
    return 2 * max((n - 1) / p, of_worker) * num_bytes / bytes_per_sec


class Case(NamedTuple):
    """A setting and what its runs have measured.

    Attributes:
        setting: what.
        secs: of a round, over the seeds; None where every run was CPU-contended.
        most_bytes: that the busiest host received in a round; of all runs, as bytes need no quiet cores.
        cpu_share: of the machine, median; None = unknown.
        num_seeds: runs that `secs` is of.
    """

    setting: Setting
    secs: Spread | None
    most_bytes: float
    cpu_share: float | None
    num_seeds: int

    @property
    def over_predicted(self) -> float:
        """Measured over predicted time."""
        return self.secs.median / self.setting.predicted_secs()

    @property
    def in_units(self) -> float:
        """Median time in M/B."""
        return self.secs.median / self.setting.unit_secs


def setting_of(settings: Mapping[str, Any]) -> Setting:
    """Of a run's settings."""
    return Setting(**{**settings, "arm": Arm(settings["arm"])})


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs."""
    cases = []
    for values, group in results.by(*Setting._fields).items():
        quiet = group.uncontended()
        shares = [result.cpu.share for result in group if result.cpu is not None]
        busiest = [max(received for received, _ in hosts.values()) for hosts in group.figures("bytes_per_round")]
        cases.append(
            Case(
                setting=setting_of(dict(zip(Setting._fields, values, strict=True))),
                secs=spread(quiet.figures("round_secs")) if quiet else None,
                most_bytes=spread(busiest).median,
                cpu_share=spread(shares).median if shares else None,
                num_seeds=len(quiet),
            )
        )
    return cases


def timed(cases: Sequence[Case], *arms: Arm) -> list[Case]:
    """Those of some arms whose times count."""
    return [case for case in cases if case.setting.arm in arms and case.secs is not None]


def pairs(cases: Sequence[Case], arm: Arm, other: Arm) -> list[tuple[Case, Case]]:
    """Cases of two arms with the same number of workers and with p = n, where the arm has ps tasks."""
    found = []
    for one in timed(cases, arm):
        for two in timed(cases, other):
            alike = one.setting.n == two.setting.n and all(c.setting.p in (0, c.setting.n) for c in (one, two))
            found += [(one, two)] if alike else []
    return found
