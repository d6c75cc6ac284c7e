"""Rows and tables of trained settings: a table of update rules, and a table of gradient transforms."""

from __future__ import annotations

import dataclasses
import shlex
import statistics
from collections.abc import Sequence
from typing import Any, TypeVar

from benchmarks.report import ResultColumn, Row, markdown
from benchmarks.settings import TrainingSetting
from benchmarks.training_outcome import TrainingOutcome

BASELINE = "none"  # the transform whose measured bytes the others are compared with

_KB = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedRow(Row):
    """The result of one setting: medians over its repetitions, where nothing else is said.

    Attributes:
        name: Name of the rule or the transform.
        options: Options of the rule, or the transforms in order, as a user types them.
        optimizer: Optimizer on the ps tasks, and learning rate: "sgd 0.1".
        flags: All flags in which the settings differ, as a user types them.
        workers: Number of workers.
        global_steps: Value of global_step at the end of the last repetition.
        local_steps: Steps of each worker in the last repetition, "400/400".
        test_accuracy: Accuracy on 360 test examples, 0..1.
        test_accuracy_min: The lowest of the repetitions.
        staleness_mean: Mean staleness of all used gradients; None if nothing was measured.
        gradients_dropped: Number of dropped gradients of all workers; None if the rule drops none.
        push_bytes_per_step: Measured bytes from a worker to the ps tasks, mean over all workers' steps.
        push_bytes_computed: Computed size of the tensors of one push; None if nothing is pushed.
        pull_bytes_per_step: Measured bytes from the ps tasks to a worker, mean over all workers' steps.
        examples_per_sec: Examples per second of all workers together.
        wall_secs: Seconds of the run, including the start of the processes.
        repetitions: Number of runs.
    """

    name: str
    options: str
    optimizer: str
    flags: str
    workers: int
    global_steps: int
    local_steps: str
    test_accuracy: float
    test_accuracy_min: float
    staleness_mean: float | None
    gradients_dropped: float | None
    push_bytes_per_step: float | None
    push_bytes_computed: float | None
    pull_bytes_per_step: float | None
    examples_per_sec: float
    wall_secs: float
    repetitions: int

    def line(self) -> str:
        """Returns the result in a sentence."""
        return f"{self.name}: {100 * self.test_accuracy:.1f} %, {self.global_steps} steps, {self.wall_secs:.0f} s"


_NAME = ResultColumn("", lambda row: f"`{row.name}`")
_OPTIONS = ResultColumn("", lambda row: f"`{row.options}`" if row.options else "")
_OPTIMIZER = ResultColumn("optimizer", "optimizer")
_STEPS = ResultColumn("global steps", "global_steps")
_ACCURACY = ResultColumn("accuracy", lambda row: f"{100 * row.test_accuracy:.1f} %")
_RATE = ResultColumn("examples/s", "examples_per_sec", ".0f")


class RuleRow(TrainedRow):
    """An update rule; bytes are in KB (1000 bytes) per step of a worker."""

    @classmethod
    def table(cls, rows: Sequence[TrainedRow]) -> str:
        """Returns two narrow tables that can be read: setting and result, and what the training took."""
        name = _NAME._replace(head="rule")
        result = [
            name,
            _OPTIONS._replace(head="options"),
            _OPTIMIZER,
            ResultColumn("workers", "workers"),
            _STEPS,
            _ACCURACY,
            ResultColumn("secs", "wall_secs", ".0f"),
        ]
        costs = [
            name,
            ResultColumn("local steps", "local_steps"),
            ResultColumn("staleness", "staleness_mean", ".2f"),
            ResultColumn("dropped", "gradients_dropped", ".0f"),
            ResultColumn("push KB/step", "push_bytes_per_step", ".1f", _KB),
            ResultColumn("pull KB/step", "pull_bytes_per_step", ".1f", _KB),
            _RATE,
        ]
        return f"Setting and result:\n\n{markdown(result, rows)}\nWhat it took:\n\n{markdown(costs, rows)}"


class TransformRow(TrainedRow):
    """A gradient transform; bytes are in KB (1000 bytes) per step of a worker."""

    @classmethod
    def table(cls, rows: Sequence[TrainedRow]) -> str:
        """Returns the table; *times fewer* compares measured bytes with those of `BASELINE`."""
        base = next((row.push_bytes_per_step for row in rows if row.name == BASELINE), None)
        columns = [
            _NAME._replace(head="transform"),
            _OPTIONS._replace(head="transforms in order"),
            _OPTIMIZER,
            ResultColumn("push KB/step", "push_bytes_per_step", ".2f", _KB),
            ResultColumn("computed", "push_bytes_computed", ".2f", _KB),
            ResultColumn(
                "times fewer", lambda row: base and row.push_bytes_per_step and base / row.push_bytes_per_step, ".1f"
            ),
            ResultColumn("pull KB/step", "pull_bytes_per_step", ".2f", _KB),
            _ACCURACY,
            _STEPS,
            _RATE,
        ]
        return markdown(columns, rows)


TrainedRowT = TypeVar("TrainedRowT", bound=TrainedRow)


def trained_row(
    row_type: type[TrainedRowT], name: str, setting: TrainingSetting, outcomes: Sequence[TrainingOutcome]
) -> TrainedRowT:
    """Returns the row of a setting with at least one outcome."""

    def median(field: str) -> Any:
        values = [getattr(outcome, field) for outcome in outcomes]
        return None if None in values else statistics.median(values)

    same_names = ["staleness_mean", "gradients_dropped", "push_bytes_per_step", "push_bytes_computed"]
    same_names += ["pull_bytes_per_step", "examples_per_sec", "wall_secs"]
    return row_type(
        name=name,
        options=" ".join(_options(setting)),
        optimizer=f"{setting.optimizer} {setting.learning_rate:g}",
        flags=shlex.join(setting.own_flags),
        workers=setting.num_workers,
        global_steps=outcomes[-1].global_step,
        local_steps="/".join(map(str, outcomes[-1].local_steps)),
        test_accuracy=median("accuracy"),
        test_accuracy_min=min(outcome.accuracy for outcome in outcomes),
        repetitions=len(outcomes),
        **{field: median(field) for field in same_names},
    )


def _options(setting: TrainingSetting) -> list[str]:
    model = [] if setting.model == TrainingSetting.model else [f"--model={setting.model}"]
    pull = [] if setting.pull_dtype == TrainingSetting.pull_dtype else [f"--pull_dtype={setting.pull_dtype}"]
    return [*setting.options, *setting.transforms, *model, *pull]
