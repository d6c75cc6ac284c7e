"""The plots of the experiment on backup workers among many workers, and the words below them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ps_trainer.experiments.harness.plots import Figure, Plot, finish
from ps_trainer.experiments.harness.targets import Samples, draw_course, draw_samples
from ps_trainer.experiments.toolkit import looks
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import LARGE_BATCH, SMALL_BATCH, AtScale, Delays, TimedTraffic, UpdateKind
from .claims import BEST_MEDIAN, FOUR

_STYLES: dict[str, dict[str, str]] = {
    UpdateKind.ASYNC: {**looks.ASYNC_POINTS, "ls": ":"},
    UpdateKind.SYNC: {**looks.SYNC_POINTS, "ls": "--"},
    UpdateKind.BACKUP: {**looks.BACKUP_POINTS, "ls": "-"},
}
_TRAFFIC_STYLES = {
    (Delays.STRAGGLERS, True): {"color": "0.35", "marker": "o", "ls": "-"},
    (Delays.STRAGGLERS, False): {"color": "0.35", "marker": "s", "ls": "--"},
    (Delays.VARIED, True): looks.of_shape(Shape.NARROW),
}


def _draw_accuracies(figure: Figure, cases: Sequence[AtScale]) -> None:
    left, right = figure.subplots(1, 2)
    for (place, (updates, style)), batch_size in itertools.product(
        enumerate(_STYLES.items()), (LARGE_BATCH, SMALL_BATCH)
    ):
        own = [case for case in cases if (case.updates, case.batch_size) == (updates, batch_size)]
        own.sort(key=lambda case: case.n)
        # Beside the points of the same n, and of each other.
        shift = 1.12 ** (1 + place) if batch_size == SMALL_BATCH else 1.0
        percent = {case.n * shift: Samples.known([100 * one for one in case.accuracies]) for case in own}
        times = {case.n * shift: case.samples("times") for case in own}
        filled = {"mfc": style["color"], "label": "_"} if batch_size == SMALL_BATCH else {}
        if own:
            draw_samples(left, percent, **{"label": updates, **style, **filled})
            draw_samples(right, times, **{"label": updates, **style, **filled})
    left.plot([], [], "o", color="0.4", label="filled: batches of 1")
    finish(left, "workers n", "final test accuracy, median (%)", log="x", fontsize=7)
    finish(right, "workers n", "time to the target / mean step", log="xy", fontsize=7)
    left.set_yscale("linear")


def _draw_curves(figure: Figure, cases: Sequence[AtScale]) -> None:
    axis, largest = figure.add_subplot(), max(case.n for case in cases)
    smallest = min(case.batch_size for case in cases)
    for case in (one for one in cases if (one.n, one.batch_size) == (largest, smallest)):
        style = {**_STYLES[case.updates], "marker": "", "lw": 1.5, "label": case.name}
        draw_course(axis, case.course("times")[0], 100 * case.course("accuracies"), **style)
    axis.set_ylim(bottom=60)
    finish(axis, "time / mean step", "test accuracy (%)", log="x")


def _draw_traffic(figure: Figure, cases: Sequence[TimedTraffic]) -> None:
    axis = figure.add_subplot()
    for kind, look in _TRAFFIC_STYLES.items():
        own = sorted((case for case in cases if (case.delays, case.has_transfers) == kind), key=lambda case: case.b)
        if not own:
            continue
        draw_samples(axis, {case.b: Samples.known(case.medians) for case in own}, label=own[0].cluster, **look)
    axis.plot([FOUR], [BEST_MEDIAN.value], "k*", ms=9, label=BEST_MEDIAN.origin)
    axis.xaxis.get_major_locator().set_params(integer=True)
    finish(axis, "backup workers b", "median time per update (s)", fontsize=7)


OF_TRAINING = (
    Plot(
        key="accuracies",
        title="Final test accuracy, and time to a test accuracy",
        shows="Left: test accuracy at the end. Right: time to the target accuracy, in mean steps. Both against the"
        " number of workers: medians, bars from the 10th to the 90th percentile, each arm at its own learning rate."
        " Batches of a worker have 4 examples; filled: 1, drawn a little to the right.",
        expected="with many workers synchronous training with backup workers is highest at the left and lowest at the"
        " right.",
        claims=(
            *("accuracy", "sooner_than_async", "sooner_than_sync", "accuracy_of_large", "sooner_of_large"),
            *("accuracy_of_some", "falls", "same"),
        ),
        draw=_draw_accuracies,
        size=(8.0, 3.8),
    ),
    Plot(
        key="curves",
        title="Test accuracy against time, 64 workers with batches of 1",
        shows="Median test accuracy above 60 % against time in mean steps (logarithmic axis); bands from the 10th to"
        " the 90th percentile. All arms use the same number of examples.",
        expected="the curve of synchronous training with backup workers is first and ends highest.",
        claims=("accuracy", "sooner_than_async", "sooner_than_sync"),
        draw=_draw_curves,
    ),
)

OF_TRAFFIC = (
    Plot(
        key="traffic",
        title="Median time per update against backup workers, N = 50",
        shows="Median time per update, the median over the seeds, against the number of backup workers; bars from the"
        " 10th to the 90th percentile. Star: the published median.",
        expected="with few stragglers the time falls up to 4 backup workers, and grows beyond if there are transfers;"
        " where every step varies it goes on falling.",
        claims=("fifth", "without_traffic", "varied", "published_median"),
        draw=_draw_traffic,
    ),
)
