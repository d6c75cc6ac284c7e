"""A setting of `benchmarks.overlap`: what it trains on which links, and what the rate of the links allows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from benchmarks.overlap_sockets import Schedule
from ps_trainer.experiments.toolkit.shaped_clusters import payload_bytes_per_sec

NUM_LAYERS = 20
"""Dense layers of the model."""
_BYTES = 4  # of a float32


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
        """Time of a pull and a push of all workers, one after the other, at the full rate of the busiest link.

        With ps tasks a pull uses one direction of a link and a push the other one, so both at once take half of it.
        Colocated, each of them uses both directions: for the others' shares, and for the worker's own.
        """
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
        # Here, because it imports TensorFlow: a wrong flag ends the program before.
        from ps_trainer.store.packed import default_piece_bytes, piece_sizes

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
            "model": "benchmarks.overlap_model:Layered",
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
