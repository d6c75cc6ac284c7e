"""The rows of the anatomy: one for each kind of call, RPC, message, copy and op of a step, and for its totals."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.report import ResultColumn, Row, markdown
from benchmarks.step_rate_run import Measurement

if TYPE_CHECKING:  # it imports TensorFlow
    from benchmarks.anatomy.step_anatomy import CallAnatomy, Messages, StepAnatomy

WORKERS, PS_TASKS = "workers", "ps tasks"

# Further and smaller ones stand in results.csv only.
_MAX_SHOWN = 8  # tensors from one task to another
_SMALL_COPY_BYTES = 1024
_LEAST_THREAD_SHARE = 0.02  # of the CPU time of a step


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnatomyRow(Row):
    """One thing that a step of a worker makes.

    Attributes:
        path: Update rule, layout and workload, "async/packed/deep".
        steps_per_call: Number of steps in a call of the path; None for a limit.
        what: "call", "fetch", "RPC", "message", "one of many" messages that another row sums up, "copy", "op", "ops",
            "CPU", the part of it of "threads" of one name, "rate" or "share" of a limit's rate.
        task: Task that makes it: the caller of an RPC, the sender of a message.
        to: Receiver of a message; empty for everything else.
        name: Name of the RPC, tensor, or type of op.
        per_step: How often in a step; steps/s of a worker in a rate.
        bytes_per_step: Bytes in a step; None where there are none.
        micros_per_step: Microseconds in a step: wall time in the kernels of ops, CPU time of tasks.
    """

    COLUMNS = (
        ResultColumn("path", "path"),
        ResultColumn("steps in a call", "steps_per_call"),
        *(ResultColumn(name, name) for name in ("what", "task", "to", "name")),
        ResultColumn("per step", "per_step", ".6g"),
        ResultColumn("bytes", "bytes_per_step", ".0f"),
        ResultColumn("µs", "micros_per_step", ".0f"),
    )

    path: str
    steps_per_call: int | None = None
    what: str
    task: str
    to: str = ""
    name: str = ""
    per_step: float | None = None
    bytes_per_step: float | None = None
    micros_per_step: float | None = None

    @property
    def is_detail(self) -> bool:
        """Whether the row stands in `results.csv` only: an op's type, a small copy, or one message of many."""
        return self.what in ("op", "one of many") or (
            self.what == "copy" and (self.bytes_per_step or 0) < _SMALL_COPY_BYTES
        )

    @classmethod
    def table(cls, rows: Sequence[AnatomyRow]) -> str:
        """Returns the table, without details."""
        return markdown(cls.COLUMNS, [row for row in rows if not row.is_detail])


def step_rows(path: str, step: StepAnatomy) -> list[AnatomyRow]:
    """Returns the rows of one worker's step; those of a call of several steps are divided by their number."""
    rows = [row for number, call in enumerate(step.calls) for row in _call_rows(path, step.worker, number, call)]
    return _in_mode(rows, step.steps_per_call)


def cpu_rows(path: str, measurement: Measurement, steps_per_call: int | None = None) -> list[AnatomyRow]:
    """Returns the rows of a run with processes: the rate of a worker, and CPU time per step on both sides.

    Args:
        path: Name of the path, or of a limit.
        measurement: Figures of the run.
        steps_per_call: Number of steps in a call of the path; None for a limit.
    """
    secs, ps_secs = measurement.cpu_secs_per_step, measurement.ps_cpu_secs_per_step
    rows = [
        AnatomyRow(path=path, what="CPU", task=WORKERS, micros_per_step=1e6 * (secs - ps_secs)),
        AnatomyRow(path=path, what="CPU", task=PS_TASKS, micros_per_step=1e6 * ps_secs),
        *_thread_rows(path, measurement),
        AnatomyRow(path=path, what="rate", task=WORKERS, name="steps/s of one", per_step=measurement.steps_per_sec),
    ]
    return _in_mode(rows, steps_per_call)


def _in_mode(rows: Sequence[AnatomyRow], steps_per_call: int | None) -> list[AnatomyRow]:
    return [dataclasses.replace(row, steps_per_call=steps_per_call) for row in rows]


def _thread_rows(path: str, measurement: Measurement) -> Iterator[AnatomyRow]:
    of_threads = measurement.thread_secs_per_step
    for kind, secs in sorted(of_threads.items(), key=lambda item: (item[0].job_name == "ps", -item[1])):
        if secs >= _LEAST_THREAD_SHARE * measurement.cpu_secs_per_step:
            task = PS_TASKS if kind.job_name == "ps" else WORKERS
            yield AnatomyRow(path=path, what="threads", task=task, name=kind.name, micros_per_step=1e6 * secs)


def share_rows(path: str, own: Sequence[AnatomyRow], limits: Sequence[AnatomyRow]) -> list[AnatomyRow]:
    """Returns the rate of a path as a share of each limit's.

    Args:
        path: Name of the path.
        own: Rows of the path's run.
        limits: Rows of the limits' runs of the same workload.
    """
    rate, steps_per_call = next((row.per_step, row.steps_per_call) for row in own if row.what == "rate")
    shares = [
        AnatomyRow(path=path, what="share", task=WORKERS, name=f"of {row.path}", per_step=rate / row.per_step)
        for row in limits
        if row.what == "rate" and row.per_step and rate is not None
    ]
    return _in_mode(shares, steps_per_call)


def _call_rows(path: str, worker: str, number: int, call: CallAnatomy) -> Iterator[AnatomyRow]:
    yield AnatomyRow(path=path, what="call", task=worker, name=f"session call {number + 1}", per_step=call.per_step)
    fetched = call.num_fetched * call.per_step
    yield AnatomyRow(path=path, what="fetch", task=worker, name="tensors returned to Python", per_step=fetched)
    for (task, name), count in call.rpcs(worker).items():
        yield AnatomyRow(path=path, what="RPC", task=task, name=name, per_step=count * call.per_step)
    by_way: dict[tuple[str, str], list[Messages]] = {}
    for messages in call.messages:
        by_way.setdefault((messages.edge.sender, messages.edge.receiver), []).append(messages)
    for (sender, receiver), found in by_way.items():
        if len(found) > _MAX_SHOWN:
            name = f"{len(found)} tensors"
            yield _message_row(path, sender, receiver, name, call.per_step, found)
        for messages in found:
            what = "one of many" if len(found) > _MAX_SHOWN else "message"
            row = _message_row(path, sender, receiver, messages.edge.tensor, call.per_step, [messages])
            yield dataclasses.replace(row, what=what)
    yield from _op_rows(path, call)


def _message_row(
    path: str, sender: str, receiver: str, name: str, per_step: float, messages: Sequence[Messages]
) -> AnatomyRow:
    return AnatomyRow(
        path=path,
        what="message",
        task=sender,
        to=receiver,
        name=name,
        per_step=sum(one.num_messages for one in messages) * per_step,
        bytes_per_step=sum(one.num_bytes for one in messages) * per_step,
    )


def _op_rows(path: str, call: CallAnatomy) -> Iterator[AnatomyRow]:
    counts: collections.Counter[str] = collections.Counter()
    micros: collections.Counter[str] = collections.Counter()
    for (task, name), cost in call.ops.items():
        counts[task] += cost.num_ops
        micros[task] += cost.micros
        row = AnatomyRow(
            path=path,
            what="op",
            task=task,
            name=name,
            per_step=cost.num_ops * call.per_step,
            micros_per_step=cost.micros * call.per_step,
        )
        yield row
        if cost.copied_bytes:
            yield dataclasses.replace(row, what="copy", bytes_per_step=cost.copied_bytes * call.per_step)
    for task, count in counts.items():
        yield AnatomyRow(
            path=path,
            what="ops",
            task=task,
            name="all",
            per_step=count * call.per_step,
            micros_per_step=micros[task] * call.per_step,
        )
