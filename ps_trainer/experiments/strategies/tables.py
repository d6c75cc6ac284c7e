"""The table of the experiment on strategies: speed, quality and resources of each strategy for each model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.statistics import Interval, mean_interval, spread

from .cases import Strategy, StrategyCell, StrategyModel, find, refusal

_KB = 1000


def of_cells(cells: Sequence[StrategyCell]) -> list[Table]:
    """Returns a row per model and strategy; one that a strategy cannot train has the reason, and no numbers."""
    columns = (
        *texts("model", "strategy", "workers"),
        *numbers(",.0f", "speed, median", unit="examples/s"),
        *numbers(".2f", "test metric", "from", "to", unit="%"),
        *numbers(".2f", "CPU of the workers", "CPU of the ps task", unit="s per 1,000 examples"),
        *numbers(",.0f", "memory of a worker", "memory of the ps task", unit="MiB"),
        *numbers(",.1f", "traffic of a worker", unit="KB/step"),
        *numbers("d", "runs", "of them comparable"),
    )
    models = [model for model in StrategyModel if any(cell.model == model for cell in cells)]
    strategies = [strategy for strategy in Strategy if any(cell.strategy == strategy for cell in cells)]
    rows = []
    for model in models:
        for strategy in strategies:
            cell, why = find(cells, strategy, model), refusal(strategy, model)
            if cell is not None:
                rows.append([model, strategy, str(strategy.num_workers), *_figures(cell)])
            elif why:
                rows.append([model, strategy, why, *[None] * 11])
    return [Table("Speed, quality and resources of each strategy", columns, rows, real_clusters.LEVEL)]


def quality_percent(cell: StrategyCell) -> tuple[float, Interval | None]:
    """Returns the mean test metric in percent, and Student's t interval of it as far as it is possible: up to 100."""
    values = [100 * one for one in cell.qualities]
    ends = mean_interval(values)
    return float(np.mean(values)), ends and Interval(max(ends.low, 0.0), min(ends.high, 100.0))


def _figures(cell: StrategyCell) -> list[float | None]:
    """Returns the numbers of a row."""
    quality, ends = quality_percent(cell)
    speeds = cell.speeds
    peaks = [[one for one in mibs if one is not None] for mibs in (cell.worker_mibs, cell.ps_mibs)]
    return [
        spread(speeds).median if speeds else None,
        quality,
        *(ends or (None, None)),
        spread(cell.worker_cpu_secs).median,
        spread(cell.ps_cpu_secs).median if peaks[1] else None,
        *(max(own) if own else None for own in peaks),
        spread(cell.step_bytes).median / _KB,
        len(cell.qualities),
        len(speeds),
    ]
