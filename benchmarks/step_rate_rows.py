"""The rows and the table of the step-rate benchmark."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.contenders import ASYNC, BATCH_SIZE, PEERS_MODE, STOCK, Cell
from benchmarks.peer_contenders import BARE_OPS, BARE_OPS_LOOP, LIMITS, OWN
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.report import ResultColumn, Row, markdown
from benchmarks.step_rate_run import Measurement


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRateRow(Row):
    """The result of one contender in one cell, over its repetitions.

    Attributes:
        workload: Name of the workload.
        mode: "async", "sync", "rules" or "peers".
        ps: Number of ps tasks.
        workers: Number of workers.
        who: Name of the contender.
        steps_per_sec: Steps per second of one worker (mean over the workers), median over repetitions.
        steps_per_sec_min: The lowest of the repetitions.
        steps_per_sec_max: The highest.
        examples_per_sec: Examples per second of all workers together, median.
        ratio_to_stock: Ratio to the `steps_per_sec` of the stock script; None without one.
        ratio_to_async: Ratio to update rule `async`; None if the contenders are not update rules.
        ratio_to_best_peer: Ratio to the fastest other system; None without one.
        share_of_engine: Ratio to the bare ops of TensorFlow, each step in a call; None without them.
        share_of_loop: Ratio to such ops with several steps in a call; None without them.
        cpu_secs_per_step: CPU seconds of all tasks, ps and workers, per step of a worker; median.
        other_cores: Cores that other processes used meanwhile, median; well above 0, the rates are too low.
        repetitions: Number of runs.
    """

    COLUMNS = (
        *(ResultColumn(name, name) for name in ("workload", "mode", "ps", "workers", "who")),
        ResultColumn("steps/s", "steps_per_sec", ".1f"),
        ResultColumn("lowest", "steps_per_sec_min", ".1f"),
        ResultColumn("highest", "steps_per_sec_max", ".1f"),
        ResultColumn("examples/s", "examples_per_sec", ".0f"),
        ResultColumn("CPU ms/step", lambda row: 1000 * row.cpu_secs_per_step, ".1f"),
        ResultColumn("other cores", "other_cores", ".1f"),
    )

    workload: str
    mode: str
    ps: int
    workers: int
    who: str
    steps_per_sec: float
    steps_per_sec_min: float
    steps_per_sec_max: float
    examples_per_sec: float
    ratio_to_stock: float | None
    ratio_to_async: float | None
    ratio_to_best_peer: float | None = None
    share_of_engine: float | None = None
    share_of_loop: float | None = None
    cpu_secs_per_step: float
    other_cores: float
    repetitions: int

    def line(self) -> str:
        """Returns the row as a line of JSON."""
        return json.dumps(self.values())

    @classmethod
    def table(cls, rows: Sequence[StepRateRow]) -> str:
        """Returns the table, with the ratio that the contenders have."""
        if rows[0].mode == PEERS_MODE:
            loop = [_LOOP_COLUMN] if any(row.share_of_loop is not None for row in rows) else []
            return markdown([*cls.COLUMNS[:8], *_PEER_COLUMNS, *loop, *cls.COLUMNS[9:]], rows)
        is_to_stock = rows[0].ratio_to_async is None
        ratio = ("÷ stock", "ratio_to_stock") if is_to_stock else ("÷ async", "ratio_to_async")
        return markdown([*cls.COLUMNS[:9], ResultColumn(*ratio, ".2f"), *cls.COLUMNS[9:]], rows)


_PEER_COLUMNS = (
    ResultColumn("÷ stock", "ratio_to_stock", ".2f"),
    ResultColumn("÷ best peer", "ratio_to_best_peer", ".2f"),
    ResultColumn("÷ bare ops", "share_of_engine", ".2f"),
)
_LOOP_COLUMN = ResultColumn("÷ bare ops in a loop", "share_of_loop", ".2f")


def rows(cell: Cell, measurements: Mapping[str, Sequence[Measurement]]) -> list[StepRateRow]:
    """Returns one row for each contender.

    Args:
        cell: Cell that the contenders ran.
        measurements: Repetitions of each contender, at least one, by name.
    """
    medians = {who: statistics.median(m.steps_per_sec for m in runs) for who, runs in measurements.items() if runs}
    return [_row(cell, who, repetitions, medians) for who, repetitions in measurements.items() if repetitions]


def _row(cell: Cell, who: str, repetitions: Sequence[Measurement], medians: Mapping[str, float]) -> StepRateRow:
    rates = [m.steps_per_sec for m in repetitions]
    rate = medians[who]
    is_peers = cell.mode == PEERS_MODE
    peers = [median for name, median in medians.items() if is_peers and name not in (*OWN, *LIMITS)]
    batch_size = PEER_WORKLOADS[cell.workload].batch_size if is_peers else BATCH_SIZE
    return StepRateRow(
        workload=cell.workload,
        mode=cell.mode,
        ps=cell.num_ps,
        workers=cell.num_workers,
        who=who,
        steps_per_sec=rate,
        steps_per_sec_min=min(rates),
        steps_per_sec_max=max(rates),
        examples_per_sec=rate * cell.num_workers * batch_size,
        ratio_to_stock=rate / medians[STOCK] if STOCK in medians else None,
        ratio_to_async=rate / medians[ASYNC] if ASYNC in medians and not is_peers else None,
        ratio_to_best_peer=rate / max(peers) if peers else None,
        share_of_engine=rate / medians[BARE_OPS] if is_peers and BARE_OPS in medians else None,
        share_of_loop=rate / medians[BARE_OPS_LOOP] if is_peers and BARE_OPS_LOOP in medians else None,
        cpu_secs_per_step=statistics.median(m.cpu_secs_per_step for m in repetitions),
        other_cores=statistics.median(m.other_cores for m in repetitions),
        repetitions=len(repetitions),
    )
