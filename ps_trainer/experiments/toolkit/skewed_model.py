"""A null model, as in `sized_models.py`, with several variables; the first has most of the bytes."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.experiments.toolkit.sized_models import NullModel
from ps_trainer.experiments.toolkit.sized_settings import DIM, variable_rows
from ps_trainer.options import option


class Skewed(NullModel):
    """Matrices of ones that each step pulls and pushes; they have whole rows, so that they can be cut into parts."""

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

    def pull(self, id_B: tf.Tensor) -> list[tf.Tensor]:
        rows = variable_rows(self.options.num_rows, self.options.num_variables, self.options.largest_share)
        ones = tf.ones_initializer()
        return [tf.get_variable(f"matrix_{i}", [count, DIM], initializer=ones) for i, count in enumerate(rows)]
