"""The plots of the experiment on strategies, and the words below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.comparison.style import PURPLE, SKY
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates
from ps_trainer.experiments.toolkit import looks, real_clusters
from ps_trainer.experiments.toolkit.statistics import Interval, ratio_interval

from .cases import Strategy, StrategyCell, StrategyModel, find, ratio
from .tables import quality_percent

_LOOKS: dict[str, dict[str, Any]] = {
    Strategy.ALONE: {"color": "0.3", "marker": "*"},
    Strategy.SYNC: looks.SYNC_POINTS,
    Strategy.ASYNC: looks.ASYNC_POINTS,
    Strategy.BACKUP: looks.BACKUP_POINTS,
    Strategy.RING: looks.RING_POINTS,
    Strategy.HYBRID: {"color": PURPLE, "marker": "P"},
    Strategy.LOCAL: {"color": SKY, "marker": "X"},
}
Value = tuple[float, Interval | None]


def _draw(
    axis: Axes, cells: Sequence[StrategyCell], value_of: Callable[[Strategy, StrategyModel], Value | None]
) -> None:
    """Draws a value of each strategy, side by side for each model, with its interval."""
    models = [model for model in StrategyModel if any(cell.model == model for cell in cells)]
    strategies = [strategy for strategy in Strategy if any(cell.strategy == strategy for cell in cells)]
    for place, strategy in enumerate(strategies):
        found = [(x, value) for x, model in enumerate(models) if (value := value_of(strategy, model)) is not None]
        if found:
            xs = [x + 0.8 * ((place + 0.5) / len(strategies) - 0.5) for x, _ in found]
            draw_estimates(axis, xs, [value for _, value in found], label=strategy, **_LOOKS[strategy])
    axis.set_xticks(range(len(models)), models, rotation=20)
    axis.set_xlim(-0.5, len(models) - 0.5)
    axis.grid(axis="x", visible=False)
    for border in range(len(models) - 1):
        axis.axvline(border + 0.5, color="0.85", lw=0.8, zorder=0)


def _draw_table(figure: Figure, cells: Sequence[StrategyCell]) -> None:
    axes = figure.subplots(2, 2).flat

    def over_one(
        values: Callable[[StrategyCell], Sequence[float]],
    ) -> Callable[[Strategy, StrategyModel], Value | None]:
        return lambda strategy, model: ratio(cells, strategy, Strategy.ALONE, model, values)

    def quality(strategy: Strategy, model: StrategyModel) -> Value | None:
        cell = find(cells, strategy, model)
        return None if cell is None else quality_percent(cell)

    def traffic(strategy: Strategy, model: StrategyModel) -> Value | None:
        cell = find(cells, strategy, model)
        if cell is None or strategy == Strategy.ALONE:
            return None
        return ratio_interval([one / 1000 for one in cell.step_bytes], [1.0, 1.0])

    panels = (
        (over_one(lambda cell: cell.speeds), "examples/s over one process"),
        (quality, "test metric (%)"),
        (over_one(lambda cell: cell.cpu_secs), "CPU time per example over one process"),
        (traffic, "traffic of a worker (KB/step)"),
    )
    for axis, (value_of, label) in zip(axes, panels, strict=True):
        _draw(axis, cells, value_of)
        axis.set_ylabel(label)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=4, fontsize=8)


OF_CELLS = (
    Plot(
        key="strategies",
        title="Speed, quality and resources of each strategy",
        shows="For each model: examples per second and CPU time per example over those of one process, the test metric,"
        " and the traffic of a worker (logarithmic axis). Bars: 90 % intervals over the seeds. A strategy that"
        " cannot train a model has no point.",
        expected="two workers are up to twice as fast, with the same test metric and more CPU time per example; local"
        " SGD has the least traffic.",
        claims=(
            "async_speed",
            "backup_speed",
            "sync_quality",
            "adaptive_quality",
            "async_quality",
            "local_bytes",
            "cpu",
        ),
        draw=_draw_table,
        level=real_clusters.LEVEL,
        size=(9.0, 7.0),
    ),
)
