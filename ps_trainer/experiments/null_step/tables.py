"""Tables and notes of the experiment on the null step."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.base import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.sized_settings import PAPER_STEP_SECS, Curve

from .cases import NullSteps, StepCase

_NOTES = (
    "A step lasts from the moment at which every worker has an update's parameters to the same moment of the next"
    " update. The delay between pull and push, where there is one, is taken off; what the operating system adds to"
    " wake a process is not.",
    "Bytes per step are what one worker, the chief only where it is alone, received and sent: on shaped hosts by the"
    " counters of its host's interface, headers included, on one machine by the kernel's counts of its connections.",
    "The gradient of these models is what was pulled, times 1: no constant can stand for it, and TensorFlow's graph"
    " rewriting is off. Tables are written in full before the first step, so no page is touched for the first time in"
    " one; gradients of tables travel as rows and ids (`sgd` applies them row by row).",
    "Where the step with the larger table is the shorter one, the difference is not the table's: single runs on cores"
    " that others use differ by as much, and so does a dense step of one worker from the prediction.",
    "On few cores the scalar step of one machine's processes grows as they wait for a core: all workers wake at the"
    " same moment, and n + p processes share the cores, where the source has a machine for each.",
    "The prediction has all pulls and then all pushes. A worker that has its parameters before the others begins to"
    " push while they still pull, on the other direction of the ps tasks' links, and the step is shorter, by at most"
    " the time from the first worker to the last one: the prediction, and a few per cent for the work of the"
    " processors, lies between the step and the step with that time added. With even shares of the link nothing is"
    " saved; with workers served one after the other the step would be (n + 1)/(2n) of the prediction. So 4 workers"
    " and one ps task, whose shares are least even, can fall below the claim's 15 %. Beside that, 64 KiB at each end"
    " of a link pass without waiting, which 1 MB notices.",
    "The source's dense numbers, read as a summary gives them, are shorter than a pull and then a push at 10 Gbit/s"
    " and longer than both at once: either its pulls and pushes overlapped in part, or its links were faster.",
)


def tables(steps: NullSteps) -> list[Table]:
    """A table of real runs for each level, and one at the source's scale."""
    cases, bytes_per_sec = steps
    made = []
    for level in (Level.PROCESSES, Level.SHAPED):
        own = [case for case in cases if case.level is level]
        if own:
            made.append(_real_table(level, own, bytes_per_sec if level is Level.SHAPED else None))
    virtual = [case for case in cases if case.level is Level.VIRTUAL]
    return [*made, _paper_table(virtual)] if virtual else made


def notes(steps: NullSteps) -> list[str]:
    """Sentences for the report."""
    cases, bytes_per_sec = steps
    contended = [case.name for case in cases if case.is_contended]
    return [
        *(
            [f"B as plain TCP transfers between two shaped hosts got it: {bytes_per_sec / 1e6:.2f} MB/s."]
            if bytes_per_sec
            else []
        ),
        *([f"CPU-contended and left out of the claims about time: {'; '.join(contended)}."] if contended else []),
        *_NOTES,
    ]


def _real_table(level: Level, cases: Sequence[StepCase], bytes_per_sec: float | None) -> Table:
    columns = (
        *texts("curve"),
        *numbers("d", "n", "p"),
        *numbers(".2f", "median step", "p10", "p90", unit="ms"),
        *numbers(".3g", "batches/s"),
        *numbers(",.0f", "bytes per step", "context switches per step"),
        *numbers(".1f", "first to last worker", "predicted", unit="ms"),
        *numbers(".2f", "step / predicted", "(step + first to last) / predicted"),
        *numbers("d", "runs"),
        *texts("CPU-contended"),
    )
    rows = []
    for case in cases:
        predicted = None
        if bytes_per_sec is not None and case.curve is Curve.DENSE:
            predicted = case.predicted_ms(bytes_per_sec)
        rows.append(
            [case.curve_name, case.n, case.p, *case.step_ms, 1000 / case.step_ms.median]
            + [case.bytes_per_step, case.switches_per_step, case.skew_ms, predicted]
            + [case.step_ms.median / predicted if predicted else None]
            + [(case.step_ms.median + case.skew_ms) / predicted if predicted else None, len(case.counted)]
            + ["yes" if case.is_contended else "no"]
        )
    return Table("Null steps", columns, rows, level)


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
