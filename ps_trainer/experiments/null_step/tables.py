"""Tables and notes of the experiment on the null step."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.sized_settings import TABLE_RATIO

from .cases import PAPER_STEP_SECS, Curve, NullSteps, StepCase, TablePair


def tables(steps: NullSteps) -> list[Table]:
    """Makes a table of real runs for each level, and a table at the source's scale."""
    cases, bytes_per_sec, pairs = steps.cases, steps.bytes_per_sec, steps.table_pairs
    level_tables = []
    for level in (Level.PROCESSES, Level.SHAPED):
        level_cases = [case for case in cases if case.level is level]
        if level_cases:
            level_tables.append(_real_table(level, level_cases, bytes_per_sec if level is Level.SHAPED else None))
        own = [pair for pair in pairs if pair.level is level]
        level_tables += [_pair_table(level, own)] if own else []
    virtual = [case for case in cases if case.level is Level.VIRTUAL]
    return [*level_tables, _paper_table(virtual)] if virtual else level_tables


def notes(steps: NullSteps) -> list[str]:
    """Returns the notes of the report."""
    bytes_per_sec = steps.bytes_per_sec
    contended = [case.name for case in steps.cases if case.is_contended]
    contended += [pair.name for pair in steps.table_pairs if pair.is_contended]
    return [
        *(
            [f"Plain TCP transfers between two shaped hosts give B = {bytes_per_sec / 1e6:.2f} MB/s."]
            if bytes_per_sec
            else []
        ),
        *(
            [f"The claims about time leave out the cases whose runs are not comparable: {'; '.join(contended)}."]
            if contended
            else []
        ),
    ]


def _real_table(level: Level, cases: Sequence[StepCase], bytes_per_sec: float | None) -> Table:
    columns = (
        *texts("curve"),
        *numbers("d", "n", "p"),
        *numbers(".2f", "median step", "p10", "p90", unit="ms"),
        *numbers(".3g", "batches/s"),
        *numbers(",.0f", "bytes per step", "context switches per step"),
        *numbers(".0f", "CPU", unit="%"),
        *numbers(".1f", "segments sent again per step", "packets dropped per step"),
        *numbers(".1f", "first to last worker", "predicted", unit="ms"),
        *numbers(".2f", "step / predicted", "(step + first to last) / predicted"),
        *numbers("d", "runs"),
        *texts("comparable"),
    )
    rows = []
    for case in cases:
        predicted = None
        if bytes_per_sec is not None and case.curve is Curve.DENSE:
            predicted = case.predicted_ms(bytes_per_sec)
        rows.append(
            [case.curve_name, case.n, case.p, *case.step_ms, 1000 / case.step_ms.median]
            + [case.bytes_per_step, case.switches_per_step, case.counted.cpu_percent]
            + [case.sent_again_per_step, case.dropped_per_step, case.skew_ms, predicted]
            + [case.step_ms.median / predicted if predicted else None]
            + [(case.step_ms.median + case.skew_ms) / predicted if predicted else None, len(case.counted)]
            + ["no" if case.is_contended else "yes"]
        )
    return Table("Null steps", columns, rows, level)


def _pair_table(level: Level, pairs: Sequence[TablePair]) -> Table:
    columns = (
        *texts("tables"),
        *numbers("d", "n", "p"),
        *numbers(".2f", "median step, small", "large", unit="ms"),
        *numbers(".3f", "large over small", "from", "to"),
        *numbers("d", "pairs of blocks"),
        *texts("comparable"),
    )
    rows = []
    for pair in pairs:
        ratio, ends = pair.ratio
        sizes = f"{pair.megabytes:g} MB and {TABLE_RATIO * pair.megabytes:g} MB"
        rows.append(
            [sizes, pair.n, pair.p, pair.step_ms("small"), pair.step_ms("large"), ratio, *ends, pair.num_blocks]
            + ["no" if pair.is_contended else "yes"]
        )
    return Table("Sparse steps that read two tables by turns", columns, rows, level)


def _paper_table(cases: Sequence[StepCase]) -> Table:
    columns = (
        *texts("curve"),
        *numbers("d", "n", "p"),
        *numbers(".1f", "median step", "p10", "p90", "the source's median, by a summary", unit="ms"),
        *numbers(".2f", "source / simulated"),
    )
    rows = []
    for case in cases:
        secs = PAPER_STEP_SECS.get((case.curve, case.megabytes), {}).get(case.n)
        source = None if secs is None else 1000 * secs
        ratio = None if source is None else source / case.step_ms.median
        rows.append([case.curve_name, case.n, case.p, *case.step_ms, source, ratio])
    return Table("At the source's scale", columns, rows)
