"""Experiment: what staleness does to training."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab import quadratic, virtual_training
from ps_trainer.experiments.staleness_quality import measures as quality_measures
from ps_trainer.experiments.staleness_quality import plots as quality_plots
from ps_trainer.experiments.staleness_quality.captions import CAPTIONS
from ps_trainer.experiments.staleness_quality.cases import (
    CONSTANT,
    DEPTHS,
    GEOMETRIC,
    KINDS,
    UNIFORM,
    case_table,
    cases_of,
    grid_table,
    quadratic_table,
    select,
    stable_rates,
)
from ps_trainer.simulation import fixed

FIXED_RATE = 0.05
OPTIMIZER_TAU = 16
OPTIMIZER_RATES = {
    "momentum": (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08),
    "adagrad": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    "rmsprop": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032),
    "adam": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032),
}
RAMPS = ((8, 0.2), (16, 0.05), (16, 0.1))
RAMP_UPDATES = 300

_BATCH_SIZE = 32
_NUM_UPDATES = 600
_TAUS = (0, 1, 2, 4, 8, 16, 32)
_RATES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_SECS_PER_UPDATE = 0.002


class StalenessQuality(Experiment):
    """What staleness does to training: a smaller largest learning rate, and more updates to the same accuracy."""

    name = "staleness_quality"
    source = (
        "Chen et al. 2016, section 2; Dai et al. 2019, Toward Understanding the Impact of Staleness; Levin and May 1976"
    )
    scale_down = (
        f"Softmax regression and perceptrons with 1, 2 and 4 hidden layers of 32 units on digits, batch {_BATCH_SIZE},"
        " one stream of batches whose gradients are of parameters some updates old. Updates are counted until the mean"
        f" accuracy of the last {virtual_training.WINDOW_EXAMPLES} training examples is"
        f" {virtual_training.TARGET_ACCURACY:.0%}; after {_NUM_UPDATES} updates a run has failed. The papers' networks"
        " were convolutional and their measure the test error, whose differences are below the noise of 360 digits."
    )
    published = (
        Published(
            what="test error on MNIST without staleness", value=0.36, unit="%", tag=Tag.RECALLED,
            source="Chen et al. 2016, section 2",
        ),
        Published(
            what="with an average staleness of 20", value=0.47, unit="%", tag=Tag.RECALLED, source="Chen et al. 2016"
        ),
        Published(
            what="with an average staleness of 50", value=0.79, unit="%", tag=Tag.RECALLED, source="Chen et al. 2016"
        ),
    )  # fmt: skip
    captions = CAPTIONS
    claims = (
        Claim(
            key="slower",
            sentence="At one learning rate more staleness takes more updates to the same accuracy",
            measures="share of pairs of two staleness values of which the greater takes more updates",
            limit=Limit(low=0.75),
            expected=Limit(low=0.9),
        ),
        Claim(
            key="exact",
            sentence="On a quadratic with constant staleness the largest stable rate is 2 sin(π / (2 (2τ + 1)))",
            measures="measured over exact rate",
            limit=Limit(low=0.98, high=1.02),
        ),
        Claim(
            key="boundary",
            sentence="On a quadratic the largest stable rate falls about as 1 / (1 + τ), τ constant or uniform on 0…2τ",
            measures="largest over smallest product of rate and 1 + τ, of all τ",
            limit=Limit(high=4),
            expected=Limit(high=2),
        ),
        Claim(
            key="boundary_geometric",
            sentence="The same with geometric staleness",
            measures="largest over smallest product of rate and 1 + τ, of all τ",
            limit=Limit(high=4),
            expected=Limit(high=2),
        ),
        Claim(
            key="depth",
            sentence="Deeper models suffer more",
            measures="slowdown with 4 hidden layers over that of softmax regression",
            limit=Limit(low=1.0),
            expected=Limit(low=1.2),
        ),
        Claim(
            key="ramp",
            sentence="Staleness that grows from 0 lets runs train that otherwise fail",
            measures="median training accuracy at the end, with ramp, where it is too low without",
            limit=Limit(low=virtual_training.TARGET_ACCURACY),
        ),
        Claim(
            key="adagrad",
            sentence="Adagrad tolerates more staleness than momentum and Adam, each at its best learning rate",
            measures="the other's slowdown over Adagrad's",
            limit=Limit(low=1.0),
        ),
    )
    num_seeds = 10
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        taus = (0, 4, 16) if quick else _TAUS
        rates = (FIXED_RATE, 0.4) if quick else _RATES
        runs = [
            _quadratic_run(kind, tau, seed)
            for kind in KINDS
            for tau in taus
            for seed in (seeds[:1] if kind == CONSTANT else seeds)
        ]
        settings = [_settings(CONSTANT, tau, lr=lr) for tau in taus for lr in rates]
        settings += [_settings(kind, tau) for kind in (UNIFORM, GEOMETRIC) for tau in taus if tau]
        depths = (0, 4) if quick else tuple(DEPTHS)
        settings += [_settings(CONSTANT, tau, depth=depth) for depth in depths for tau in ((0, 8) if quick else _TAUS)]
        settings += [
            _settings(CONSTANT, tau, lr=lr, ramp=ramp)
            for tau, lr in (RAMPS[-1:] if quick else RAMPS)
            for ramp in (0, RAMP_UPDATES)
        ]
        settings += [
            _settings(CONSTANT, tau, optimizer=optimizer, lr=lr)
            for optimizer, grid in OPTIMIZER_RATES.items()
            if not quick
            for tau in (0, OPTIMIZER_TAU)
            for lr in grid
        ]
        different = {_key(one, seed): (one, seed) for one in settings for seed in seeds}
        return runs + [_training_run(one, seed) for one, seed in different.values()]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = run.settings
        if settings["model"] == "quadratic":
            rate = quadratic.measured_stable_rate(
                lambda num_updates: _schedule(settings, num_updates, run.seed).steps.staleness, settings["tau"]
            )
            return Measured({"rate": rate})
        from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

        training = virtual_training.digits(
            settings["model"],
            settings["lr"],
            model_options=DEPTHS[settings["depth"]],
            optimizer=settings["optimizer"],
            batch_size=_BATCH_SIZE,
            seed=run.seed,
        )
        target = virtual_training.TARGET_ACCURACY if settings["ramp"] is None else None
        with Replay(training, _schedule(settings, settings["num_updates"], run.seed), "async") as replay:
            course = virtual_training.follow(replay, _BATCH_SIZE, target=target)
        return Measured(course.figures(), course.records() if run.seed == 0 else ())

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        cases, rates = cases_of(results), stable_rates(results)
        grid = select(cases, kind=CONSTANT)
        at_fixed = select(cases, lr=FIXED_RATE)
        by_depth = [one for depth in DEPTHS for one in select(cases, kind=CONSTANT, depth=depth, lr=FIXED_RATE)]
        ramps = [case for case in cases if case.ramp is not None]
        tuned = quality_measures.tuned_pairs(cases, OPTIMIZER_TAU)
        tables = [quadratic_table(rates), grid_table(grid), case_table("By kind of staleness", at_fixed)]
        tables += [case_table("By depth", by_depth), case_table("With and without ramp", ramps)]
        if tuned:
            best_ones = [case for pair in tuned.values() for case in pair]
            tables.append(case_table("Optimizers, each at its best learning rate", best_ones))
        return Analysis(
            tables=tables,
            measured={
                "slower": [
                    Measure(
                        kind,
                        quality_measures.rising_share([one for one in at_fixed if one.kind == kind or one.tau == 0]),
                    )
                    for kind in KINDS
                ],
                "exact": [
                    Measure(f"τ={tau}", rate / quadratic.largest_stable_rate(tau))
                    for tau, rate in rates[CONSTANT].items()
                ],
                "boundary": [Measure(kind, quality_measures.variation(rates[kind])) for kind in (CONSTANT, UNIFORM)],
                "boundary_geometric": [Measure(GEOMETRIC, quality_measures.variation(rates[GEOMETRIC]))],
                "depth": quality_measures.depth_measures(by_depth),
                "ramp": quality_measures.ramp_measures(ramps),
                "adagrad": quality_measures.adagrad_measures(tuned),
            },
            not_testable={
                "adagrad": "the short form has no other optimizers",
                "ramp": "no run failed without a ramp",
            },
            notes=_NOTES,
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return quality_plots.plots(cases_of(results), stable_rates(results), FIXED_RATE)


_NOTES = (
    "Geometric staleness is what asynchronous workers with exponential steps have. On the quadratic its mean alone"
    " would be stable up to the rate 2 (1 + 2τ), which grows with τ: it acts as momentum (A9), not as delay. What ends"
    " stability is the noise of which old version comes up: it feeds in η² w² per update while the momentum damps at"
    " 1 / (1 + τ), so the boundary falls as 1 / √(1 + τ), as the table's last column shows, and not as 1 / (1 + τ).",
    "A ramp does not move the boundary: the loss falls while the staleness at that time is inside and rises again"
    " once it is outside, long after the beginning. A ramp helps where only the beginning is hard, as with the source's"
    " deep networks, whose gradients are largest there; here the whole course is.",
    "In medians a run that does not reach the target counts with the updates after which it gave up, a lower bound. In"
    " slowdowns a model that fails with staleness in most seeds counts as infinitely slow; where both of a pair fail,"
    " nothing is compared. The target is a moving mean over a window: no run reaches it in fewer updates.",
    "At its best rate a stale run may use a much smaller rate: the grid's table has the slowdown both ways.",
)


def _schedule(settings: Mapping[str, Any], num_updates: int, seed: int) -> Any:
    kind, tau, ramp = settings["kind"], settings["tau"], settings.get("ramp") or 0
    seeded = {} if kind == CONSTANT else {"seed": seed}
    return getattr(fixed, kind)(tau, num_updates, ramp_updates=ramp, **seeded)


def _settings(
    kind: str,
    tau: int,
    *,
    lr: float = FIXED_RATE,
    depth: int = 1,
    optimizer: str = "sgd",
    ramp: int | None = None,
) -> dict[str, Any]:
    return {
        "model": "mlp" if depth else "softmax",
        "kind": kind,
        "tau": tau,
        "depth": depth,
        "optimizer": optimizer,
        "lr": lr,
        "ramp": ramp,
        "num_updates": _NUM_UPDATES,
    }


def _quadratic_run(kind: str, tau: int, seed: int) -> Run:
    settings = {"model": "quadratic", "kind": kind, "tau": tau}
    return Run(key=_key(settings, seed), level=Level.VIRTUAL, settings=settings, seed=seed, expected_secs=0.1)


def _training_run(settings: Mapping[str, Any], seed: int) -> Run:
    expected_secs = 0.3 + _SECS_PER_UPDATE * _NUM_UPDATES / 2
    return Run(key=_key(settings, seed), level=Level.VIRTUAL, settings=settings, seed=seed, expected_secs=expected_secs)


def _key(settings: Mapping[str, Any], seed: int) -> str:
    shown = {name: value for name, value in settings.items() if value is not None and name != "num_updates"}
    return "-".join(["L0", *(f"{name}={value}" for name, value in shown.items()), f"seed={seed}"])
