"""Settings of tasks: threads, queues, messages, malloc, oneDNN and Grappler, each beside the default.

    python -m benchmarks.task_settings
    python -m benchmarks.task_settings --workloads=wide --settings=queues,pieces

Trains each workload asynchronously with 1 ps task and 2 workers. The defaults and all other values take turns, so that
a slow minute of the machine affects all of them alike. README.md has the results.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments
from benchmarks.contenders import PEERS_MODE, Cell, CellJob, PsTrainer
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.report import Report, ResultColumn, Row
from benchmarks.step_rate_run import Measurement, RunTiming, measure
from ps_trainer.errors import RunError

DEFAULT = "default"
_WORKLOADS = ("deep", "wide", "large", "table", "resnet")
# Larger frames and reads of gRPC, as people set them for large messages.
_LARGE_FRAMES = (
    "grpc.http2.max_frame_size=16777215,grpc.http2.lookahead_bytes=33554432,"
    "grpc.experimental.tcp_max_read_chunk_size=16777216,grpc.experimental.tcp_read_chunk_size=4194304"
)


class OtherValue(NamedTuple):
    """A value of a setting that is not its default.

    Attributes:
        setting: Name of the setting.
        value: Value, as the table shows it.
        environ: Environment variables of all tasks.
        flags: Flags of all tasks.
        worker_flags: Flags of the workers.
    """

    setting: str
    value: str
    environ: Mapping[str, str] = {}
    flags: Sequence[str] = ()
    worker_flags: Sequence[str] = ()


VALUES = (
    OtherValue("threads", "2 in an op", flags=("--intra_op_threads=2",)),
    OtherValue("threads", "4 ops at a time", flags=("--inter_op_threads=4",)),
    OtherValue("queues", "1", {"TF_GRPC_WORKER_CACHE_QUEUES": "1"}),
    OtherValue("queues", "64, TensorFlow's", {"TF_GRPC_WORKER_CACHE_QUEUES": "64"}),
    OtherValue("pieces", "4 MiB", worker_flags=("--layout_option=max_piece_bytes=4194304",)),
    OtherValue("pieces", "1 MiB", worker_flags=("--layout_option=max_piece_bytes=1048576",)),
    OtherValue("channels", "large frames", {"TF_GRPC_DEFAULT_OPTIONS": _LARGE_FRAMES}),
    OtherValue("grappler", "on", worker_flags=("--grappler",)),
    OtherValue("onednn", "off", {"TF_ENABLE_ONEDNN_OPTS": "0"}),
    # Any tunable of malloc makes a task leave malloc as it is; this one changes nothing by itself.
    OtherValue("malloc", "glibc's", {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}),
    OtherValue("calls", "1 step each", worker_flags=("--steps_per_call=1",)),
)
SETTINGS = tuple(dict.fromkeys(value.setting for value in VALUES))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettingRow(Row):
    """A value of a setting on one workload, over its repetitions.

    Attributes:
        workload: Name of the workload.
        setting: Name of the setting, or "default".
        value: Value; empty for the defaults.
        cpu_ms: CPU milliseconds of all tasks per step of a worker, median.
        cpu_over_default: Median over the rounds of its CPU time ÷ that of the defaults in the same round.
        cpu_over_default_min: The lowest of the rounds.
        cpu_over_default_max: The highest.
        rate_over_default: The same median of step rates.
        steps_per_sec: Steps per second of one worker, median.
        other_cores: Cores that other processes used meanwhile, median.
        repetitions: Number of rounds.
    """

    COLUMNS = (
        *(ResultColumn(name, name) for name in ("workload", "setting", "value")),
        ResultColumn("CPU ms/step", "cpu_ms", ".2f"),
        ResultColumn("÷ default", "cpu_over_default", ".2f"),
        ResultColumn("lowest", "cpu_over_default_min", ".2f"),
        ResultColumn("highest", "cpu_over_default_max", ".2f"),
        ResultColumn("steps/s", "steps_per_sec", ".1f"),
        ResultColumn("÷ default", "rate_over_default", ".2f"),
        ResultColumn("other cores", "other_cores", ".1f"),
    )

    workload: str
    setting: str
    value: str
    cpu_ms: float
    cpu_over_default: float
    cpu_over_default_min: float
    cpu_over_default_max: float
    rate_over_default: float
    steps_per_sec: float
    other_cores: float
    repetitions: int


def main(argv: Sequence[str]) -> int:
    """Measures the settings; returns 0, or 1 when a run failed: its value has no row."""
    parser = arguments.create_parser("benchmarks.task_settings", __doc__)
    parser.add_argument(
        "--workloads", type=arguments.choices(PEER_WORKLOADS), default=",".join(_WORKLOADS), help="models to train"
    )
    parser.add_argument("--settings", type=arguments.choices(SETTINGS), default=",".join(SETTINGS), help="settings")
    parser.add_argument("--repetitions", type=arguments.at_least(1), default=5, help="rounds")
    parser.add_argument("--seconds", type=arguments.secs, default=2.0, help="shortest measured window")
    arguments.add_deadline(parser, 120.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/task_settings")
    report = Report("benchmarks.task_settings", argv, folder)
    timing = RunTiming(warmup_secs=1.0, window_secs=flags.seconds, deadline_secs=flags.deadline_secs)
    values = [OtherValue(DEFAULT, ""), *(value for value in VALUES if value.setting in flags.settings)]
    has_failed = False
    for workload in flags.workloads:
        runs: list[list[Measurement | None]] = [[] for _ in values]
        for repetition in range(flags.repetitions):
            for number, value in enumerate(values):
                run_folder = folder / "runs" / f"{workload}-{number}-{repetition}"
                try:
                    runs[number].append(measure(_Contender(value), _cell(workload), timing, run_folder))
                except RunError as error:
                    print(f"error: {workload}, {value.setting} {value.value}: {error}", file=sys.stderr, flush=True)
                    has_failed = True
                    runs[number].append(None)
        for row in rows(workload, values, runs):
            report.add(row)
    return report.finish(has_failed=has_failed)


def rows(
    workload: str, values: Sequence[OtherValue], runs: Sequence[Sequence[Measurement | None]]
) -> list[TaskSettingRow]:
    """Returns a row for each value, over the rounds in which its run and that of the defaults have succeeded.

    Args:
        workload: Name of the workload.
        values: Defaults, and other values.
        runs: Runs of each value, by round; None for a failed run.
    """
    found = []
    for value, measured in zip(values, runs, strict=True):
        pairs = [(one, default) for one, default in zip(measured, runs[0], strict=True) if one and default]
        if pairs:
            found.append(_row(workload, value, pairs))
    return found


def _row(workload: str, value: OtherValue, pairs: Sequence[tuple[Measurement, Measurement]]) -> TaskSettingRow:
    cpu = [one.cpu_secs_per_step / default.cpu_secs_per_step for one, default in pairs]
    return TaskSettingRow(
        workload=workload,
        setting=value.setting,
        value=value.value,
        cpu_ms=1000 * statistics.median(one.cpu_secs_per_step for one, _ in pairs),
        cpu_over_default=statistics.median(cpu),
        cpu_over_default_min=min(cpu),
        cpu_over_default_max=max(cpu),
        rate_over_default=statistics.median(one.steps_per_sec / default.steps_per_sec for one, default in pairs),
        steps_per_sec=statistics.median(one.steps_per_sec for one, _ in pairs),
        other_cores=statistics.median(one.other_cores for one, _ in pairs),
        repetitions=len(pairs),
    )


def _cell(workload: str) -> Cell:
    return Cell(workload, PEERS_MODE, num_ps=1, num_workers=2)


class _Contender(PsTrainer):
    """`async` with a value of a setting."""

    def __init__(self, value: OtherValue):
        super().__init__("packed", "async", flags=(*value.flags, *value.worker_flags))
        self.environ = value.environ
        self._ps_flags = value.flags

    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        return [*super().ps_command(job, task_index), *self._ps_flags]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
