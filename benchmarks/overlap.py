"""Measures how far transfers overlap with computation, and with each other, on links of limited rate.

    python -m benchmarks.overlap --help

Each task is on a host of its own (`ps_trainer local --hosts=netns`, so root is needed). A model of 20 layers trains
three times: without computation, without transfers, and with both. README.md describes the results.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments, overlap_sockets
from benchmarks.overlap_sockets import Schedule
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit import shaped_clusters
from ps_trainer.experiments.toolkit.clusters import Cluster, flags_of
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster, payload_bytes_per_sec
from ps_trainer.models import layers
from ps_trainer.options import option
from ps_trainer.store.packed import default_piece_bytes, piece_sizes

NUM_LAYERS = 20
_RUN_SECS, _SOCKET_SECS = 12.0, 6.0
_LEAST_STEPS, _MOST_STEPS = 6, 400
_LEAST_SOCKET_STEPS = 4
_BYTES = 4  # of a float32


class Layered:
    """Dense layers of one width, each of which may also pause, as if it computed on a device of its own.

    Args:
        options: Options of the model.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Layered`."""

        width: int = option(512, "units of each layer", least=1)
        pause_ms: float = option(
            0.0, "pause of a layer on the way forward; on the way back it is twice as long", least=0
        )

    def __init__(self, options: Options):
        self._options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "label" int64 [B].
            training: Not used; both graphs are the same.
        """
        del training
        width, secs = self._options.width, self._options.pause_ms / 1000
        x_BD = tf.ones([tf.shape(batch["label"])[0], width]) * tf.cast(batch["label"][:, None] + 1, tf.float32) / 100
        for number in range(NUM_LAYERS):
            w_DD = tf.get_variable(f"layer_{number}", [width, width])
            x_BD = tf.nn.tanh(tf.matmul(x_BD, w_DD))
            x_BD = _pause(x_BD, secs) if secs else x_BD
        loss_B = tf.reduce_mean(tf.square(x_BD), axis=1)
        return layers.ModelOutput(tf.reduce_mean(loss_B), loss_B, {})


def _pause(x_BD: tf.Tensor, secs: float) -> tf.Tensor:
    """Returns the same values a while later; their gradient comes twice as late."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def pause(x_BD: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return _later(x_BD, secs), lambda gradient_BD: _later(gradient_BD, 2 * secs)

    return pause(x_BD)


def _later(x_BD: tf.Tensor, secs: float) -> tf.Tensor:
    def sleep(values: np.ndarray) -> np.ndarray:
        time.sleep(secs)
        return values

    later_BD = tf.numpy_function(sleep, [x_BD], x_BD.dtype)
    later_BD.set_shape(x_BD.shape)
    return later_BD


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Setting of one measurement.

    Attributes:
        rate: Rate of each host's link and direction, such as "100mbit".
        update: Update rule.
        num_ps: Number of ps tasks; 0 = the workers hold the parameters.
        num_workers: Number of workers.
        model_mb: Size of the model in MB.
        num_pieces: Number of pieces on each ps task; 0 = as many as the layout makes by itself.
        compute: Computation ÷ transfers, if each layer pauses; 0 = the layers compute, and do not pause.
        batch_size: Examples of a batch.
    """

    rate: str
    update: str
    num_ps: int
    num_workers: int
    model_mb: float
    num_pieces: int
    compute: float
    batch_size: int

    @property
    def width(self) -> int:
        """Units of a layer."""
        return round(math.sqrt(self.model_mb * 1e6 / _BYTES / NUM_LAYERS))

    @property
    def num_bytes(self) -> int:
        """Bytes of the model."""
        return NUM_LAYERS * self.width**2 * _BYTES

    @property
    def num_holders(self) -> int:
        """Number of tasks that hold parameters."""
        return self.num_ps or self.num_workers

    @property
    def floor_secs(self) -> float:
        """Time of a pull and a push of all workers, one after the other, at the full rate of the busiest link."""
        # Colocated, a worker's link carries what it exchanges with the others' shares, and what they do with its own.
        busiest = max(1.0, self.num_workers / self.num_ps) if self.num_ps else 1 - 1 / self.num_workers
        return 2 * busiest * self.num_bytes / payload_bytes_per_sec(self.rate)

    @property
    def pause_ms(self) -> float:
        """Pause of a layer on the way forward, a third of its time."""
        return 1000 * self.compute * self.floor_secs / NUM_LAYERS / 3

    @property
    def max_piece_bytes(self) -> int | None:
        """Option of the layout that makes `num_pieces`; None = its default."""
        return 4 * -(-self.num_bytes // self.num_holders // self.num_pieces) if self.num_pieces else None

    def piece_bytes(self) -> list[int]:
        """Returns the sizes of the pieces on a ps task."""
        sizes = [self.width**2] * (NUM_LAYERS // self.num_holders)
        share = self.num_bytes // self.num_holders
        most = self.max_piece_bytes or default_piece_bytes(share, spans_hosts=True)
        return [size * _BYTES for size in piece_sizes(sizes, most // _BYTES)]

    def schedule(self, pause_secs: float) -> Schedule:
        """Returns the same step for plain sockets, with one ps task."""
        return Schedule([self.width**2 * _BYTES] * NUM_LAYERS, self.piece_bytes(), pause_secs, self.update == "sync")

    def training(self, *, computes: bool, steps_per_call: int) -> dict[str, Any]:
        """Returns the settings of a training."""
        pause_ms = self.pause_ms if computes else 0.0
        return {
            "model": "benchmarks.overlap:Layered",
            "model_option": (f"width={self.width}", f"pause_ms={pause_ms:g}"),
            "dataset": "benchmarks.workloads:RandomInput",
            "dataset_option": (),
            "intra_op_threads": 1,
            "inter_op_threads": 2,
            "layout_option": (f"max_piece_bytes={self.max_piece_bytes or 'none'}",),
            "batch_size": self.batch_size if computes else 1,
            "update": self.update,
            "steps_per_call": steps_per_call,
            **({} if self.num_ps else {"placement": "colocated"}),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverlapRow(Row):
    """One setting.

    Attributes:
        rate: Rate of each host's link and direction.
        update: Update rule.
        num_ps: Number of ps tasks; 0 = colocated.
        num_workers: Number of workers.
        model_mb: Size of the model in MB.
        num_pieces: Number of pieces on each ps task.
        compute: "paced" if layers pause, otherwise "real".
        floor_secs: Time of a pull and a push of all workers at the full rate, one after the other.
        transfer_secs: Time of a round without computation.
        compute_secs: Time of a step without transfers.
        step_secs: Time of a round with both.
        socket_transfer_secs: Time of a round without computation between plain sockets; None unless `num_ps` is 1.
        socket_step_secs: Time of a round between plain sockets, with pauses that last as long as the computation.
        load: Load average of the machine at the end.
    """

    COLUMNS = (
        ResultColumn("link", "rate"),
        ResultColumn("update", "update"),
        ResultColumn("ps", "num_ps"),
        ResultColumn("workers", "num_workers"),
        ResultColumn("MB", "model_mb", ".1f"),
        ResultColumn("pieces", "num_pieces"),
        ResultColumn("compute", "compute"),
        ResultColumn("one way after the other, s", "floor_secs", ".3f"),
        ResultColumn("transfer alone, s", "transfer_secs", ".3f"),
        ResultColumn("share of the line rate, %", lambda row: row.line_share, ".0f", 0.01),
        ResultColumn("compute alone, s", "compute_secs", ".3f"),
        ResultColumn("step, s", "step_secs", ".3f"),
        ResultColumn("step ÷ larger", lambda row: row.ratio, ".2f"),
        ResultColumn("step ÷ sum", lambda row: row.ratio_to_sum, ".2f"),
        ResultColumn("sockets: transfer, s", "socket_transfer_secs", ".3f"),
        ResultColumn("sockets: step, s", "socket_step_secs", ".3f"),
        ResultColumn("step ÷ sockets' step", lambda row: row.ratio_to_sockets, ".2f"),
        ResultColumn("load", "load", ".1f"),
    )

    rate: str
    update: str
    num_ps: int
    num_workers: int
    model_mb: float
    num_pieces: int
    compute: str
    floor_secs: float
    transfer_secs: float
    compute_secs: float
    step_secs: float
    socket_transfer_secs: float | None
    socket_step_secs: float | None
    load: float

    @property
    def line_share(self) -> float:
        """Share of the line rate without computation; above 1 if both directions of a link are in use at once."""
        return self.floor_secs / self.transfer_secs

    @property
    def ratio(self) -> float:
        """Step ÷ the larger one of computation and transfers."""
        return self.step_secs / max(self.transfer_secs, self.compute_secs)

    @property
    def ratio_to_sum(self) -> float:
        """Step ÷ the sum of computation and transfers: 1 if nothing overlaps."""
        return self.step_secs / (self.transfer_secs + self.compute_secs)

    @property
    def ratio_to_sockets(self) -> float | None:
        """Step ÷ the same step between plain sockets."""
        return self.step_secs / self.socket_step_secs if self.socket_step_secs else None

    def values(self) -> dict[str, Any]:
        """Returns the fields and the shares."""
        shares = {
            "line_share": self.line_share,
            "ratio": self.ratio,
            "ratio_to_sum": self.ratio_to_sum,
            "ratio_to_sockets": self.ratio_to_sockets,
        }
        return {**super().values(), **{name: value and float(f"{value:.4g}") for name, value in shares.items()}}


def main(argv: Sequence[str]) -> int:
    """Runs everything and prints the table; returns 0, or 1 when a run failed."""
    parser = arguments.create_parser("benchmarks.overlap", __doc__)
    parser.add_argument("--rates", type=lambda text: text.split(","), default="100mbit,300mbit,1gbit", help="of a link")
    parser.add_argument("--sizes_mb", type=arguments.counts, default="5,20,60", help="sizes of the model")
    parser.add_argument(
        "--pieces",
        type=lambda text: [int(part) for part in text.split(",")],
        default="0",
        help="on a ps task; 0 = default",
    )
    parser.add_argument("--rules", type=lambda text: text.split(","), default="async,sync", help="update rules")
    parser.add_argument("--num_ps", type=arguments.at_least(0), default=1, help="ps tasks; 0 = colocated")
    parser.add_argument("--num_workers", type=arguments.at_least(1), default=1, help="workers")
    parser.add_argument("--compute", type=float, default=1.0, help="pauses ÷ transfers; 0 = the layers compute")
    parser.add_argument("--batch_size", type=arguments.at_least(1), default=1, help="examples of a batch")
    parser.add_argument("--steps_per_call", type=arguments.at_least(0), default=0, help="as for ps_trainer")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    if problem := shaped_clusters.why_not():
        parser.error(problem)
    out_dir = arguments.new_folder(parser, flags.out_dir, "runs/overlap")
    report = Report("benchmarks.overlap", argv, out_dir)
    has_failed = False
    for values in itertools.product(flags.rates, flags.sizes_mb, flags.rules, flags.pieces):
        rate, model_mb, update, num_pieces = values
        setting = Setting(
            rate=rate, update=update, num_ps=flags.num_ps, num_workers=flags.num_workers, model_mb=model_mb,
            num_pieces=num_pieces, compute=flags.compute, batch_size=flags.batch_size,
        )  # fmt: skip
        logdir = out_dir / "-".join(str(value) for value in values)
        try:
            report.add(measure(setting, logdir, flags.steps_per_call, flags.deadline_secs))
        except RunError as error:
            print(f"{logdir.name} failed: {error}", flush=True)
            has_failed = True
        shutil.rmtree(logdir, ignore_errors=True)
    return report.finish(has_failed=has_failed)


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
