"""The claims about the strategies, with their measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ps_trainer.experiments.harness.claims import Limit, Measure, extension_claim, literature_claim, theory_claim
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import mean_interval, spread

from .cases import (
    ADAPTIVE,
    ALPHA,
    DENSE,
    PERIOD,
    WITH_MOMENTUM,
    Strategy,
    StrategyCell,
    StrategyModel,
    find,
    gains,
    ratio,
)

MARGIN = 0.02  # of a test metric from 0 to 1
_SLOWEST = 1.0 - ALPHA + ALPHA * theory.harmonic(2)  # mean of the slower of two steps, in mean steps
SPEEDUP = 2 / _SLOWEST
"""Speed of two synchronous workers over that of one, if a step costs nothing besides computing."""

Measures = Callable[[Sequence[StrategyCell]], list[Measure]]


def _ratios(of: Strategy, over: Strategy, values: Callable[[StrategyCell], Sequence[float]]) -> Measures:
    def measure(cells: Sequence[StrategyCell]) -> list[Measure]:
        found = {model: ratio(cells, of, over, model, values) for model in StrategyModel}
        return [Measure(model, *one) for model, one in found.items() if one is not None]

    return measure


def _gains(of: Strategy, over: Strategy, models: Sequence[StrategyModel] = tuple(StrategyModel)) -> Measures:
    """Measures the mean gain of quality; each model and seed counts alike."""

    def measure(cells: Sequence[StrategyCell]) -> list[Measure]:
        found = gains(cells, of, over, models)
        named = [model for model in models if find(cells, of, model) and find(cells, over, model)]
        return [Measure(f"mean of {', '.join(named)}", float(np.mean(found)), mean_interval(found))] if found else []

    return measure


def _table_bytes(cells: Sequence[StrategyCell]) -> list[Measure]:
    cell = find(cells, Strategy.SYNC, StrategyModel.WIDE_DEEP)
    if cell is None:
        return []
    return [Measure(cell.name, spread(cell.step_bytes).median / (2 * cell.parameter_bytes[0]))]


OF_CELLS = (
    literature_claim(
        key="async_speed",
        sentence="Asynchronous workers use more examples per second than synchronous ones",
        quantity="asynchronous over synchronous examples per second",
        limit=Limit(low=1.0),
        by_median=True,
        measure=_ratios(Strategy.ASYNC, Strategy.SYNC, lambda cell: cell.speeds),
    ),
    literature_claim(
        key="backup_speed",
        sentence="With a backup worker, synchronous updates are faster",
        quantity="used examples per second with over without a backup worker",
        limit=Limit(low=1.0),
        by_median=True,
        measure=_ratios(Strategy.BACKUP, Strategy.SYNC, lambda cell: cell.speeds),
    ),
    literature_claim(
        key="sync_quality",
        sentence="On average over models and seeds, two synchronous workers with momentum and twice the learning rate"
        " train as well as one process",
        quantity="test metric of synchronous training minus that of one process, from as many examples",
        limit=Limit(low=-MARGIN),
        measure=_gains(Strategy.SYNC, Strategy.ALONE, WITH_MOMENTUM),
    ),
    literature_claim(
        key="table_bytes",
        sentence="Of a model with large tables, less than half travels in a step",
        quantity="bytes per step over those of all parameters, both ways",
        limit=Limit(high=0.5),
        measure=_table_bytes,
    ),
    theory_claim(
        key="local_bytes",
        sentence=f"Workers that average every {PERIOD} steps send and receive about the {PERIOD}-th part of the bytes"
        " (0.8 to 1.25 of it)",
        quantity="bytes per step of local SGD over those of synchronous training",
        limit=Limit(low=0.8 / PERIOD, high=1.25 / PERIOD),
        measure=_ratios(Strategy.LOCAL, Strategy.SYNC, lambda cell: cell.step_bytes),
    ),
    theory_claim(
        key="ring_bytes",
        sentence="With two workers a ring moves about as many bytes as a ps task (0.8 to 1.25 of them)",
        quantity="bytes per step and worker of a ring over those of synchronous training",
        limit=Limit(low=0.8, high=1.25),
        measure=_ratios(Strategy.RING, Strategy.SYNC, lambda cell: cell.step_bytes),
    ),
    theory_claim(
        key="hybrid_bytes",
        sentence="With two workers the hybrid moves about as many bytes as a ps task (0.8 to 1.25 of them)",
        quantity="bytes per step and worker of the hybrid over those of synchronous training",
        limit=Limit(low=0.8, high=1.25),
        measure=_ratios(Strategy.HYBRID, Strategy.SYNC, lambda cell: cell.step_bytes),
    ),
    theory_claim(
        key="speedup",
        sentence=f"Two synchronous workers are about {SPEEDUP:.2f} times as fast as one process (0.8 to 1.25 of it)",
        quantity="synchronous over single examples per second",
        limit=Limit(low=0.8 * SPEEDUP, high=1.25 * SPEEDUP),
        by_median=True,
        measure=_ratios(Strategy.SYNC, Strategy.ALONE, lambda cell: cell.speeds),
    ),
    extension_claim(
        key="adaptive_quality",
        sentence="On average over models and seeds, two synchronous workers with optimizers that adapt the rate train"
        " as well as one process",
        quantity="test metric of synchronous training minus that of one process, from as many examples",
        limit=Limit(low=-MARGIN),
        measure=_gains(Strategy.SYNC, Strategy.ALONE, ADAPTIVE),
    ),
    extension_claim(
        key="local_quality",
        sentence=f"On average over models and seeds, workers that average every {PERIOD} steps train as well as"
        " synchronous ones from the same examples",
        quantity="test metric of local SGD minus that of synchronous training",
        limit=Limit(low=-MARGIN),
        measure=_gains(Strategy.LOCAL, Strategy.SYNC, DENSE),
    ),
    extension_claim(
        key="async_quality",
        sentence="On average over models and seeds, two asynchronous workers train as well as one process from the same"
        " number of examples",
        quantity="test metric of asynchronous training minus that of one process",
        limit=Limit(low=-MARGIN),
        measure=_gains(Strategy.ASYNC, Strategy.ALONE),
    ),
    extension_claim(
        key="cpu",
        sentence="A cluster of workers and a ps task uses more CPU time per example than one process",
        quantity="CPU time per used example, synchronous over one process",
        limit=Limit(low=1.0),
        by_median=True,
        measure=_ratios(Strategy.SYNC, Strategy.ALONE, lambda cell: cell.cpu_secs),
    ),
)
