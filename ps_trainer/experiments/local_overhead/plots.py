"""The plot of the experiment on the cost of a ps task, and its caption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.toolkit import looks

from .cases import SizedModel, line_of, line_text


def _draw(figure: Figure, sizes: Sequence[SizedModel]) -> None:
    axis = figure.add_subplot()
    sizes = sorted(sizes, key=lambda size: size.megabytes)
    style = {"marker": "o", "color": looks.MEASURED, "label": "ps_trainer"}
    megabytes = [size.megabytes for size in sizes]
    draw_estimates(axis, megabytes, [size.overhead for size in sizes], **style)
    medians, *ends = np.array([size.local for size in sizes]).T  # then 10th and 90th percentile
    bars = np.abs(np.array(ends) - medians)
    axis.errorbar(megabytes, medians, bars, fmt="x:", color="0.4", lw=0.8, capsize=2, label="whole step of one process")
    stock = [size for size in sizes if size.has_stock]
    style = {"marker": "s", "color": looks.TOKEN_QUEUE, "label": "TF1 script"}
    draw_estimates(axis, [size.megabytes for size in stock], [size.more_ms("stock_ms") for size in stock], **style)
    line = line_of(sizes)
    if line:
        low, high = sizes[0].megabytes, sizes[-1].megabytes
        grid = [low * (high / low) ** (i / 50) for i in range(51)]
        axis.plot(grid, [line.at(megabytes) for megabytes in grid], "k-", lw=1, label=line_text(line))
    axis.set(xscale="log", yscale="log")
    finish(axis, "parameters, MB", "ms per step")


PLOTS = (
    Plot(
        key="overhead",
        title="What one ps task adds to a step",
        shows="Time against the size of the model, both axes logarithmic: circles, what a step with a ps task takes"
        " more than one without, and its 90 % interval; squares, the same of the TF1 script; crosses, the step"
        " without, median and from the 10th to the 90th percentile of the seeds; black line, the fitted a + b·M.",
        expected="a constant for small models and growth in proportion to the size for large ones, so that the circles"
        " follow the black line; the squares lie above the circles.",
        claims=("slower", "linear", "over_stock"),
        draw=_draw,
        data=lambda overheads: overheads.timed,
        level=Level.PROCESSES,
    ),
)
