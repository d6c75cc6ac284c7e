"""Rows of trained settings: as CSV, JSON and Markdown."""

from __future__ import annotations

import dataclasses
import shlex
import statistics
from collections.abc import Sequence

from benchmarks.settings import Setting
from benchmarks.trained import Outcome

_KB = 1000
_NOTHING = "–"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedRow:
    """The result of one setting, over its repetitions: medians, where nothing else is said.

    Attributes:
        name: of the rule or the transform.
        options: of the rule, or the transforms in order, as one types them.
        optimizer: on the ps tasks, and learning rate: "sgd 0.1".
        flags: all flags in which the settings differ, as one types them.
        workers: number of workers.
        global_steps: at the end of the last repetition.
        local_steps: of each worker in the last repetition, "400/400".
        test_accuracy: on 360 test examples, 0..1.
        test_accuracy_min: the lowest of the repetitions.
        staleness_mean: see `Outcome`.
        gradients_dropped: see `Outcome`.
        push_bytes_per_step: see `Outcome`; measured.
        push_bytes_computed: see `Outcome`.
        pull_bytes_per_step: see `Outcome`; measured.
        examples_per_sec: of all workers together.
        wall_secs: with the start of the processes.
        repetitions: number of runs.
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


def trained_row(name: str, setting: Setting, outcomes: Sequence[Outcome]) -> TrainedRow:
    """The row of a setting that was run at least once."""

    def median(field: str) -> float | None:
        values = [getattr(outcome, field) for outcome in outcomes]
        return None if None in values else statistics.median(values)

    return TrainedRow(
        name=name,
        options=" ".join(_options(setting)),
        optimizer=f"{setting.optimizer} {setting.learning_rate:g}",
        flags=shlex.join(setting.own_flags),
        workers=setting.num_workers,
        global_steps=outcomes[-1].global_step,
        local_steps="/".join(map(str, outcomes[-1].local_steps)),
        test_accuracy=median("accuracy"),
        test_accuracy_min=min(outcome.accuracy for outcome in outcomes),
        staleness_mean=median("staleness_mean"),
        gradients_dropped=median("gradients_dropped"),
        push_bytes_per_step=median("push_bytes_per_step"),
        push_bytes_computed=median("push_bytes_computed"),
        pull_bytes_per_step=median("pull_bytes_per_step"),
        examples_per_sec=median("examples_per_sec"),
        wall_secs=median("wall_secs"),
        repetitions=len(outcomes),
    )


def rules_markdown(rows: Sequence[TrainedRow]) -> str:
    """The table of update rules; bytes in KB (1000 bytes) per step of a worker."""
    return _markdown(
        ["rule", "options", "optimizer", "workers", "global steps", "local steps", "accuracy", "staleness", "dropped"]
        + ["push KB/step", "pull KB/step", "examples/s", "secs"],
        [
            [
                f"`{row.name}`",
                _code(row.options),
                row.optimizer,
                str(row.workers),
                str(row.global_steps),
                row.local_steps,
                _percent(row.test_accuracy),
                _number(row.staleness_mean, ".2f"),
                _number(row.gradients_dropped, ".0f"),
                _number(row.push_bytes_per_step, ".1f", _KB),
                _number(row.pull_bytes_per_step, ".1f", _KB),
                _number(row.examples_per_sec, ".0f"),
                _number(row.wall_secs, ".0f"),
            ]
            for row in rows
        ],
        num_left=3,
    )


def transforms_markdown(rows: Sequence[TrainedRow], baseline: str) -> str:
    """The table of gradient transforms.

    Args:
        rows: in this order.
        baseline: name of the row whose measured bytes the others are compared with.
    """
    base = next((row.push_bytes_per_step for row in rows if row.name == baseline), None)
    cells = []
    for row in rows:
        can_compare = base is not None and row.push_bytes_per_step
        cells.append(
            [
                f"`{row.name}`",
                _code(row.options),
                row.optimizer,
                _number(row.push_bytes_per_step, ".2f", _KB),
                _number(row.push_bytes_computed, ".2f", _KB),
                f"{base / row.push_bytes_per_step:.1f}" if can_compare else _NOTHING,
                _number(row.pull_bytes_per_step, ".2f", _KB),
                _percent(row.test_accuracy),
                str(row.global_steps),
                _number(row.examples_per_sec, ".0f"),
            ]
        )
    return _markdown(
        [
            "transform",
            "transforms in order",
            "optimizer",
            "push KB/step",
            "computed",
            "times fewer",
            "pull KB/step",
            "accuracy",
        ]
        + ["global steps", "examples/s"],
        cells,
        num_left=3,
    )


def _options(setting: Setting) -> list[str]:
    model = [] if setting.model == Setting.model else [f"--model={setting.model}"]
    pull = [] if setting.pull_dtype == Setting.pull_dtype else [f"--pull_dtype={setting.pull_dtype}"]
    return [*setting.options, *setting.transforms, *model, *pull]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int) -> str:
    rule = ["---" if column < num_left else "--:" for column in range(len(header))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *rows))


def _number(value: float | None, form: str, unit: float = 1) -> str:
    return _NOTHING if value is None else format(value / unit, form)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
