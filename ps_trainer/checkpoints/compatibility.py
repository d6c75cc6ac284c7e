"""Does a checkpoint fit a run: which tensors would be restored, which are missing, of another shape, or not used.

Restoring and `python -m ps_trainer checkpoint plan` both ask here, so that the plan says what will happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.checkpoints.reader import Checkpoint, in_brackets, listed
from ps_trainer.store.extents import VariableSpec

DATA_PREFIX = "data/"
"""Of the names of tensors that say which examples have been read."""


class Fit(NamedTuple):
    """What a run finds in a checkpoint.

    Attributes:
        restored: names of the tensors that the run takes.
        converted: of these, the ones whose floating-point type changes on the way.
        missing: what the run wants and the checkpoint lacks.
        differing: (wanted, shape, dtype) of what is there in another shape, or in a type that cannot be converted.
        ignored: names of the tensors that the run does not take.
    """

    restored: list[str]
    converted: list[str]
    missing: list[VariableSpec]
    differing: list[tuple[VariableSpec, tuple[int, ...], np.dtype]]
    ignored: list[str]

    def faults(self, limit: int = 5) -> list[str]:
        """Why the run would refuse the checkpoint, a sentence each; empty where it fits.

        Args:
            limit: how many of the missing ones, and of those that differ, are named.
        """
        found = []
        if self.missing:
            found.append(
                f"it lacks {listed([f'{spec.name} {in_brackets(spec.shape)}' for spec in self.missing], limit)}"
            )
        found += [
            f"{spec.name} has the shape {in_brackets(shape)} and the type {dtype}, the run wants"
            f" {in_brackets(spec.shape)} of {spec.dtype}"
            for spec, shape, dtype in self.differing[:limit]
        ]
        if len(self.differing) > limit:
            found.append(f"{len(self.differing) - limit} more differ")
        return found


def compare(wanted: Sequence[VariableSpec], checkpoint: Checkpoint) -> Fit:
    """Compares names, shapes and types, without reading any value.

    Args:
        wanted: model variables and slots of the run; global_step and what was read of the data go without saying.
        checkpoint: what there is.
    """
    others = set(checkpoint) - {spec.name for spec in wanted} - {"global_step"}
    fit = Fit([], [], [], [], sorted(name for name in others if not name.startswith(DATA_PREFIX)))
    for spec in wanted:
        if spec.name not in checkpoint:
            fit.missing.append(spec)
            continue
        shape, dtype = checkpoint.shape(spec.name), checkpoint.dtype(spec.name)
        if shape != spec.shape or not np.can_cast(dtype, spec.dtype, "same_kind"):
            fit.differing.append((spec, shape, dtype))
            continue
        fit.restored.append(spec.name)
        if dtype != spec.dtype:
            fit.converted.append(spec.name)
    return fit
