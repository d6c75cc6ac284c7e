"""Experiment: stragglers and backup workers."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ps_trainer.experiments.backup_workers import plots as backup_plots
from ps_trainer.experiments.backup_workers import real as backup_real
from ps_trainer.experiments.backup_workers import tables as backup_tables
from ps_trainer.experiments.backup_workers import training as backup_training
from ps_trainer.experiments.backup_workers.captions import CAPTIONS
from ps_trainer.experiments.backup_workers.cases import (
    BARRIER,
    EVEN,
    FITTED,
    HEAVY,
    MODELS,
    MODERATE,
    PERSISTENT,
    RECALLED_ARRIVALS,
    SHAPES,
    SHIFTED,
    SPIKES,
    TOKENS,
    Sweep,
    figures_of,
    options_of,
    predict,
    sweeps_of,
)
from ps_trainer.experiments.backup_workers.claims import CLAIMS, PUBLISHED
from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab import real, virtual
from ps_trainer.experiments.lab.statistics import spread

_NUM_LOGGED_STEPS = 300
_SECS_PER_GRADIENT = 1e-5
_SMALL = ("N = 4", "N = 8")
_OF_50, _OF_100 = "N = 50", "N + b = 100"
_RULES = (TOKENS, BARRIER)


class _Plan(NamedTuple):
    """Runs of several numbers of backup workers.

    Attributes:
        size: as `Sweep.size`.
        num_workers: N, or N + b where `is_total`.
        backups: numbers of backup workers.
        shapes: of the step times.
        rules: which.
        num_updates: of each run.
        is_total: whether backup workers are taken from `num_workers`.
        num_model_seeds: repetitions of the models, at most.
    """

    size: str
    num_workers: int
    backups: Sequence[int]
    shapes: Sequence[str]
    rules: Sequence[str]
    num_updates: int
    is_total: bool = False
    num_model_seeds: int = 5


_SMALL_SHAPES = tuple(shape for shape in SHAPES if shape != FITTED)
_LARGE_SHAPES = (EVEN, SHIFTED, FITTED, MODERATE, SPIKES)
_PLANS = (
    _Plan("N = 4", 4, range(5), _SMALL_SHAPES, _RULES, 2000),
    _Plan("N = 8", 8, range(7), _SMALL_SHAPES, _RULES, 2000),
    _Plan(_OF_50, 50, range(6), _LARGE_SHAPES, _RULES, 800, num_model_seeds=1),
    _Plan(_OF_100, 100, (0, 2, 4, 6, 8, 10, 15), (FITTED, MODERATE), _RULES, 600, is_total=True, num_model_seeds=1),
)
_QUICK_PLANS = (
    _Plan("N = 8", 8, (0, 1, 2, 4, 6), _SMALL_SHAPES, _RULES, 800),
    _Plan(_OF_50, 50, (0, 3, 5), (SHIFTED, FITTED), (TOKENS,), 300),
    _Plan(_OF_100, 100, (0, 4, 10), (FITTED,), (TOKENS,), 400, is_total=True),
)


class BackupWorkers(Experiment):
    """What backup workers gain, by rule and by the tail of the step times: token queue, true barrier, theory."""

    name = "backup_workers"
    source = (
        "Chen, Pan, Monga, Bengio and Jozefowicz 2016, on arrivals and the choice of N and b; Abadi et al. 2016"
        " (OSDI), section 6.3, Fig. 8c"
    )
    scale_down = (
        "In virtual time nothing but the drawn step times takes time: the traffic of more workers is not measured."
        " The papers' own numbers of workers, 50 and 100, are run too, with steps fitted to two recalled quantiles,"
        " not to the raw data. What updates are worth is measured with a perceptron on digits, N ="
        f" {backup_training.NUM_NEEDED}. The real clusters are up to 12 processes on one machine that sleep,"
        f" {backup_real.MEAN_MS:g} ms on average, between pull and push."
    )
    published = PUBLISHED
    captions = CAPTIONS
    claims = CLAIMS
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        timed = [run for plan in (_QUICK_PLANS if quick else _PLANS) for run in _runs_of(plan, seeds)]
        return [*timed, *backup_training.runs(quick, seeds), *backup_real.runs(quick, seeds)]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        if run.level is real.LEVEL:
            return backup_real.carry_out(run, folder)
        if run.settings.get("what") == backup_training.TRAINING:
            return backup_training.carry_out(run)
        shape, n, num_backup, rule = (run.settings[name] for name in ("shape", "n", "b", "rule"))
        num_needed, num_updates = n - num_backup, run.settings["num_updates"]
        if rule == MODELS:
            return Measured(predict(shape, num_needed, num_backup, num_updates, run.seed))
        options = options_of(rule, n, num_backup)
        done = virtual.run(
            rule, options, num_workers=n, compute=[SHAPES[shape]], num_updates=num_updates, seed=run.seed
        )
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 and n <= 10 else ()
        return Measured(figures_of(done, num_needed, rule == TOKENS and not num_backup), steps)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        sweeps = sweeps_of(results)
        small = [sweep for sweep in sweeps if sweep.size in _SMALL]
        heavy = [sweep for sweep in sweeps if sweep.size == "N = 8" and sweep.shape in HEAVY]
        light = [sweep for sweep in sweeps if sweep.shape == EVEN] + [s for s in small if s.shape == SHIFTED]
        large = [sweep for sweep in sweeps if sweep.size == _OF_50]
        tokens = [sweep for sweep in sweeps if sweep.rule == TOKENS]
        fitted = [sweep for sweep in tokens if sweep.shape == FITTED]
        arms, real_cases = backup_training.arms_of(results), backup_real.cases_of(results)
        on_clusters = backup_real.measures(real_cases)
        return Analysis(
            tables=[
                *backup_tables.tables(sweeps),
                *([backup_training.table_of(arms)] if arms else ()),
                *backup_real.tables(real_cases),
            ],
            measured={
                "falls": [
                    Measure(sweep.case_name(case), case.step / before.step)
                    for sweep in sweeps
                    for before, case in zip(sweep.cases, sweep.cases[1:], strict=False)
                ],
                "diminishing": [
                    Measure(sweep.case_name(case), lost) for sweep in sweeps for case, lost in sweep.lost_gains()
                ],
                "prediction": [
                    Measure(sweep.case_name(case), case.step / case.predicted)
                    for sweep in sweeps
                    for case in sweep.cases
                    if case.predicted is not None
                ],
                "optimistic": [
                    Measure(sweep.case_name(case), case.step / case.cancelled)
                    for sweep in heavy
                    for case in sweep.cases[1:]
                    if sweep.rule == BARRIER and case.cancelled is not None
                ],
                "pays": [Measure(sweep.name, sweep.best_with_backups) for sweep in heavy],
                "interior": [Measure(sweep.name, sweep.best.backups) for sweep in heavy],
                "light": [Measure(sweep.name, sweep.best_with_backups) for sweep in light],
                "size": [Measure(sweep.name, sweep.best_with_backups) for sweep in large if sweep.shape == SHIFTED],
                "tokens_drop": [
                    Measure(sweep.case_name(case), abs(case.dropped_share - case.token_drop_share))
                    for sweep in tokens
                    for case in sweep.cases
                ],
                "barrier_drop": [
                    Measure(sweep.case_name(case), abs(case.dropped_share - case.barrier_drop_share))
                    for sweep in sweeps
                    for case in sweep.cases
                    if sweep.rule == BARRIER
                ],
                "restores": list(_restored(small)),
                "penalty": list(_penalties(small)),
                "arrivals": _arrivals(results),
                "gain_of_50": [Measure(s.name, s.best_with_backups) for s in fitted if s.size == _OF_50],
                "four_of_100": [
                    Measure(sweep.name, sweep.speedup(sweep.at(4)) / sweep.speedup(sweep.best))
                    for sweep in fitted
                    if sweep.size == _OF_100 and sweep.at(4) is not None
                ],
                "work": backup_training.measures(arms),
                **on_clusters,
            },
            not_testable={key: real.WHY_NONE for key, measured in on_clusters.items() if not measured},
            notes=backup_tables.NOTES,
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        plots = backup_plots.plots(sweeps_of(results), results.where(level=Level.VIRTUAL), self.published)
        return [*plots, *backup_plots.real_plots(backup_real.cases_of(results))]


def _runs_of(plan: _Plan, seeds: Sequence[int]) -> Iterator[Run]:
    for shape in plan.shapes:
        for num_backup in plan.backups:
            n = plan.num_workers + (0 if plan.is_total else num_backup)
            for rule in (*plan.rules, MODELS):
                for seed in seeds[: plan.num_model_seeds] if rule == MODELS else seeds:
                    settings = {"shape": shape, "size": plan.size, "n": n, "b": num_backup, "rule": rule}
                    yield Run(
                        key=f"{rule}-n={n}-b={num_backup}-{shape.replace(' ', '_')}-seed={seed}",
                        level=Level.VIRTUAL,
                        settings={**settings, "num_updates": plan.num_updates},
                        seed=seed,
                        expected_secs=_SECS_PER_GRADIENT * n * plan.num_updates,
                    )


def _restored(small: Sequence[Sweep]) -> Iterator[Measure]:
    """With one slow worker and one backup, over the same step times without a slow worker and without backup."""
    without = {(sweep.size, sweep.rule): sweep.cases[0].step for sweep in small if sweep.shape == SHIFTED}
    for sweep in small:
        case = sweep.at(1)
        if sweep.shape == PERSISTENT and sweep.rule == BARRIER and case and (sweep.size, sweep.rule) in without:
            yield Measure(sweep.case_name(case), case.step / without[sweep.size, sweep.rule])


def _penalties(small: Sequence[Sweep]) -> Iterator[Measure]:
    slow = {(sweep.size, sweep.rule): sweep for sweep in small if sweep.shape == PERSISTENT}
    for (size, rule), sweep in slow.items():
        barrier = slow.get((size, BARRIER))
        for num_backup in (1, 2):
            case = sweep.at(num_backup)
            other = barrier.at(num_backup) if barrier else None
            if rule == TOKENS and case and other:
                yield Measure(sweep.case_name(case), case.step / other.step)


def _arrivals(results: Results) -> list[Measure]:
    alone = results.where(level=Level.VIRTUAL, size=_OF_100, shape=FITTED, rule=TOKENS, b=0)
    return [
        Measure(f"gradient {k}", abs(spread([one[str(k)] for one in alone.figures("in_time")]).median - share))
        for k, share in RECALLED_ARRIVALS.items()
        if alone
    ]
