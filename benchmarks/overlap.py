"""Measures how far transfers overlap with computation, and with each other, on links of limited rate.

    python -m benchmarks.overlap --help

Each task is on a host of its own (`ps_trainer local --hosts=netns`, so root is needed). A model of 20 layers trains
three times: without computation, without transfers, and with both. README.md describes the results.

    overlap_setting    what is trained on which links
    overlap_model      the layers, which may pause
    overlap_sockets    the same transfers and pauses between plain sockets
    overlap_row        the times of a setting, as a row of the table
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import pathlib
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import arguments, overlap_sockets
from benchmarks.overlap_row import OverlapRow
from benchmarks.overlap_setting import NUM_LAYERS, Setting
from benchmarks.report import Report
from benchmarks.settings import RULES
from ps_trainer.config import TrainConfig
from ps_trainer.errors import RunError, UsageError
from ps_trainer.experiments.toolkit import shaped_clusters
from ps_trainer.experiments.toolkit.clusters import Cluster, flags_of
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster
from ps_trainer.launch.hosts_rate import parse_rate

_RUN_SECS, _SOCKET_SECS = 12.0, 6.0
_LEAST_STEPS, _MOST_STEPS = 6, 400
_LEAST_SOCKET_STEPS = 4
_RULES = [rule for rule, setting in RULES.items() if not setting.needs_table]  # the model has no table


def main(argv: Sequence[str]) -> int:
    """Runs everything and prints the table; returns 0, or 1 when a run failed."""
    parser = arguments.create_parser("benchmarks.overlap", __doc__)
    parser.add_argument("--rates", type=_rates, default="100mbit,300mbit,1gbit", help="of a link")
    parser.add_argument("--sizes_mb", type=arguments.counts, default="5,20,60", help="sizes of the model")
    parser.add_argument(
        "--pieces",
        type=functools.partial(arguments.counts, least=0),
        default="0",
        help="on a ps task; 0 = default",
    )
    parser.add_argument("--rules", type=arguments.choices(_RULES), default="async,sync", help="update rules")
    parser.add_argument("--num_ps", type=arguments.at_least(0), default=1, help="ps tasks; 0 = colocated")
    parser.add_argument("--num_workers", type=arguments.at_least(1), default=1, help="workers")
    parser.add_argument(
        "--compute", type=arguments.not_negative, default=1.0, help="pauses ÷ transfers; 0 = the layers compute"
    )
    parser.add_argument("--batch_size", type=arguments.at_least(1), default=1, help="examples of a batch")
    parser.add_argument("--steps_per_call", type=arguments.at_least(0), default=0, help="as for ps_trainer")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    settings = _settings(parser, flags)
    if problem := shaped_clusters.why_not():
        parser.error(problem)
    out_dir = arguments.new_folder(parser, flags.out_dir, "runs/overlap")
    report = Report("benchmarks.overlap", argv, out_dir)
    has_failed = False
    for setting in settings:
        logdir = out_dir / f"{setting.rate}-{setting.model_mb}-{setting.update}-{setting.num_pieces}"
        try:
            report.add(measure(setting, logdir, flags.steps_per_call, flags.deadline_secs))
        except RunError as error:
            print(f"{logdir.name} failed: {error}", flush=True)
            has_failed = True
        shutil.rmtree(logdir, ignore_errors=True)
    return report.finish(has_failed=has_failed)


def _settings(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> list[Setting]:
    """Returns what the flags ask for; ends the program where it cannot be trained."""
    holders = flags.num_ps or flags.num_workers
    if not flags.num_ps and flags.num_workers == 1:
        parser.error("--num_ps=0 --num_workers=1: one worker holds all parameters, so nothing travels; add workers")
    if holders > NUM_LAYERS:
        parser.error(f"{holders} tasks cannot share the {NUM_LAYERS} layers of the model; start at most {NUM_LAYERS}")
    if max(flags.pieces) > (most := NUM_LAYERS // holders):
        parser.error(
            f"--pieces={max(flags.pieces)}: a task has {most} of the {NUM_LAYERS} layers, and a piece has one layer or"
            " more"
        )
    settings = []
    for rate, model_mb, update, num_pieces in itertools.product(flags.rates, flags.sizes_mb, flags.rules, flags.pieces):
        setting = Setting(
            rate=rate, update=update, num_ps=flags.num_ps, num_workers=flags.num_workers, model_mb=model_mb,
            num_pieces=num_pieces, compute=flags.compute, batch_size=flags.batch_size,
        )  # fmt: skip
        try:
            TrainConfig(**setting.training(computes=True, steps_per_call=flags.steps_per_call)).check()
        except UsageError as error:
            parser.error(str(error))
        settings.append(setting)
    return settings


def _rates(text: str) -> list[str]:
    rates = list(dict.fromkeys(text.split(",")))
    for rate in rates:
        try:
            parse_rate(rate, "--rates")
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return rates


def measure(setting: Setting, logdir: pathlib.Path, steps_per_call: int, deadline_secs: float) -> OverlapRow:
    """Trains without computation, without transfers, and with both; then plain sockets take the place of the training.

    Raises:
        RunError: A run failed or was too slow.
    """
    create = functools.partial(setting.training, steps_per_call=steps_per_call)
    compute_secs = _train_alone(create(computes=True), setting, logdir / "compute", deadline_secs)
    transfer_secs = _train(create(computes=False), setting, setting.floor_secs, logdir / "transfer")
    step_secs = _train(create(computes=True), setting, transfer_secs + compute_secs, logdir / "both")
    socket_secs = [
        _move_by_sockets(setting, pause_secs, expected)
        for pause_secs, expected in ((0.0, transfer_secs), (compute_secs / NUM_LAYERS / 3, step_secs))
    ]
    return OverlapRow(
        rate=setting.rate,
        update=setting.update,
        num_ps=setting.num_ps,
        num_workers=setting.num_workers,
        model_mb=setting.num_bytes / 1e6,
        num_pieces=len(setting.piece_bytes()),
        compute="paced" if setting.compute else "real",
        floor_secs=setting.floor_secs,
        transfer_secs=transfer_secs,
        compute_secs=compute_secs,
        step_secs=step_secs,
        socket_transfer_secs=socket_secs[0],
        socket_step_secs=socket_secs[1],
        load=os.getloadavg()[0],
    )


def _train(training: Mapping[str, Any], setting: Setting, expected_secs: float, folder: pathlib.Path) -> float:
    """Returns the time in which every worker makes a step, on shaped hosts."""
    num_steps = _num_steps(expected_secs) * (setting.num_workers if setting.update == "async" else 1)
    cluster = ShapedCluster(
        num_workers=setting.num_workers,
        num_ps=setting.num_ps,
        rate=setting.rate,
        settings={**training, "max_steps": num_steps, "save_checkpoint_secs": 0},
    )
    return cluster.train(folder).round_secs


def _train_alone(training: Mapping[str, Any], setting: Setting, folder: pathlib.Path, deadline_secs: float) -> float:
    """Returns the median time of a step in one process, which holds the parameters itself."""
    num_steps = _num_steps(setting.compute * setting.floor_secs or setting.floor_secs)
    settings = {**training, "max_steps": num_steps, "learning_rate": 0.001, "save_checkpoint_secs": 0}
    for name in ("steps_per_call", "placement"):  # one process makes one step in a call
        settings.pop(name, None)
    cluster = Cluster(num_workers=1, num_ps=0, flags=flags_of(settings), deadline_secs=deadline_secs)
    steps = cluster.train(folder).warm_steps
    return statistics.median(after.t_end - before.t_end for before, after in itertools.pairwise(steps))


def _move_by_sockets(setting: Setting, pause_secs: float, expected_secs: float) -> float | None:
    """Returns the time in which every worker makes a step between plain sockets; None unless there is one ps task."""
    if setting.num_ps != 1:
        return None
    num_steps = min(_MOST_STEPS, max(_LEAST_SOCKET_STEPS, round(_SOCKET_SECS / expected_secs)))
    return overlap_sockets.measure(setting.schedule(pause_secs), setting.rate, setting.num_workers, num_steps)


def _num_steps(step_secs: float) -> int:
    return min(_MOST_STEPS, max(_LEAST_STEPS, round(_RUN_SECS / step_secs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
