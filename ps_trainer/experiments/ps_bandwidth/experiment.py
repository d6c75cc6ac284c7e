"""Experiment: bandwidth of the ps tasks' links, their number, and parameter servers against a ring all-reduce."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab import real, shaped, theory
from ps_trainer.experiments.ps_bandwidth import plots as bandwidth_plots
from ps_trainer.experiments.ps_bandwidth.captions import CAPTIONS
from ps_trainer.experiments.ps_bandwidth.cases import (
    LARGEST_SHARE,
    Arm,
    Case,
    Setting,
    cases_of,
    pairs,
    setting_of,
    timed,
)
from ps_trainer.experiments.ps_bandwidth.tables import D2L_BARS, case_table, d2l_table

_D2L = "Dive into Deep Learning, Parameter Servers"
_BYTEPS = "Jiang et al. 2020 (BytePS)"

_WITHIN = Limit(low=0.85, high=1.25)
_OVER_PREDICTED = "measured over predicted time of a round"

_START_SECS = 5.0
_START_SECS_PER_TASK = 0.5

_FULL = {"num_bytes": 8_000_000, "rate": "100mbit"}
_QUICK = {"num_bytes": 6_000_000, "rate": "100mbit"}
_LEAST_ROUNDS = 5
_LEAST_SECS = 4.0  # counters of bytes are read four times a second
# Asynchronous workers need a while until they are out of step, and their steps differ.
_ASYNC_ROUNDS = 8
_ARMS = (
    *((Arm.PS, n, p) for n, p in ((1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4), (2, 4))),
    *((Arm.RING, n, 0) for n in (2, 4)),
    *((Arm.COLOCATED, n, p) for n, p in ((2, 2), (4, 4), (4, 1))),
    *((arm, 4, 4) for arm in (Arm.UNSHARDED, Arm.PARTITIONED)),
    *((Arm.ASYNC, 4, p) for p in (1, 2)),
)
_QUICK_ARMS = ((Arm.PS, 2, 1), (Arm.COLOCATED, 2, 2), (Arm.RING, 2, 0), (Arm.UNSHARDED, 2, 2))


class PsBandwidth(Experiment):
    """The ps tasks' links as the bottleneck: how many of them it takes, and how a ring all-reduce compares."""

    name = "ps_bandwidth"
    source = (
        "Dive into Deep Learning, chapter Parameter Servers; Jiang et al. 2020 (BytePS), section 4; Sergeev and Del"
        " Balso 2018 (Horovod); Li et al. 2014"
    )
    scale_down = (
        "Each task, or each worker together with a ps task, is in a network namespace behind a link of 100 mbit/s each"
        " way, with up to 4 workers and 8 hosts, and a model of 8 MB (6 MB in the quick form) that computes nothing."
        " The token buckets let 64 KiB pass without waiting. B is what TCP can carry, 0.956 of the rate. There is no"
        " latency, and no switch that could be the bottleneck."
    )
    published = (
        *(
            Published(what=f"160 MB of gradients of 4 GPUs, {bar.what}", value=bar.published_ms, unit="ms",
                      tag=Tag.READ, source=_D2L)
            for bar in D2L_BARS
        ),
        Published(what="the same around a ring over NVLink", value=6, unit="ms", tag=Tag.READ, source=_D2L),
        Published(what="BytePS over all-reduce, 256 GPUs, up to", value=84, unit="%", tag=Tag.SUMMARY, source=_BYTEPS),
        Published(what="BytePS over a parameter server, 256 GPUs, up to", value=245, unit="%", tag=Tag.SUMMARY,
                  source=_BYTEPS),
        Published(what="share of linear speed-up of distributed TensorFlow on 128 GPUs, about", value=50, unit="%",
                  tag=Tag.SUMMARY, source="Sergeev and Del Balso 2018"),
        Published(what="the same of Horovod", value=88, unit="%", tag=Tag.SUMMARY, source="Sergeev and Del Balso 2018"),
        Published(what="the same, Inception V3 and ResNet-101 on 512 GPUs", value=90, unit="%", tag=Tag.READ,
                  source="Horovod's documentation"),
        Published(what="the same, VGG-16 on 512 GPUs", value=68, unit="%", tag=Tag.READ,
                  source="Horovod's documentation"),
        Published(what="share of VGG-16's parameters in its largest variable", value=74, unit="%", tag=Tag.RECALLED,
                  source="Simonyan and Zisserman 2014"),
    )  # fmt: skip
    num_seeds = 3
    captions = CAPTIONS
    claims = (
        Claim(
            key="bytes",
            sentence="The busiest host of n workers and p ps tasks receives O(nM/p), that of a ring 2(n − 1)M/n",
            measures="measured over predicted bytes that it receives in a round",
            limit=Limit(low=0.9, high=1.1),
        ),
        Claim(
            key="ps_round",
            sentence="A synchronous round takes 2nM/(pB) until p ≥ n, then 2M/B whatever n",
            measures=_OVER_PREDICTED,
            limit=_WITHIN,
        ),
        Claim(
            key="colocated",
            sentence="A ps task on each worker's host, and a ring all-reduce, take 2(n − 1)M/(nB)",
            measures=_OVER_PREDICTED,
            limit=_WITHIN,
        ),
        Claim(
            key="equals_ring",
            sentence="A ps task on each worker's host costs what a ring costs",
            measures="time of a round with them over that of the ring",
            limit=Limit(low=0.8, high=1.25),
        ),
        Claim(
            key="extra_hosts",
            sentence="With p = n hosts beside the workers' a round takes M/B, which is up to twice as fast as the ring",
            measures="measured time of a round over M/B",
            limit=_WITHIN,
        ),
        Claim(
            key="both_directions",
            sentence="Asynchronous workers use both directions of a ps task's link at once, sync ones one at a time",
            measures="measured over the simulator's time in which each worker makes a step",
            limit=_WITHIN,
        ),
        Claim(
            key="unsharded",
            sentence=f"A variable with {LARGEST_SHARE:.0%} of the bytes on one ps task defeats p > 1: max_j bytes_j",
            measures=_OVER_PREDICTED,
            limit=_WITHIN,
        ),
        Claim(
            key="partitioned",
            sentence="Cut into parts, it does not",
            measures="measured time of a round over 2M/B",
            limit=_WITHIN,
        ),
    )

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`; none where there are no shaped hosts."""
        if shaped.why_not():
            return []
        common, arms = (_QUICK, _QUICK_ARMS) if quick else (_FULL, _ARMS)
        settings = [_long_enough(Setting(arm=arm, n=n, p=p, rounds=_ASYNC_ROUNDS, **common)) for arm, n, p in arms]
        # Seed by seed, so that what changes on the machine meanwhile is in all of them.
        return [_run(one, seed) for seed in (seeds[:1] if quick else seeds) for one in settings]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        done = setting_of(run.settings).cluster(run.seed).train(folder)
        figures = {
            "round_secs": done.round_secs,
            "bytes_per_round": {host: list(rates) for host, rates in done.bytes_per_round.items()},
        }
        return Measured(figures, done.training.steps if run.seed == 0 else (), done.training.window)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        if not results:
            why = f"shaped hosts are not available: {shaped.why_not() or 'no run was made'}"
            return Analysis(not_testable={claim.key: why for claim in self.claims})
        cases = cases_of(results)
        equal = [case for case in timed(cases, Arm.COLOCATED) if case.setting.p == case.setting.n]
        extra = [case for case in timed(cases, Arm.PS) if case.setting.p == case.setting.n > 1]
        measured = {
            "bytes": [
                Measure(c.setting.name, c.most_bytes / c.setting.predicted_bytes())
                for c in cases
                if c.setting.arm is not Arm.ASYNC  # its rounds are no steps of all workers
            ],
            "ps_round": _over_predicted(timed(cases, Arm.PS)),
            "colocated": _over_predicted([*timed(cases, Arm.COLOCATED), *timed(cases, Arm.RING)]),
            "equals_ring": [
                Measure(f"n={c.setting.n}", c.secs.median / ring.secs.median)
                for c, ring in pairs(cases, Arm.COLOCATED, Arm.RING)
                if c in equal
            ],
            "extra_hosts": [Measure(c.setting.name, c.secs.median / _byteps(c)) for c in extra],
            "both_directions": _over_predicted(timed(cases, Arm.ASYNC)),
            "unsharded": _over_predicted(timed(cases, Arm.UNSHARDED)),
            "partitioned": _over_predicted(timed(cases, Arm.PARTITIONED)),
        }
        return Analysis(
            tables=[case_table(cases), *d2l_table(cases)],
            measured=measured,
            not_testable={key: real.WHY_NONE for key, values in measured.items() if not values},
            notes=_notes(cases),
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return bandwidth_plots.plots(cases_of(results)) if results else ()


def _long_enough(setting: Setting) -> Setting:
    if setting.arm is Arm.ASYNC:
        return setting
    return setting._replace(rounds=max(_LEAST_ROUNDS, math.ceil(_LEAST_SECS / setting.predicted_secs())))


def _run(setting: Setting, seed: int) -> Run:
    start_secs = _START_SECS + _START_SECS_PER_TASK * (setting.n + max(1, setting.p))
    return Run(
        key=f"L3-{setting.arm}-n={setting.n}-p={setting.p}-seed={seed}",
        level=Level.SHAPED,
        settings={**setting._asdict(), "arm": setting.arm.value},
        seed=seed,
        expected_secs=start_secs + setting.rounds * setting.predicted_secs(),
    )


def _over_predicted(cases: Sequence[Case]) -> list[Measure]:
    return [Measure(case.setting.name, case.over_predicted) for case in cases]


def _byteps(case: Case) -> float:
    one = case.setting
    return theory.byteps_secs(one.num_bytes, one.n, one.n, one.bytes_per_sec)


def _notes(cases: Sequence[Case]) -> list[str]:
    notes = [
        "B is the link's rate times 1,448/1,514: what TCP carries of full frames. Nothing is fitted.",
        "A synchronous step pushes and then pulls: each link is used in one direction at a time, so p = n hosts beside"
        " the workers' take 2M/B, not the M/B that is possible when a part of the model is pulled while another is"
        " still pushed. That is n/(n − 1) times the ring's time, not half of it: the claim of M/B is refuted for"
        " training that waits for all of an update before it pulls, and so would be TensorFlow 1's.",
        "A worker cannot pull before its own push is done, but one worker's pull and another's push can pass a ps"
        " task's link at the same time, in opposite directions. Synchronous workers do not do so, asynchronous ones do"
        " once they are out of step; so they are faster where n > p, and by less than two, as pulls and pushes do not"
        " always coincide. The prediction is the simulator's, as there is no closed form.",
        "Where several workers pull through one link, the round is a few per cent shorter than 2nM/(pB): a link serves"
        " its queue in order, so the first to have all its parameters pushes while others still pull. It is less the"
        " larger the model is against what the queue holds, half a second of data.",
        "The ring, and ps tasks on the workers' hosts, move the bytes that they should, on idle cores, and yet take 1.2"
        " to 1.4 times the predicted time. In these arms every host sends and receives at the same time. It is not the"
        " links: plain TCP both ways at once takes what is predicted (4 MB each way at 100 mbit/s: 0.336 s, predicted"
        " 0.335), and queues of 0.05 s instead of 0.5 s changed 1.28 to 1.26 and 1.40 to 1.35. What is left is the way"
        " in which TensorFlow and gRPC send; the cause was not found.",
        "Nothing here is random but what else happens on the machine: seeds are repetitions, so three are enough.",
    ]
    mixed = [f"{one.secs.median / ring.secs.median:.2f} (n={one.setting.n})" for one, ring in _beside_ring(cases)]
    if mixed:
        notes.insert(2, f"Measured: p = n hosts beside the workers' over the ring, {', '.join(mixed)}.")
    return notes


def _beside_ring(cases: Sequence[Case]) -> list[tuple[Case, Case]]:
    return pairs(cases, Arm.PS, Arm.RING)
