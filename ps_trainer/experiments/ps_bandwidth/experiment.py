"""Experiment: bandwidth of the ps tasks' links, and a ring all-reduce instead of them; its runs."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, shaped_clusters
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedTraining
from ps_trainer.experiments.toolkit.shaped_hosts import CONGESTION_CONTROL
from ps_trainer.experiments.toolkit.socket_rounds import SocketRounds
from ps_trainer.launch.hosts_netns import QUEUE_SECS

from . import claims, plots, tables
from .cases import (
    MOST_WORKERS,
    Arm,
    LinkCase,
    LinkFigures,
    LinkSetting,
    SimulatedFigures,
    cases_of,
    simulated_cases,
    simulated_round_secs,
)
from .texts import TEXTS

_START_SECS = 5.0
_START_SECS_PER_TASK = 0.5

_FULL: dict[str, Any] = {"num_bytes": 8_000_000, "rate": "100mbit"}
_QUICK: dict[str, Any] = {"num_bytes": 6_000_000, "rate": "100mbit"}
_MIN_ROUNDS = 5
_MIN_SECS = 4.0  # counters of bytes are read four times a second
# Asynchronous workers need some time to get out of step, and their step times differ.
_ASYNC_ROUNDS = 8
_ASYNC_UPDATES = 200_000  # of the simulator
_COUNTS = (2, 4, 8, 16, 32, MOST_WORKERS)
_QUICK_COUNTS = (2, 8)
_ARMS = (
    *((Arm.PS, n, p) for n, p in ((1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4), (2, 4))),
    *((Arm.RING, n, 0) for n in (2, 4)),
    *((Arm.COLOCATED, n, p) for n, p in ((2, 2), (4, 4), (4, 1))),
    *((arm, 4, 4) for arm in (Arm.UNSHARDED, Arm.PARTITIONED)),
    *((Arm.ASYNC, n, p) for n, p in ((1, 1), (4, 1), (4, 2))),
    *((arm, n, n) for n in (2, 4) for arm in (Arm.SOCKETS, Arm.PIPELINED, Arm.SOCKETS_COLOCATED)),
)
# Arms whose hosts send and receive at once.
_BOTH_WAYS = tuple(arm for arm in _ARMS if arm[0] in (Arm.RING, Arm.COLOCATED, Arm.SOCKETS_COLOCATED) and arm[2] != 1)
_QUICK_ARMS = ((Arm.PS, 2, 1), (Arm.COLOCATED, 2, 2), (Arm.RING, 2, 0), (Arm.UNSHARDED, 2, 2), (Arm.PIPELINED, 2, 2))
_QUICK_BOTH_WAYS = ((Arm.COLOCATED, 2, 2),)
_OTHER_CONGESTION_CONTROL = "bbr"
_ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


class SimulatedLinks(Part[LinkSetting, SimulatedFigures]):
    """Rounds in the simulator, by arm and by numbers of workers and ps tasks."""

    figures_type = SimulatedFigures
    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_SIMULATOR

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[LinkSetting]]:
        """Plans one run of each setting, as only asynchronous workers have randomness, and a long run."""
        arms = [
            (arm, n, p)
            for n in (_QUICK_COUNTS if quick else _COUNTS)
            for arm, p in ((Arm.PS, 1), (Arm.PS, 2), (Arm.PS, n), (Arm.RING, 0), (Arm.COLOCATED, n), (Arm.ASYNC, 1))
        ]
        settings = [
            LinkSetting(arm=arm, n=n, p=p, rounds=_ASYNC_UPDATES // n if arm is Arm.ASYNC else _MIN_ROUNDS, **_FULL)
            for arm, n, p in dict.fromkeys(arms)
        ]
        return [run for one in settings for run in runs_of_seeds(seeds[:1], _key(one, "L0"), one, 1.0)]

    def execute(self, run: Run[LinkSetting], folder: pathlib.Path) -> Measured[SimulatedFigures]:
        setting = run.settings
        secs = simulated_round_secs(setting, setting.bytes_per_sec, run.seed)
        return Measured(SimulatedFigures(round_secs=secs))

    cases = staticmethod(simulated_cases)
    tables = staticmethod(tables.of_simulator)
    plots = plots.OF_SIMULATOR


class ShapedLinks(Part[LinkSetting, LinkFigures]):
    """Rounds of a model that computes nothing, by arm and by numbers of workers and ps tasks."""

    figures_type = LinkFigures
    selects = {"level": Level.SHAPED}
    claims = claims.CLAIMS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[LinkSetting]]:
        """Returns no runs where shaped hosts are not available."""
        if shaped_clusters.why_not():
            return []
        common, arms, others = (_QUICK, _QUICK_ARMS, _QUICK_BOTH_WAYS) if quick else (_FULL, _ARMS, _BOTH_WAYS)
        usual = [
            _long_enough(LinkSetting(arm=arm, n=n, p=p, rounds=_ASYNC_ROUNDS, **common | _slower_rate(arm, n, p)))
            for arm, n, p in arms
        ]
        settings = [
            *usual,
            *(
                dataclasses.replace(one, congestion_control=name)
                for name in _other_congestion_controls()
                for one in usual
                if (one.arm, one.n, one.p) in others
            ),
            *(dataclasses.replace(one, queue_secs=QUEUE_SECS) for one in usual if one.arm is Arm.ASYNC and one.n > 1),
        ]
        # Seed by seed, so that a change on the machine in the meantime affects all settings alike.
        return [run for seed in (seeds[:1] if quick else seeds) for one in settings for run in _runs([seed], one)]

    def execute(self, run: Run[LinkSetting], folder: pathlib.Path) -> Measured[LinkFigures]:
        if run.settings.arm.is_of_sockets:
            rounds = run.settings.sockets().run()
            return Measured(_figures_of(rounds), (), rounds.window, run.settings.n)
        done = run.settings.cluster(run.seed).train(folder)
        steps = done.training.steps_as_json() if run.seed == 0 else ()
        return Measured(_figures_of(done), steps, done.training.window, run.settings.n)

    cases = staticmethod(cases_of)

    def why_none(self, cases: Sequence[LinkCase]) -> str:
        return (
            real_clusters.WHY_NONE
            if cases
            else f"shaped hosts are not available: {shaped_clusters.why_not() or 'no run was made'}"
        )

    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.tables)
    plots = plots.PLOTS


class PsBandwidth(Experiment):
    """The ps tasks' links as the bottleneck: how many of them it takes, and how a ring all-reduce compares."""

    name = "ps_bandwidth"
    source = (
        "Dive into Deep Learning, chapter Parameter Servers; Jiang et al. 2020 (BytePS), section 4; Sergeev and Del"
        " Balso 2018 (Horovod); Li et al. 2014"
    )
    texts = TEXTS
    published = claims.PUBLISHED
    parts = (ShapedLinks(), SimulatedLinks())


def _slower_rate(arm: Arm, n: int, p: int) -> dict[str, str]:
    """Returns the rate of an arm in which many tasks receive at once; they wait for cores for less of a longer round.

    At 25 mbit/s, four workers with four ps tasks waited for 2 to 4 % of a round. Plain sockets hardly wait, except in
    chunks.
    """
    if arm.is_of_sockets:
        return {"rate": "50mbit"} if (arm, n) == (Arm.PIPELINED, 4) else {}
    if n == p == 4 and arm is not Arm.UNSHARDED:  # with most bytes in one place, few tasks receive at once
        return {"rate": "12mbit"}
    if p == 4 or (arm is Arm.COLOCATED and p > 1):
        return {"rate": "25mbit"}
    return {"rate": "50mbit"} if (arm, n) == (Arm.RING, 4) or (arm is Arm.PS and p == 2) else {}


def _other_congestion_controls() -> tuple[str, ...]:
    """Returns the congestion control to compare with, if this machine has it."""
    allowed = _ALLOWED.read_text().split() if _ALLOWED.exists() else []
    return (_OTHER_CONGESTION_CONTROL,) if _OTHER_CONGESTION_CONTROL in allowed else ()


def _figures_of(done: ShapedTraining | SocketRounds) -> LinkFigures:
    return LinkFigures(
        round_secs=done.round_secs,
        bytes_per_round=done.bytes_per_round,
        num_retransmitted=done.num_retransmitted,
        num_dropped=done.num_dropped,
    )


def _long_enough(setting: LinkSetting) -> LinkSetting:
    if setting.arm is Arm.ASYNC:
        return setting
    return dataclasses.replace(setting, rounds=max(_MIN_ROUNDS, math.ceil(_MIN_SECS / setting.predicted_secs())))


def _runs(seeds: Sequence[int], setting: LinkSetting) -> list[Run[LinkSetting]]:
    secs = (
        _START_SECS + _START_SECS_PER_TASK * (setting.n + max(1, setting.p)) + setting.rounds * setting.predicted_secs()
    )
    return runs_of_seeds(seeds, _key(setting, "L3"), setting, secs, Level.SHAPED)


def _key(setting: LinkSetting, level: str) -> str:
    of_tcp = "" if setting.congestion_control == CONGESTION_CONTROL else f"-{setting.congestion_control}"
    of_queue = "" if setting.queue_secs is None else f"-queue={setting.queue_secs:g}"
    return f"{level}-{setting.arm}-n={setting.n}-p={setting.p}{of_tcp}{of_queue}"
