"""Experiment: learning rates that follow the staleness."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab import real, virtual, virtual_training
from ps_trainer.experiments.lab.step_times import with_mean
from ps_trainer.experiments.staleness_aware_rate import plots as aware_plots
from ps_trainer.experiments.staleness_aware_rate import real as aware_real
from ps_trainer.experiments.staleness_aware_rate.captions import CAPTIONS
from ps_trainer.experiments.staleness_aware_rate.cases import (
    BY_RULE,
    BY_SPLITS,
    BY_STALENESS,
    DISPERSED,
    EVEN,
    FULL,
    SHAPES,
    SINGLE,
    SOFTSYNC,
    SYNC,
    Case,
    cases_of,
    excess,
    largest_stable_rate,
    table_of,
    theory_table,
)

NEAR_RATE = 0.64  # α₀ within a factor 2 of the largest stable synchronous rate
SMALL_RATE = 0.02  # α₀ that staleness 1 can stand with this momentum: below (1 − μ) / (2 (1 + μ)) of that rate
SYNC_RATES = (SMALL_RATE, 0.16, 0.32, NEAR_RATE, 1.28, 2.56)
MOMENTUM = 0.9

_MEAN_MS = 100.0
_NUM_LEARNERS, _BATCH_SIZE = 30, 4
_NUM_QUICK_LEARNERS, _QUICK_BATCH_SIZE = 8, 15
# A small rate needs more epochs to come to an end: (full form, short form).
_NUM_EPOCHS, _NUM_SMALL_RATE_EPOCHS = (12, 6), (24, 16)
_NUM_EXAMPLES = 1437
_MODEL_OPTIONS = ("hidden=32",)
_SECS_PER_STEP = 0.002


def _fails(key: str, sentence: str) -> Claim:
    measures = "test error above that of synchronous updates, in standard errors"
    return Claim(key=key, sentence=sentence, measures=measures, limit=Limit(low=2.0))


def _ends_alike(key: str, sentence: str) -> Claim:
    measures = "difference in test error from what it is compared with, in standard errors"
    return Claim(key=key, sentence=sentence, measures=measures, limit=Limit(low=-2.0, high=2.0))


class StalenessAwareRate(Experiment):
    """Learning rates that follow the staleness: α₀ fails where α₀/τ trains as synchronous updates do."""

    name = "staleness_aware_rate"
    source = "Zhang, Gupta, Lian and Liu 2016, Staleness-aware Async-SGD, section 4, Figs 3 and 4; Gupta et al. 2016"
    scale_down = (
        f"A perceptron with 32 hidden units on digits, momentum 0.9, λ = {_NUM_LEARNERS} learners with batch"
        f" {_BATCH_SIZE} each, {_NUM_EPOCHS[0]} epochs, {_NUM_SMALL_RATE_EPOCHS[0]} with the small α₀, no decay; in"
        f" the short form λ = {_NUM_QUICK_LEARNERS}, batch {_QUICK_BATCH_SIZE} and fewer epochs. λ and batches are the"
        " paper's; its network was convolutional, on CIFAR-10, for 140 epochs. Each gradient is divided by its own"
        " staleness before the mean over the c gradients of an update and before the momentum. The real clusters are"
        f" λ = {aware_real.NUM_LEARNERS} processes on one machine that sleep between pull and push, and divide by τ as"
        " the rule `staleness_aware` does."
    )
    published = (
        Published(
            what="test error of 30-softsync with α₀ on CIFAR-10", value=90, unit="%", tag=Tag.READ,
            source="Zhang et al. 2016, section 4",
        ),
        Published(
            what="test error of 30-softsync with α₀/τ, and of synchronous updates, about", value=18, unit="%",
            tag=Tag.READ, source="Zhang et al. 2016, section 4",
        ),
    )  # fmt: skip
    captions = CAPTIONS
    claims = (
        _fails("fails", "With α₀ at the limit of synchronous updates λ-softsync fails"),
        _ends_alike("aware", "With α₀ at that limit and α₀/τ every n-softsync ends where synchronous updates end"),
        _fails("fails_small", "With an α₀ that staleness 1 can stand λ-softsync fails, too"),
        _ends_alike("aware_small", "With such an α₀ and α₀/τ every n-softsync ends where synchronous updates end"),
        _ends_alike("global", "With such an α₀ and nearly even steps α₀/n for all gradients does what α₀/τ does"),
        _ends_alike("batch", "λ learners with batch μ end where one learner with batch λμ does"),
        Claim(
            key="real_staleness",
            sentence="A real cluster's mean staleness is that of virtual time",
            measures="|measured − virtual mean staleness| / n",
            limit=Limit(high=0.05),
        ),
        Claim(
            key="real_arms",
            sentence="On a real cluster the arms fail that fail in virtual time, and no others",
            measures="whether one of the two fails and the other does not, 0 or 1",
            limit=Limit(high=0),
        ),
        Claim(
            key="real_errors",
            sentence="The others end where they end in virtual time",
            measures="difference in test error, one seed of each arm",
            limit=Limit(high=0.05),
        ),
    )
    num_seeds = 10
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        learners = _NUM_QUICK_LEARNERS if quick else _NUM_LEARNERS
        base = {
            "learners": learners,
            "batch_size": _QUICK_BATCH_SIZE if quick else _BATCH_SIZE,
            "lr": SMALL_RATE,
            "shape": EVEN,
            "splits": None,
            "arm": FULL,
        }
        rates = [rate for rate in SYNC_RATES if not quick or rate in (SMALL_RATE, NEAR_RATE) or rate > 2 * NEAR_RATE]
        settings = [{**base, "mode": SYNC, "lr": rate} for rate in rates]
        settings += [{**base, "mode": SINGLE, "lr": rate} for rate in (SMALL_RATE, NEAR_RATE)]
        arms = (FULL, BY_SPLITS, BY_STALENESS)
        soft = [(NEAR_RATE, n, arm) for n in (1, learners) for arm in (FULL, BY_STALENESS) if n > 1 or arm != FULL]
        middle = () if quick else (-(-learners // 4), learners // 2)
        soft += [(SMALL_RATE, 1, BY_STALENESS), *((SMALL_RATE, n, arm) for n in (*middle, learners) for arm in arms)]
        if not quick:
            soft += [(SMALL_RATE, 1, FULL), (SMALL_RATE, learners, BY_RULE)]
        settings += [{**base, "mode": SOFTSYNC, "lr": rate, "splits": n, "arm": arm} for rate, n, arm in soft]
        if not quick:
            dispersed = {**base, "mode": SOFTSYNC, "splits": learners, "shape": DISPERSED}
            settings += [{**dispersed, "arm": arm} for arm in arms[1:]]
        for one in settings:
            one["epochs"] = (_NUM_SMALL_RATE_EPOCHS if one["lr"] == SMALL_RATE else _NUM_EPOCHS)[quick]
        virtual_runs = [_run(one, seed) for one in settings for seed in seeds]
        return [*virtual_runs, *aware_real.runs(quick, SMALL_RATE, MOMENTUM, seeds)]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        if run.level is real.LEVEL:
            return aware_real.carry_out(run, folder)
        from ps_trainer.experiments.staleness_aware_rate.per_gradient import (
            PerGradient,  # these bring TensorFlow, which lists do not need
        )
        from ps_trainer.simulation.replay.run import Replay

        settings = run.settings
        learners, batch_size, splits = settings["learners"], settings["batch_size"], settings["splits"]
        update, options = "sync", []
        if settings["mode"] == SINGLE:
            learners, batch_size = 1, learners * batch_size
        elif settings["mode"] == SOFTSYNC:
            update, options = (
                ("staleness_aware", []) if settings["arm"] == BY_RULE else ("softsync", [f"splits={splits}"])
            )
        per_update = -(-learners // splits) if splits else learners
        schedule = virtual.run(
            update,
            options,
            num_workers=learners,
            compute=[with_mean(SHAPES[settings["shape"]], _MEAN_MS)],
            num_updates=settings["epochs"] * _NUM_EXAMPLES // (batch_size * per_update),
            seed=run.seed,
        ).schedule
        training = virtual_training.digits(
            "mlp",
            settings["lr"] / (splits if settings["arm"] == BY_SPLITS else 1),
            model_options=_MODEL_OPTIONS,
            optimizer="momentum",
            batch_size=batch_size,
            seed=run.seed,
        )
        arithmetic = PerGradient if settings["arm"] == BY_STALENESS else None
        with Replay(training, schedule, update, options, arithmetic=arithmetic) as replay:
            course = virtual_training.follow(replay, batch_size, target=None)
            test_accuracy = replay.evaluate().metrics["accuracy"]
        used = schedule.steps.staleness[schedule.steps.update >= 0]
        figures = {
            "test_error": 1.0 - test_accuracy,
            "loss": None if course.has_diverged else course.losses[-1],
            "losses": course.losses,
            "staleness": float(np.mean(used)),
        }
        return Measured(figures, course.records() if run.seed == 0 else ())

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        on_clusters, on_cluster_tables = aware_real.measures(results), aware_real.tables(results)
        cases = cases_of(results.where(level=Level.VIRTUAL))
        by_mode = [case for case in cases if case.mode != SOFTSYNC]
        sync = {case.rate: case for case in by_mode if case.mode == SYNC}
        soft = [case for case in cases if case.mode == SOFTSYNC]
        even = [case for case in soft if case.shape == EVEN]
        largest = largest_stable_rate(list(sync.values()))
        is_near = NEAR_RATE <= largest <= 2 * NEAR_RATE
        top = max(case.splits for case in even)

        def measures(rate: float, arm: str, splits: int | None = None) -> list[Measure]:
            own = [c for c in even if c.rate == rate and c.arm == arm and splits in (None, c.splits)]
            return [Measure(case.name, excess(case, sync[rate])) for case in own]

        return Analysis(
            tables=[
                table_of("Synchronous updates by learning rate, and one learner with the whole batch", by_mode),
                table_of("n-softsync", soft),
                theory_table(MOMENTUM, sorted({0, 1, *(case.splits for case in even)})),
                *on_cluster_tables,
            ],
            measured={
                "fails": measures(NEAR_RATE, FULL, top) if is_near else [],
                "aware": measures(NEAR_RATE, BY_STALENESS) if is_near else [],
                "fails_small": measures(SMALL_RATE, FULL, top),
                "aware_small": measures(SMALL_RATE, BY_STALENESS),
                "global": _pairs([case for case in even if case.rate == SMALL_RATE]),
                "batch": [Measure(f"α₀={c.rate:g}", excess(c, sync[c.rate])) for c in by_mode if c.mode == SINGLE],
                **on_clusters,
            },
            not_testable=dict.fromkeys(
                ("fails", "aware"),
                f"the largest stable synchronous rate is {largest:g}, not {NEAR_RATE:g} to {2 * NEAR_RATE:g}",
            )
            | dict.fromkeys(on_clusters, real.WHY_NONE),
            notes=[
                f"The largest rate of the grid up to which no synchronous run fails is {largest:g}."
                " A run has failed when more than half of the test examples are wrong.",
                *_NOTES,
            ],
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return aware_plots.plots(results.where(level=Level.VIRTUAL), SMALL_RATE)


_NOTES = (
    "Why α₀/τ cannot restore what synchronous updates do at their limit: on a quadratic with momentum μ the largest"
    " stable rate is 2 (1 + μ) without staleness, but 1 − μ with a staleness of 1, which is what 1-softsync has and for"
    " which α₀/τ is α₀. For larger τ it falls nearly as 1/τ, so that the limit of α₀ with α₀/τ is much the same for all"
    " n: the rule does what it says for an α₀ that staleness 1 can stand, 38 times below the synchronous limit at"
    " μ = 0.9. The sources' α₀ = 0.001 is that of their single learner; how far below the limit of their network it"
    " lies was not measured here.",
    "A standard error is that of the difference of means between seeds, with that of the 360 test digits added:"
    " differences below about 2 % in test error are not seen.",
    "n-softsync with c = λ/n gradients per update makes n times as many updates per epoch as synchronous training; with"
    " α₀/n and α₀/τ the parameters move about as far per epoch.",
    "“α₀/τ of the rule” is `--update=staleness_aware`, which divides the optimizer's whole step, velocity included.",
)


def _pairs(cases: Sequence[Case]) -> list[Measure]:
    by_arm = {(case.splits, case.arm): case for case in cases}
    return [
        Measure(f"n={splits}", excess(case, by_arm[splits, BY_STALENESS]))
        for (splits, arm), case in by_arm.items()
        if arm == BY_SPLITS
    ]


def _run(settings: Mapping[str, Any], seed: int) -> Run:
    names = {FULL: "full", BY_SPLITS: "n", BY_STALENESS: "tau", BY_RULE: "rule"}
    parts = [f"mode={settings['mode']}", f"lr={settings['lr']:g}"]
    if settings["mode"] == SOFTSYNC:
        parts += [f"n={settings['splits']}", f"arm={names[settings['arm']]}", f"steps={settings['shape'].split()[-1]}"]
    num_steps = settings["epochs"] * _NUM_EXAMPLES / settings["batch_size"]
    if settings["mode"] == SINGLE:
        num_steps /= settings["learners"]
    return Run(
        key="-".join(["L0", *parts, f"learners={settings['learners']}", f"seed={seed}"]),
        level=Level.VIRTUAL,
        settings=settings,
        seed=seed,
        expected_secs=0.5 + _SECS_PER_STEP * num_steps,
    )
