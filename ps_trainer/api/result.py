"""`Result`: the outcome of a run that Python started."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ps_trainer.api.callbacks import Step
from ps_trainer.comparison import plots
from ps_trainer.comparison.style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run that is done.

    Attributes:
        summary: Content of summary.json, as the reference of files describes it. A task that joined a cluster and is
            not its chief has only its own part of it.
        history: Steps in the order in which they ended. In one process, all steps of the tasks there; from other
            processes, one entry for each report of a worker (`report_secs`).
        variables: Final values of the model's variables and slots and of `global_step`, by name; empty unless this
            process had the chief, or the run wrote checkpoints.
        stop_reason: Sentence of the callback that stopped the run; empty if none did.
        logdir: Folder with the files of the run, or None.
    """

    summary: Mapping[str, Any]
    history: Sequence[Step] = ()
    variables: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict, repr=False)
    stop_reason: str = ""
    logdir: str | None = None

    @property
    def global_step(self) -> int:
        """`global_step` at the end; without the chief's summary, the last that a worker of this process saw."""
        seen = max((step.global_step for step in self.history), default=0)
        return int(self.summary.get("global_step", seen))

    @property
    def metrics(self) -> Mapping[str, float]:
        """Test metrics of the last parameters by name; empty without test data."""
        return dict(self.summary.get("metrics", {}))

    @property
    def loss(self) -> float:
        """Mean training loss of the last tenth of the steps, which is less noisy than the last one.

        Raises:
            ValueError: No worker of this result has completed a step.
        """
        losses = [step.loss for step in self.history]
        if not losses:
            raise ValueError("no worker has completed a step, so this result has no loss")
        last = losses[-max(1, len(losses) // 10) :]
        return sum(last) / len(last)

    @property
    def staleness(self) -> Mapping[int, int]:
        """Number of used gradients by staleness, of all workers together."""
        total: Counter[int] = Counter()
        for worker in self.summary.get("workers", {}).values():
            total.update({int(value): int(count) for value, count in worker.get("staleness", {}).items()})
        return dict(sorted(total.items()))

    @property
    def staleness_mean(self) -> float | None:
        """Mean of `staleness`; None if no gradient was used."""
        counts = self.staleness
        return sum(value * count for value, count in counts.items()) / sum(counts.values()) if counts else None

    def plot(self) -> Figure:
        """Draws the training loss over `global_step`, a line for each worker, and the staleness of the gradients.

        Returns:
            A figure of matplotlib, which a notebook shows; `figure.savefig("run.png")` writes it.

        Raises:
            UsageError: The package matplotlib is not installed.
        """
        plots.check_available()
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(9.0, 3.4))
            FigureCanvasAgg(figure)
            loss, staleness = figure.subplots(1, 2)
            self._draw_loss(loss)
            counts = self.staleness
            bars = Counter({min(value, plots.MAX_STALENESS): 0 for value in counts})
            for value, count in counts.items():
                bars[min(value, plots.MAX_STALENESS)] += count
            staleness.bar(list(bars), list(bars.values()))
            staleness.set_xlabel("staleness")
            staleness.set_ylabel("gradients")
        return figure

    def _draw_loss(self, axes: Any) -> None:
        for worker in sorted({step.worker for step in self.history}):
            steps = [step for step in self.history if step.worker == worker]
            values = np.array([step.loss for step in steps])
            # Means of neighbours: noise of single steps would hide the course.
            size = max(1, len(steps) // plots.MAX_POINTS)
            ends = range(0, len(steps), size)
            means = [values[first : first + size].mean() for first in ends]
            axes.plot([steps[first].global_step for first in ends], means, label=f"worker {worker}")
        axes.set_xlabel("global step")
        axes.set_ylabel("training loss")
        if self.history:
            axes.legend()

    def __str__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items()) or "no test metrics"
        mean = self.staleness_mean
        return f"step {self.global_step}: {metrics}; mean staleness {'none' if mean is None else f'{mean:.2f}'}"
