"""Colours, shades and markers of plots: each means one thing in all panels of all experiments.

* A kind of updates, a distribution of step times, a rule for the learning rate and a part of a worker's time have a
  colour each, of a palette that colour-blind readers can tell apart. The palette has six colours, so a marker tells
  things of one colour apart.
* Values of a quantity (numbers of workers or ps tasks, staleness, …) have shades, from dark for the least to light for
  the greatest, which keep their order in grey.
* Black is a model or a published value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ps_trainer.comparison.style import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW
from ps_trainer.experiments.toolkit.step_times import Shape

_Number = TypeVar("_Number", int, float)

ASYNC, SYNC, SYNC_GLOBAL, TOKEN_QUEUE, RING, COLOCATED = BLUE, ORANGE, YELLOW, PURPLE, GREEN, SKY
SSP, SSP_CACHE = SKY, GREEN
SOCKETS = PURPLE
# Points of rules, in plots against a number of workers or a bound; the rules of a plot differ in grey, too.
ASYNC_POINTS, SYNC_POINTS, BACKUP_POINTS, SSP_POINTS, SSP_CACHE_POINTS, RING_POINTS = (
    {"color": colour, "marker": marker, "mfc": "none"}
    for colour, marker in ((ASYNC, "s"), (SYNC, "^"), (SYNC, "o"), (SSP, "v"), (SSP_CACHE, "D"), (RING, "x"))
)
# Rules for the learning rate: one for all settings; one that follows a number, or its root; one that varies in a run.
ONE_RATE, RATE_BY_NUMBER, RATE_BY_ROOT, RATE_THAT_VARIES = PURPLE, SKY, YELLOW, GREEN
RATE_MARKERS = {ONE_RATE: "P", RATE_BY_NUMBER: "X", RATE_BY_ROOT: "<", RATE_THAT_VARIES: ">"}
COMPUTES, COMMUNICATES, WAITS = GREEN, SKY, "0.85"
MEASURED = BLUE  # where all data are of one kind

_DARKEST, _LIGHTEST = 0.15, 0.85  # of the colour map; darker shades look black, and lighter ones are faint on white

SHAPE_COLOURS: dict[str, str] = {
    Shape.EVEN: SKY,
    Shape.MODERATE: PURPLE,
    Shape.EXPONENTIAL: GREEN,
    Shape.NARROW: YELLOW,
    Shape.SHIFTED: BLUE,
}
SHAPE_MARKERS: dict[str, str] = {
    Shape.EVEN: "s",
    Shape.MODERATE: "^",
    Shape.EXPONENTIAL: "o",
    Shape.NARROW: "D",
    Shape.SHIFTED: "v",
}


def of_shape(shape: str) -> dict[str, str]:
    """Returns colour and marker of a distribution of step times, as arguments of `Axes.plot`."""
    return {"color": SHAPE_COLOURS[shape], "marker": SHAPE_MARKERS[shape], "mfc": "none"}


def shades(values: Iterable[_Number]) -> dict[_Number, str]:
    """Returns a colour for each value of a quantity."""
    from matplotlib import colormaps, colors

    ordered = sorted(set(values))
    most = max(1, len(ordered) - 1)
    shade = colormaps["viridis"]
    places = {value: _DARKEST + (_LIGHTEST - _DARKEST) * place / most for place, value in enumerate(ordered)}
    return {value: colors.to_hex(shade(place)) for value, place in places.items()}
