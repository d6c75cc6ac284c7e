"""The cases that the runs of the experiment on strategies make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.cases import Case, figures, setting, text_property
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit.statistics import Interval, ratio_interval

PERIOD = 8  # local steps between two averages
ALPHA = 0.2  # share of a step that is exponential


class Strategy(Label):
    """Ways to train on several workers."""

    ALONE = "one process"
    SYNC = "synchronous"
    ASYNC = "asynchronous"
    BACKUP = "synchronous, a backup worker"
    RING = "ring all-reduce"
    HYBRID = "hybrid"
    LOCAL = "local SGD"

    @property
    def num_workers(self) -> int:
        return {Strategy.ALONE: 1, Strategy.BACKUP: 3}.get(self, 2)

    @property
    def gradients_per_update(self) -> int:
        """Gradients that one step of `global_step` uses."""
        return {Strategy.ALONE: 1, Strategy.ASYNC: 1, Strategy.LOCAL: 2 * PERIOD}.get(self, 2)


class StrategyModel(Label):
    """Models."""

    CNN = "cnn"
    RESNET = "resnet"
    SPEECH = "speech"
    TRANSFORMER = "transformer"
    WIDE_DEEP = "wide_deep"
    WORD2VEC = "word2vec"


WITH_TABLES = (StrategyModel.TRANSFORMER, StrategyModel.WIDE_DEEP, StrategyModel.WORD2VEC)
"""Models with embedding tables."""
DENSE = tuple(model for model in StrategyModel if model not in WITH_TABLES)
WITH_MOMENTUM = (StrategyModel.CNN, StrategyModel.RESNET)
"""Models whose optimizer takes twice the learning rate where an update averages two gradients."""
ADAPTIVE = tuple(model for model in StrategyModel if model not in WITH_MOMENTUM)


def refusal(strategy: Strategy, model: StrategyModel) -> str:
    """Returns the reason why a strategy cannot train a model; empty if it can."""
    if model in WITH_TABLES:
        return "holds no tables" if strategy in (Strategy.RING, Strategy.LOCAL) else ""
    return "needs tables" if strategy == Strategy.HYBRID else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategySettings(Record):
    """Settings of a training."""

    strategy: Strategy
    model: StrategyModel
    num_gradients: int  # that updates use
    mean_ms: float  # of a worker's step, which contains its computation


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategyFigures(Record):
    """Figures of a training."""

    speed: float  # examples per second whose gradients are used, of all workers, after warm-up
    quality: float  # test metric of the model, 0..1, larger is better
    worker_cpu_secs: float  # CPU seconds of all workers per 1,000 used examples
    ps_cpu_secs: float  # CPU seconds of the ps task per 1,000 used examples
    worker_mib: float | None  # largest resident memory of a worker
    ps_mib: float | None  # largest resident memory of the ps task; None without one
    step_bytes: float  # bytes that a worker sends and receives per step, mean over the workers
    parameter_bytes: int  # of all trained parameters


class StrategyCell(Case):
    """Trainings of one model with one strategy, all their seeds together."""

    strategy = setting("strategy")
    model = setting("model")
    qualities = figures("quality")
    worker_cpu_secs = figures("worker_cpu_secs")
    ps_cpu_secs = figures("ps_cpu_secs")
    worker_mibs = figures("worker_mib")
    ps_mibs = figures("ps_mib")
    step_bytes = figures("step_bytes")
    parameter_bytes = figures("parameter_bytes")
    name = text_property("{0.model}, {0.strategy}")

    @property
    def speeds(self) -> list[float]:
        """Speeds of the seeds whose times count."""
        return self.runs.uncontended().figures("speed")

    @property
    def cpu_secs(self) -> list[float]:
        """CPU seconds of all tasks per 1,000 used examples."""
        return [one + other for one, other in zip(self.worker_cpu_secs, self.ps_cpu_secs, strict=True)]


def find(cells: Sequence[StrategyCell], strategy: Strategy, model: StrategyModel) -> StrategyCell | None:
    """Returns a cell, or None if it was not run."""
    return next((one for one in cells if (one.strategy, one.model) == (strategy, model)), None)


def ratio(
    cells: Sequence[StrategyCell],
    of: Strategy,
    over: Strategy,
    model: StrategyModel,
    values: Callable[[StrategyCell], Sequence[float]],
) -> tuple[float, Interval | None] | None:
    """Returns values of a strategy over those of another, for one model; None where one of them has none."""
    one, other = find(cells, of, model), find(cells, over, model)
    if one is None or other is None or not values(one) or not values(other):
        return None
    return ratio_interval(values(one), values(other))


def gains(cells: Sequence[StrategyCell], of: Strategy, over: Strategy, models: Sequence[StrategyModel]) -> list[float]:
    """Returns how much better the quality of a strategy is than that of another, for each of these models and seeds."""
    pairs = [(find(cells, of, model), find(cells, over, model)) for model in models]
    return [
        first - second
        for one, other in pairs
        if one is not None and other is not None
        for first, second in zip(one.qualities, other.qualities, strict=True)
    ]
