"""A row of the table of `benchmarks.overlap`: the times of a setting, and their ratios."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.report import ResultColumn, Row


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
        """Share of the line rate without computation.

        It is 2 if both directions of the busiest link are full all the time. Without ps tasks it is 1 then: a pull
        alone fills both, as each worker also sends its own share to the others.
        """
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
