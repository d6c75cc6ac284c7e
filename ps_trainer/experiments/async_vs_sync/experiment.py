"""Experiment: asynchronous against synchronous SGD."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.async_vs_sync import plots as convergence_plots
from ps_trainer.experiments.async_vs_sync import real as convergence_real
from ps_trainer.experiments.async_vs_sync.captions import CAPTIONS
from ps_trainer.experiments.async_vs_sync.cases import (
    ASYNC,
    SYNC_GLOBAL,
    SYNC_SAME,
    arms_of,
    arms_table,
    lead,
    predicted_ratio,
    rates_table,
    tuned,
)
from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab import real, virtual, virtual_training

ALPHAS = (0.05, 0.3, 1.0)
TRAINED_ALPHAS = (0.05, 1.0)
RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
QUICK_RATES = {ASYNC: (0.05, 0.1, 0.2), SYNC_SAME: (0.4, 0.8), SYNC_GLOBAL: (0.4, 0.8)}

_BATCH_SIZE = 32
_NUM_EXAMPLES = 600 * _BATCH_SIZE
_MODEL_OPTIONS = ("hidden=32",)
_NUM_TIMED_UPDATES = 4000
_SECS_PER_STEP = 0.002


class AsyncVsSync(Experiment):
    """Asynchronous against synchronous SGD: throughput, examples and time to the same accuracy."""

    name = "async_vs_sync"
    source = "Dean et al. 2012, section 5, Figs 4 and 5; Chen et al. 2016, sections 4 and 5"
    scale_down = (
        "A perceptron with 32 hidden units on digits; steps last 100 ms on average, of which the share α is"
        " exponential; pulls and pushes take no time. Each arm has its own best learning rate of one grid. Examples"
        f" are counted until the mean accuracy of the last {virtual_training.WINDOW_EXAMPLES} is"
        f" {virtual_training.TARGET_ACCURACY:.0%}. The real clusters are up to {convergence_real.NUM_WORKERS} processes"
        " on one machine that sleep between pull and push. The sources train networks of millions of parameters on up"
        " to thousands of machines."
    )
    published = (
        Published(
            what="final test accuracy, synchronous above asynchronous updates, about", value=0.5, unit="%",
            tag=Tag.RECALLED, source="Chen et al. 2016",
        ),
    )  # fmt: skip
    captions = CAPTIONS
    claims = (
        Claim(
            key="throughput",
            sentence="Asynchronous workers compute E[max]/E[X] times the gradients that synchronous ones do",
            measures="measured over predicted ratio",
            limit=Limit(low=0.85, high=1.15),
            expected=Limit(low=0.97, high=1.03),
        ),
        Claim(
            key="examples",
            sentence="With n workers of the same batch asynchronous SGD needs no fewer examples, each at its best rate",
            measures="its examples above those of synchronous SGD, in standard errors",
            limit=Limit(low=-2.0),
        ),
        Claim(
            key="examples_global",
            sentence="With the same batch per update asynchronous SGD needs no fewer examples, each at its best rate",
            measures="its examples above those of synchronous SGD, in standard errors",
            limit=Limit(low=-2.0),
        ),
        Claim(
            key="time_even",
            sentence="With nearly even steps synchronous SGD is at the target as soon as asynchronous SGD",
            measures="asynchronous over synchronous time",
            limit=Limit(low=1.0),
        ),
        Claim(
            key="time_uneven",
            sentence="With exponential steps asynchronous SGD is at the target sooner",
            measures="asynchronous over synchronous time",
            limit=Limit(high=1.0),
        ),
        Claim(
            key="real_throughput",
            sentence="So they do on real clusters: E[max]/E[X] times the gradients",
            measures="measured over predicted ratio",
            limit=Limit(low=0.85, high=1.15),
        ),
        Claim(
            key="real_rates",
            sentence="Real clusters of both kinds compute as many gradients as the simulator says of the same delays",
            measures="measured over simulated gradients per second",
            limit=Limit(low=0.9, high=1.1),
        ),
        Claim(
            key="real_control",
            sentence="With one worker the two are the same",
            measures="asynchronous over synchronous gradients per second",
            limit=Limit(low=0.95, high=1.05),
        ),
        Claim(
            key="real_examples",
            sentence="A real training needs as many examples as the one in virtual time",
            measures="measured over virtual examples to the target, one seed of each arm",
            limit=Limit(low=0.6, high=1.6),
            expected=Limit(low=0.75, high=1.33),
        ),
        Claim(
            key="real_time",
            sentence="With exponential steps asynchronous SGD is at the target sooner on a real cluster, too",
            measures="asynchronous over synchronous time",
            limit=Limit(high=1.0),
        ),
    )
    num_seeds = 10
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        runs = [
            _run({"mode": "rates", "n": n, "alpha": alpha}, seed, 0.2)
            for n in (2, 4, 8, 16)
            for alpha in ALPHAS
            for seed in seeds
        ]
        for n in (8,) if quick else (4, 8):
            kinds = [(ASYNC, alpha) for alpha in TRAINED_ALPHAS] + [(SYNC_SAME, None), (SYNC_GLOBAL, None)]
            for mode, alpha in kinds:
                batch_size = _BATCH_SIZE // n if mode == SYNC_GLOBAL else _BATCH_SIZE
                secs = 0.5 + _SECS_PER_STEP * _NUM_EXAMPLES / batch_size / 3
                runs += [
                    _run({"mode": mode, "n": n, "alpha": alpha, "lr": lr, "batch_size": batch_size}, seed, secs)
                    for lr in (QUICK_RATES[mode] if quick else RATES)
                    for seed in seeds
                ]
        return [*runs, *convergence_real.runs(quick, seeds)]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        if run.level is real.LEVEL:
            return convergence_real.carry_out(run, folder)
        if run.settings["mode"] == "rates":
            return Measured(_throughput(run.settings["n"], run.settings["alpha"], run.seed))
        from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

        settings = run.settings
        n, batch_size = settings["n"], settings["batch_size"]
        update = "async" if settings["mode"] == ASYNC else "sync"
        per_update = batch_size if update == "async" else n * batch_size
        alphas = ALPHAS if settings["alpha"] is None else (settings["alpha"],)
        schedules = {
            f"{alpha:g}": _schedule(update, n, alpha, _NUM_EXAMPLES // per_update, run.seed) for alpha in alphas
        }
        training = virtual_training.digits(
            "mlp", settings["lr"], model_options=_MODEL_OPTIONS, batch_size=batch_size, seed=run.seed
        )
        # Which of the workers is the slowest changes nothing in a synchronous update: one schedule stands for all.
        with Replay(training, next(iter(schedules.values())), update) as replay:
            course = virtual_training.follow(replay, batch_size)
            version = replay.version
        is_reached = course.target_step is not None
        num_updates = version if is_reached else _NUM_EXAMPLES // per_update
        figures = {
            "examples": course.num_steps * batch_size if is_reached else _NUM_EXAMPLES,
            "secs": {alpha: float(one.update_secs[num_updates - 1]) for alpha, one in schedules.items()},
            "is_reached": is_reached,
            "losses": course.losses,
        }
        return Measured(figures, course.records() if run.seed == 0 else ())

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        on_clusters, on_cluster_tables = convergence_real.measures(results), convergence_real.tables(results)
        results = results.where(level=Level.VIRTUAL)
        arms = arms_of(results)
        counts = sorted({arm.n for arm in arms})
        pairs = [(n, alpha, tuned(arms, ASYNC, n, alpha)) for n in counts for alpha in TRAINED_ALPHAS]
        best = [tuned(arms, *key) for key in dict.fromkeys((arm.mode, arm.n, arm.alpha) for arm in arms)]

        def leads(mode: str) -> list[Measure]:
            window = virtual_training.WINDOW_EXAMPLES
            return [Measure(f"n={n}, α={alpha:g}", lead(one, tuned(arms, mode, n), window)) for n, alpha, one in pairs]

        def times(alpha: float) -> list[Measure]:
            return [
                Measure(f"n={n}", _mean(one.secs_at(alpha)) / _mean(tuned(arms, SYNC_SAME, n).secs_at(alpha)))
                for n, own, one in pairs
                if own == alpha
            ]

        return Analysis(
            tables=[
                rates_table(results),
                arms_table("To the target, each at its best learning rate", best, ALPHAS),
                arms_table("To the target, all learning rates", arms, ALPHAS),
                *on_cluster_tables,
            ],
            measured={
                "throughput": _ratios(results),
                "examples": leads(SYNC_SAME),
                "examples_global": leads(SYNC_GLOBAL),
                "time_even": times(TRAINED_ALPHAS[0]),
                "time_uneven": times(TRAINED_ALPHAS[-1]),
                **on_clusters,
            },
            not_testable={key: real.WHY_NONE for key, values in on_clusters.items() if not values},
            notes=_NOTES,
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return [*convergence_plots.plots(results.where(level=Level.VIRTUAL)), *convergence_real.plots(results)]


_NOTES = (
    "With the same batch per worker a synchronous update has n batches. Where that is more than the task can use per"
    " update, its examples go to waste, and asynchronous SGD, one batch per update, needs fewer where its staleness"
    " costs little: with exponential steps, whose geometric staleness stands larger rates than the same staleness in"
    " each update (experiment staleness_quality). With the same batch per update staleness is the only difference.",
    "Times are of the same batch per worker: a synchronous worker with the n-th part of it would have shorter steps.",
    "The real trainings end at a loss instead, as steps of clusters log no accuracy; the virtual ones beside them do,"
    " too. Time counts from the end of the first step, in which a cluster still builds its graph.",
    "The simulator's steps take their delay and nothing else. A real step takes more, so that a real cluster makes"
    " fewer steps.",
    "An arm that does not reach the target counts with all examples it may see: a lower bound.",
)


def _schedule(update: str, n: int, alpha: float, num_updates: int, seed: int) -> Any:
    compute = [f"shifted_exp:alpha={alpha:g},mean_ms=100"]
    return virtual.run(update, num_workers=n, compute=compute, num_updates=num_updates, seed=seed).schedule


def _throughput(n: int, alpha: float, seed: int) -> Mapping[str, float]:
    slow = _schedule("sync", n, alpha, _NUM_TIMED_UPDATES // n, seed)
    fast = _schedule("async", n, alpha, _NUM_TIMED_UPDATES, seed)
    return {
        "async_rate": fast.num_updates / float(fast.update_secs[-1]),
        "sync_rate": n * slow.num_updates / float(slow.update_secs[-1]),
        "staleness": float(np.mean(fast.steps.staleness[fast.steps.update >= 0])),
    }


def _ratios(results: Results) -> list[Measure]:
    measures = []
    for (n, alpha), group in results.where(mode="rates").by("n", "alpha").items():
        ratio = _mean(group.figures("async_rate")) / _mean(group.figures("sync_rate"))
        measures.append(Measure(f"n={n}, α={alpha:g}", ratio / predicted_ratio(n, alpha)))
    return measures


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _run(settings: Mapping[str, Any], seed: int, expected_secs: float) -> Run:
    names = {ASYNC: "async", SYNC_SAME: "sync", SYNC_GLOBAL: "sync_global"}
    shown = {**settings, "mode": names.get(settings["mode"], settings["mode"])}
    parts = [f"{name}={value}" for name, value in shown.items() if value is not None]
    return Run(
        key="-".join(["L0", *parts, f"seed={seed}"]),
        level=Level.VIRTUAL,
        settings=settings,
        seed=seed,
        expected_secs=expected_secs,
    )
