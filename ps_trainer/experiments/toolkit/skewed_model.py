"""A null model, as those of `sized_models.py`, of several variables of which the first has most of the bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.experiments.toolkit.sized_models import Output
from ps_trainer.experiments.toolkit.sized_settings import DIM, variable_rows
from ps_trainer.options import option


class Skewed:
    """Matrices of ones, all of which a step pulls and pushes; whole rows, so that they can be cut into parts."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Skewed`."""

        num_rows: int = option(31_250, "rows of 64 float32 values")
        num_variables: int = option(4, "number of variables", least=2)
        largest_share: float = option(
            0.75, "share of the rows in the first variable; the others are alike", above=0, below=1
        )

        def __post_init__(self) -> None:
            if self.num_rows < self.num_variables:
                raise OptionError(f"num_rows={self.num_rows} is too small for num_variables={self.num_variables}")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: Mapping[str, tf.Tensor], *, training: bool) -> Output:
        """The graph of one batch.

        Args:
            batch: "id" int64 [B], read and not looked at.
            training: makes no difference to this model.
        """
        del training
        rows = variable_rows(self.options.num_rows, self.options.num_variables, self.options.largest_share)
        ones = tf.ones_initializer()
        matrices = [tf.get_variable(f"matrix_{i}", [count, DIM], initializer=ones) for i, count in enumerate(rows)]
        loss = 0.5 * tf.add_n([tf.reduce_sum(tf.square(matrix)) for matrix in matrices])
        zeros_B = tf.zeros_like(batch["id"], tf.float32)
        return Output(loss, zeros_B, {"loss": zeros_B + loss})
