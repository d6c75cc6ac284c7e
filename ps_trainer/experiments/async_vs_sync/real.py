"""Asynchronous and synchronous SGD on real clusters: throughput, and one training of each arm to a target."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ps_trainer.experiments.async_vs_sync.cases import ASYNC, SYNC_GLOBAL, SYNC_SAME, predicted_ratio
from ps_trainer.experiments.frame.base import Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import real, virtual, virtual_training
from ps_trainer.experiments.lab.statistics import WARMUP_SHARE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES, TRAINING = "rates", "training"  # what a run is of
TARGET_LOSS = 0.55  # about that of a training accuracy of 90 % here; steps of clusters log the loss only
NUM_WORKERS = 8
MODEL_OPTION = "hidden=32"
BATCH_SIZE = 32

_COUNTS = (1, 2, 4, 8)
_MEAN_MS = 100.0
_UNEVEN = 1.0
_ALPHAS = (0.05, _UNEVEN)
_STEPS_OF_WORKER = {0.05: 50, _UNEVEN: 80}
_NUM_UNEVEN_SEEDS = 3
_NUM_QUICK_STEPS = 60
_QUICK_ALPHA = 0.3  # with which so few steps are enough to know a ratio
# The best learning rates of the virtual part at n = 8; an example count that is twice what it takes there.
_ARMS = (
    (ASYNC, 0.05, 0.05, 19_200),
    (ASYNC, _UNEVEN, 0.1, 19_200),
    (SYNC_SAME, 0.05, 0.4, 19_200),
    (SYNC_SAME, _UNEVEN, 0.4, 19_200),
    (SYNC_GLOBAL, _UNEVEN, 0.4, 5_120),
)


def runs(quick: bool, seeds: Sequence[int]) -> list[Run]:
    """Both rules at every number of workers, and an arm's training each; in the quick form two workers only.

    A run and its simulation take the same delays, so that few seeds tell whether they agree. Exponential steps, which
    also have to agree with a mean, have three.
    """
    if quick:
        return [_rates_run(2, _QUICK_ALPHA, rule, _NUM_QUICK_STEPS, seeds[0]) for rule in (ASYNC, SYNC_SAME)]
    made = [
        _rates_run(n, alpha, rule, _STEPS_OF_WORKER[alpha], seed)
        for n in _COUNTS
        for alpha in (_ALPHAS if n > 1 else _ALPHAS[:1])
        for rule in (ASYNC, SYNC_SAME)
        for seed in seeds[: _NUM_UNEVEN_SEEDS if alpha == _UNEVEN else 1]
    ]
    return made + [_training_run(*arm, seeds[0]) for arm in _ARMS]


def carry_out(run: Run, folder: pathlib.Path) -> Measured:
    """Trains on a cluster, and simulates the same delays; of a training also its gradients, with TensorFlow."""
    settings = run.settings
    n, alpha = settings["n"], settings["alpha"]
    update = "async" if settings["mode"] == ASYNC else "sync"
    setup = {
        "num_workers": n,
        "num_updates": settings["num_updates"],
        "compute": [f"shifted_exp:alpha={alpha:g},mean_ms={settings['mean_ms']:g}"],
    }
    is_training = settings["what"] == TRAINING
    flags = {"flags": _training_flags(settings)} if is_training else {}
    training = real.train(run, folder, update=update, **setup, **flags)
    schedule = virtual.run(update, seed=run.seed, **setup).schedule
    if is_training:
        measured = _to_target(training.steps, settings["batch_size"])
        simulated = _to_target(_replayed(run, schedule, update), settings["batch_size"])
    else:
        per_update, mean_secs = 1 if update == "async" else n, settings["mean_ms"] / 1000
        measured, simulated = (
            {"rate": _rate(secs, per_update) * mean_secs} for secs in (real.update_secs(training), schedule.update_secs)
        )
    figures = real.both(training, measured, simulated)
    return Measured(figures, training.steps if run.seed == 0 else (), training.window)


def measures(results: Results) -> dict[str, list[Measure]]:
    """Of the claims about real clusters; examples are of all runs, times of those that had the cores to themselves."""
    rates, trained = _rates(results), _trained(results.uncontended())
    times = {key: pair for key, pair in _timed(trained).items() if key[0] in (ASYNC, SYNC_SAME)}
    return {
        "real_throughput": [
            Measure(f"L2, n={n}, α={alpha:g}", _ratio(pairs, "measured") / predicted_ratio(n, alpha))
            for (n, alpha), pairs in rates.items()
            if n > 1 and len(pairs) > 1
        ],
        "real_control": [
            Measure("L2, one worker", _ratio(pairs, "measured"))
            for (n, _), pairs in rates.items()
            if n == 1 and len(pairs) > 1
        ],
        "real_rates": [Measure(pair.case, pair.ratio) for pairs in rates.values() for pair in pairs.values()],
        "real_examples": [
            Measure(name, pair.ratio)
            for name, pair in ((_arm_name(key), _pair(key, group, "examples")) for key, group in _trained(results))
        ],
        "real_time": [
            Measure(
                f"L2, n={NUM_WORKERS}, α={alpha:g}", times[ASYNC, alpha].measured / times[SYNC_SAME, alpha].measured
            )
            for alpha in (_UNEVEN,)
            if {(ASYNC, alpha), (SYNC_SAME, alpha)} <= times.keys()
        ],
    }


def tables(results: Results) -> list[Table]:
    """Throughput, the simulator's timing, and the trainings; those without runs are left out."""
    made = []
    if rates := _rates(results):
        columns = (
            *(Column(name="n", form="d"), Column(name="α", form="g")),
            *numbers(".3f", "ratio", "simulated ratio", "E[max]/E[X]"),
        )
        rows = [
            [n, alpha, _ratio(pairs, "measured"), _ratio(pairs, "simulated"), predicted_ratio(n, alpha)]
            for (n, alpha), pairs in rates.items()
            if len(pairs) > 1
        ]
        title = "Gradients per second of real clusters, asynchronous over synchronous"
        made.append(Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows))
        flat = [pair for pairs in rates.values() for pair in pairs.values()]
        made.append(real.timing_table("throughput", "gradients per mean step", flat))
    if trained := _trained(results):
        timed = _timed(_trained(results.uncontended()))
        columns = (
            *(Column(name="mode"), Column(name="α", form="g"), Column(name="lr", form="g")),
            *numbers(",.0f", "examples", "examples, virtual"),
            *numbers(".1f", "time", "virtual time", unit="s"),
        )
        rows = []
        for key, group in trained:
            examples, secs = _pair(key, group, "examples"), timed.get(key)
            times = [secs.measured, secs.simulated] if secs else [None, None]
            rows.append([*key, group[0].run.settings["lr"], examples.measured, examples.simulated, *times])
        title = f"Real trainings to a loss of {TARGET_LOSS:g}, n = {NUM_WORKERS}, one seed"
        made.append(Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows))
    return made


def plots(results: Results) -> list[Plot]:
    """The throughput; none without runs whose times count."""
    rates = {key: pairs for key, pairs in _rates(results).items() if len(pairs) > 1}
    plot = Plot(
        key="real_throughput",
        title="Gradients per second of real clusters, asynchronous over synchronous",
        level=real.LEVEL.value,
        draw=lambda figure: _draw(figure, rates),
    )
    return [plot] if rates else []


def _draw(figure: Figure, rates: Mapping[tuple[int, float], Mapping[str, real.Pair]]) -> None:
    axis = figure.add_subplot()
    for alpha in dict.fromkeys(alpha for _, alpha in rates):
        own = {n: pairs for (n, one), pairs in sorted(rates.items(), key=lambda rate: rate[0]) if one == alpha}
        (line,) = axis.plot(list(own), [predicted_ratio(n, alpha) for n in own], lw=1)
        style = {"color": line.get_color(), "ls": "none"}
        measured = [_ratio(pairs, "measured") for pairs in own.values()]
        axis.plot(list(own), measured, marker="o", mfc="none", label=f"α = {alpha:g}", **style)
        axis.plot(list(own), [_ratio(pairs, "simulated") for pairs in own.values()], marker="x", **style)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("workers n")
    axis.set_ylabel("ratio; lines: E[max]/E[X], crosses: simulated")
    axis.legend()


def _rates(results: Results) -> dict[tuple[int, float], dict[str, real.Pair]]:
    """Throughput of the runs whose times count, by n and α, and by mode."""
    made: dict[tuple[int, float], dict[str, real.Pair]] = {}
    groups = results.where(level=real.LEVEL, what=RATES).uncontended().by("n", "alpha", "mode")
    for (n, alpha, mode), group in groups.items():
        made.setdefault((n, alpha), {})[mode] = real.pair(f"L2, n={n}, α={alpha:g}, {mode}", group, "rate")
    return made


def _ratio(pairs: Mapping[str, real.Pair], of: str) -> float:
    return getattr(pairs[ASYNC], of) / getattr(pairs[SYNC_SAME], of)


def _trained(results: Results) -> list[tuple[tuple[str, float], Results]]:
    return list(results.where(level=real.LEVEL, what=TRAINING).by("mode", "alpha").items())


def _timed(trained: Sequence[tuple[tuple[str, float], Results]]) -> dict[tuple[str, float], real.Pair]:
    return {key: _pair(key, group, "secs") for key, group in trained}


def _pair(key: tuple[str, float], group: Results, name: str) -> real.Pair:
    return real.pair(_arm_name(key), group, name)


def _arm_name(key: tuple[str, float]) -> str:
    return f"L2, {key[0]}, α={key[1]:g}"


def _rate(update_secs: np.ndarray, per_update: int) -> float:
    """Gradients per second, after warm-up."""
    warm = update_secs[int(WARMUP_SHARE * len(update_secs)) :]
    return per_update * (len(warm) - 1) / float(warm[-1] - warm[0])


def _to_target(steps: Sequence[Mapping[str, Any]], batch_size: int) -> dict[str, float | None]:
    """Examples, and seconds from the end of the first step, until the loss of the last examples is low enough.

    The first step of a cluster builds its graph, which takes longer than any other. None where it never is.
    """
    window = math.ceil(virtual_training.WINDOW_EXAMPLES / batch_size)
    losses = [math.inf if step["loss"] is None else step["loss"] for step in steps]
    for count in range(window, len(steps) + 1):
        if sum(losses[count - window : count]) / window <= TARGET_LOSS:
            return {"examples": count * batch_size, "secs": steps[count - 1]["t_end"] - steps[0]["t_end"]}
    return {"examples": None, "secs": None}


def _replayed(run: Run, schedule: Any, update: str) -> list[dict[str, float]]:
    from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

    settings = run.settings
    training = virtual_training.digits(
        "mlp", settings["lr"], model_options=(MODEL_OPTION,), batch_size=settings["batch_size"], seed=run.seed
    )
    ends = schedule.steps.t_push_done.tolist()
    with Replay(training, schedule, update) as replay:
        return [{"loss": step.loss, "t_end": ends[step.index]} for step in replay.steps()]


def _training_flags(settings: Mapping[str, Any]) -> list[str]:
    return [
        "--model=mlp",
        f"--model_option={MODEL_OPTION}",
        "--optimizer=sgd",
        f"--batch_size={settings['batch_size']}",
        f"--learning_rate={settings['lr']:g}",
    ]


def _rates_run(n: int, alpha: float, mode: str, num_steps: int, seed: int) -> Run:
    num_updates = num_steps * n if mode == ASYNC else num_steps
    return _run({"what": RATES, "mode": mode, "n": n, "alpha": alpha}, num_updates, num_steps, seed)


def _training_run(mode: str, alpha: float, rate: float, num_examples: int, seed: int) -> Run:
    batch_size = BATCH_SIZE // NUM_WORKERS if mode == SYNC_GLOBAL else BATCH_SIZE
    num_steps = num_examples // (NUM_WORKERS * batch_size)
    settings = {"what": TRAINING, "mode": mode, "n": NUM_WORKERS, "alpha": alpha, "lr": rate, "batch_size": batch_size}
    return _run(settings, num_steps * NUM_WORKERS if mode == ASYNC else num_steps, num_steps, seed)


def _run(settings: Mapping[str, Any], num_updates: int, num_steps: int, seed: int) -> Run:
    n, alpha, mode = settings["n"], settings["alpha"], settings["mode"]
    mean_ms = real.mean_ms(n, _MEAN_MS)
    name = mode.replace(", ", "_").replace(" ", "_")
    secs = num_steps * mean_ms / 1000 * (1.0 if mode == ASYNC else predicted_ratio(n, alpha))
    return Run(
        key=f"L2-{settings['what']}-{name}-n={n}-alpha={alpha:g}-seed={seed}",
        level=real.LEVEL,
        settings={**settings, "mean_ms": mean_ms, "num_updates": num_updates},
        seed=seed,
        expected_secs=real.expected_secs(n, secs),
    )
