"""Published numbers about the ps tasks' links, and the claims with their measures."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ps_trainer.experiments.harness.claims import (
    BY_SEEDS,
    Limit,
    Measure,
    extension_claim,
    literature_claim,
    simulator_claim,
    theory_claim,
)
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.toolkit.statistics import ratio_by_seed

from .cases import (
    D2L_BARS,
    LARGEST_SHARE,
    MOST_WORKERS,
    Arm,
    LinkCase,
    SimulatedCase,
    beside_usual,
    d2l_ratios,
    pairs,
    timed_cases,
)

_D2L = "Dive into Deep Learning, Parameter Servers"
_BYTEPS = "Jiang et al. 2020 (BytePS)"
_SERGEEV = "Sergeev and Del Balso 2018"
_HOROVOD = "Horovod's documentation"
_SIMONYAN = "Simonyan and Zisserman 2014"

_WITHIN = Limit(low=0.85, high=1.25)
_EXACT = Limit(low=0.99, high=1.01)  # rounds without randomness
_OVER_PREDICTED = "measured over predicted time of a round"

PUBLISHED = (
    *(
        Published(f"160 MB of gradients of 4 GPUs, {bar.what}", bar.published_ms, "ms", Tag.READ, _D2L)
        for bar in D2L_BARS
    ),
    Published("160 MB of gradients of 8 GPUs, around a ring over NVLink, about", 6, "ms", Tag.READ, _D2L),
    Published("BytePS over all-reduce, 256 GPUs, up to", 84, "%", Tag.SUMMARY, _BYTEPS),
    Published("BytePS over a parameter server, 256 GPUs, up to", 245, "%", Tag.SUMMARY, _BYTEPS),
    Published("share of linear speed-up of distributed TensorFlow on 128 GPUs, about", 50, "%", Tag.SUMMARY, _SERGEEV),
    Published("the same of Horovod", 88, "%", Tag.SUMMARY, _SERGEEV),
    Published("the same, Inception V3 and ResNet-101 on 512 GPUs", 90, "%", Tag.READ, _HOROVOD),
    Published("the same, VGG-16 on 512 GPUs", 68, "%", Tag.READ, _HOROVOD),
    Published("VGG-16's largest variable, 102.8 of 138.4 million parameters", 74, "%", Tag.DERIVED, _SIMONYAN),
)


def _over_predicted(cases: Sequence[LinkCase], *arms: Arm) -> list[Measure]:
    return [Measure(case.setting.name, *case.over_predicted) for arm in arms for case in timed_cases(cases, arm)]


def _over_usual(cases: Sequence[LinkCase], field: str) -> list[Measure]:
    """Returns the time of a round with an unusual value of a field over that with the usual one."""
    return [
        Measure(other.setting.name, *ratio_by_seed(other.secs_by_seed, usual.secs_by_seed))
        for other, usual in beside_usual(cases, field)
    ]


def _over_one_worker(cases: Sequence[LinkCase]) -> list[Measure]:
    """Returns the time of a round over that of one worker and one ps task, over n/p, for p up to n."""
    timed = timed_cases(cases, Arm.PS)
    alone = [case for case in timed if (case.setting.n, case.setting.p) == (1, 1)]
    return [
        Measure(one.setting.name, *ratio_by_seed(one.units_by_seed, first.units_by_seed).over(n / p))
        for first in alone
        for one in timed
        for n, p in [(one.setting.n, one.setting.p)]
        if one is not first and p <= n
    ]


# A simulated round has no randomness, except of asynchronous workers, and they have one long run without an interval.
def _simulated(cases: Sequence[SimulatedCase], *arms: Arm) -> list[Measure]:
    chosen = [case for arm in arms for case in cases if case.setting.arm is arm]
    return [Measure(case.setting.name, case.round_secs / case.predicted_secs) for case in chosen]


_NEW = "2026-11-27: new, before its first run; no source has a threshold"
_simulator_claim = functools.partial(simulator_claim, quantity="simulated over predicted time of a round")

OF_SIMULATOR = (
    _simulator_claim(
        key="simulated_ps",
        sentence=f"In the simulator, too, a synchronous round takes 2nM/(pB), up to {MOST_WORKERS} workers",
        limit=_EXACT,
        amended=_NEW,
        measure=lambda cases: _simulated(cases, Arm.PS),
    ),
    _simulator_claim(
        key="simulated_colocated",
        sentence="In the simulator, the turns of a ring, and ps tasks on the workers' hosts, take 2(n − 1)M/(nB)",
        limit=_EXACT,
        amended=_NEW,
        measure=lambda cases: _simulated(cases, Arm.COLOCATED, Arm.RING),
    ),
    _simulator_claim(
        key="simulated_async",
        sentence="In the simulator, asynchronous workers take the time of a closed network (A19)",
        limit=Limit(low=0.95, high=1.05),
        amended=f"{_NEW}; 2026-11-27: ten times the updates, as the first run of 2 workers was 5 % off by noise",
        measure=lambda cases: _simulated(cases, Arm.ASYNC),
    ),
)

CLAIMS = (
    literature_claim(
        key="bytes",
        sentence="The busiest host of n workers and p ps tasks receives O(nM/p), that of a ring 2(n − 1)M/n",
        quantity="measured over predicted bytes that it receives in a round",
        limit=Limit(low=0.9, high=1.1),
        amended="2026-11-27: the interval of the mean decides, by Student's t, as single values decided before",
        measure=lambda cases: [
            Measure(c.setting.name, *c.bytes_over_predicted)
            for c in cases
            # In the rounds of asynchronous workers, the workers do not step together.
            if c.setting.arm is not Arm.ASYNC and c.setting.is_usual
        ],
    ),
    literature_claim(
        key="scaling",
        sentence="Until p = n, the time of a synchronous round is in proportion to n/p",
        quantity="measured time over that of one worker and one ps task, over n/p",
        limit=_WITHIN,
        amended="2026-11-28: new, before its first run, as the book gives the order and not the time",
        measure=_over_one_worker,
    ),
    theory_claim(
        key="ps_round",
        sentence="A synchronous round takes 2nM/(pB) until p ≥ n, then 2M/B whatever n",
        quantity=_OVER_PREDICTED,
        limit=_WITHIN,
        amended=f"{BY_SEEDS}; 2026-11-28: theory, as the book gives the order n/p and not the time",
        measure=lambda cases: _over_predicted(cases, Arm.PS),
    ),
    literature_claim(
        key="colocated",
        sentence="A ps task on each worker's host, and a ring all-reduce, take 2(n − 1)M/(nB)",
        quantity=_OVER_PREDICTED,
        limit=_WITHIN,
        amended=f"2026-11-27: under TCP's reno, as bbr does not fill both directions of a link at once; {BY_SEEDS};"
        " 2026-11-28: without a single ps task on one worker's host, which is another arrangement",
        measure=lambda cases: _over_predicted(
            [case for case in cases if case.setting.arm is Arm.RING or case.setting.p == case.setting.n],
            Arm.COLOCATED,
            Arm.RING,
        ),
    ),
    literature_claim(
        key="d2l",
        sentence="With one ps task, four workers' gradients take 4 or 5.3 times as long as with a share on each worker",
        quantity="measured ratio over the book's",
        limit=_WITHIN,
        amended=f"2026-11-26: new; no claim was about the plot, whose ratios are 2.6 and 3.6; {BY_SEEDS}",
        measure=lambda cases: [
            Measure(bar.what, *measured.over(published)) for bar, published, measured in d2l_ratios(cases)[:-1]
        ],
    ),
    theory_claim(
        key="equals_ring",
        sentence="A ps task on each worker's host costs what a ring costs",
        quantity="time of a round with them over that of the ring, each in M/B",
        limit=Limit(low=0.8, high=1.25),
        amended=BY_SEEDS,
        measure=lambda cases: [
            Measure(f"n={c.setting.n}", *ratio_by_seed(c.units_by_seed, ring.units_by_seed))
            for c, ring in pairs(cases, Arm.COLOCATED, Arm.RING)
        ],
    ),
    literature_claim(
        key="pipelined",
        sentence="With p = n hosts beside the workers', pushes and pulls that overlap take M/B",
        quantity="measured time of a round over M/B",
        limit=_WITHIN,
        amended=f"2026-11-27: by an arm that overlaps, as the source does, not by a push and then a pull; {BY_SEEDS}",
        measure=lambda cases: _over_predicted(cases, Arm.PIPELINED),
    ),
    theory_claim(
        key="sockets",
        sentence="By plain sockets, too, a push and then a pull take 2M/B, and on the workers' hosts 2(n − 1)M/(nB)",
        quantity=_OVER_PREDICTED,
        limit=_WITHIN,
        amended=f"2026-11-27: new, a control of links and TCP; {BY_SEEDS}",
        measure=lambda cases: _over_predicted(cases, Arm.SOCKETS, Arm.SOCKETS_COLOCATED),
    ),
    extension_claim(
        key="congestion",
        sentence="Under bbr, hosts that send and receive at once take longer than under reno, without gRPC as well",
        quantity="time of a round under bbr over that under reno",
        limit=Limit(low=1.0),
        expected=Limit(low=1.1),
        amended=f"2026-11-27: new, after single runs of each arm had shown it; {BY_SEEDS}",
        measure=lambda cases: _over_usual(cases, "congestion_control"),
    ),
    simulator_claim(
        key="both_directions",
        sentence="Asynchronous workers take the simulator's time, in which pulls and pushes of different workers"
        " coincide",
        quantity="measured over the simulator's time in which each worker makes a step",
        limit=_WITHIN,
        amended=f"{BY_SEEDS}; 2026-11-28: a step besides its transfers as one worker has it, not 20 ms; 2026-11-29:"
        " queues of 50 ms at the ends of links, not 500, in which workers get in step; before a run",
        measure=lambda cases: _over_predicted([case for case in cases if case.setting.n > 1], Arm.ASYNC),
    ),
    extension_claim(
        key="queues",
        sentence="With long queues at the ends of links, steps of asynchronous workers take longer",
        quantity="time in which each worker makes a step, queues of 500 ms over 50 ms",
        limit=Limit(low=1.0),
        expected=Limit(low=1.1),
        amended="2026-11-29: new, before its first run",
        measure=lambda cases: _over_usual(cases, "queue_secs"),
    ),
    theory_claim(
        key="unsharded",
        sentence=f"With {LARGEST_SHARE:.0%} of the bytes on one ps task, that task decides the time of a round",
        quantity=_OVER_PREDICTED,
        limit=_WITHIN,
        amended=BY_SEEDS,
        measure=lambda cases: _over_predicted(cases, Arm.UNSHARDED),
    ),
    theory_claim(
        key="partitioned",
        sentence=f"Cut into parts, a model with a variable of {LARGEST_SHARE:.0%} of the bytes takes 2M/B",
        quantity="measured time of a round over 2M/B",
        limit=_WITHIN,
        amended=BY_SEEDS,
        measure=lambda cases: _over_predicted(cases, Arm.PARTITIONED),
    ),
)
