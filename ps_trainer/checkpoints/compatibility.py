"""Compares a checkpoint with a run: tensors to restore, missing ones, ones of another shape, and unused ones.

Restoring and `ps_trainer checkpoint plan` both use this comparison, so the plan says what will happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.checkpoints.reader import Checkpoint, format_shape
from ps_trainer.errors import list_names
from ps_trainer.store.extents import VariableSpec

DATA_PREFIX = "data/"
"""Prefix of the names of the tensors that record which examples were read."""


class Fit(NamedTuple):
    """The comparison of a run with a checkpoint.

    Attributes:
        restored: Names of the tensors that the run takes.
        converted: Names of the restored tensors whose floating-point type changes.
        missing: Tensors that the run needs and the checkpoint lacks.
        differing: (needed, shape, dtype) of the tensors that have another shape, or a type that cannot be converted.
        ignored: Names of the tensors that the run does not take.
    """

    restored: list[str]
    converted: list[str]
    missing: list[VariableSpec]
    differing: list[tuple[VariableSpec, tuple[int, ...], np.dtype]]
    ignored: list[str]

    def faults(self, limit: int = 5) -> list[str]:
        """Returns the reasons why the run would reject the checkpoint; empty if the checkpoint fits.

        Args:
            limit: Largest number of missing tensors, and of differing tensors, that the reasons name.
        """
        found = []
        if self.missing:
            found.append(
                f"it lacks {list_names([f'{spec.name} {format_shape(spec.shape)}' for spec in self.missing], limit)}"
            )
        found += [
            f"{spec.name} has the shape {format_shape(shape)} and the type {dtype}, but the run needs"
            f" {format_shape(spec.shape)} of {spec.dtype}"
            for spec, shape, dtype in self.differing[:limit]
        ]
        if len(self.differing) > limit:
            found.append(f"{len(self.differing) - limit} more differ")
        return found


def compare(wanted: Sequence[VariableSpec], checkpoint: Checkpoint) -> Fit:
    """Compares names, shapes and types, without reading any value.

    Args:
        wanted: Model variables and slots of the run. Leave out global_step and the record of the data that was read.
        checkpoint: The checkpoint.
    """
    others = set(checkpoint) - {spec.name for spec in wanted} - {"global_step"}
    fit = Fit([], [], [], [], sorted(name for name in others if not name.startswith(DATA_PREFIX)))
    for spec in wanted:
        if spec.name not in checkpoint:
            fit.missing.append(spec)
            continue
        shape, dtype = checkpoint.shape(spec.name), checkpoint.dtype(spec.name)
        # "same_kind" lets a float change its width, but rejects a float where the run has an integer.
        if shape != spec.shape or not np.can_cast(dtype, spec.dtype, "same_kind"):
            fit.differing.append((spec, shape, dtype))
            continue
        fit.restored.append(spec.name)
        if dtype != spec.dtype:
            fit.converted.append(spec.name)
    return fit
