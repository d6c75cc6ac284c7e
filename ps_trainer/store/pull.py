"""`PullStaging`: the staging areas in which a pull waits on the worker until the next step takes it.

A pull is part of the step before the one that uses it. `Stage` ops of the earlier step put the values into a staging
area on the worker. `Unstage` ops of the later step wait until they are there, and take them out. A staging area belongs
to a device and a shared name, so both steps find the same one.

Many bytes lie in several staging areas, in the order in which the model asks for the variables. So the first layers
can compute while the parameters of the last ones are still on the way (`multi_step_graph.py`).

The clock of each ps task has its own staging area on that ps task, because staleness is computed there. So the
clock never travels to the worker and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.pieces import DensePart, Piece, Snapshot

AREA_BYTES = {"one host": 2**20, "several hosts": 2**18}
"""A staging area ends with the value that takes it to this size; each area costs two ops a step."""


class _Area(NamedTuple):
    """A staging area on a worker: its name, and the values that this step takes out of it."""

    name: str
    values: list[tf.Tensor]


class PullStaging:
    """The staging areas of one worker's pull.

    Args:
        ps_devices: Device of each ps task.
        worker_index: Index of the worker.
        pull_dtype: Type in which float32 parameters travel.
        area_bytes: Size that ends a staging area.
    """

    def __init__(self, ps_devices: Sequence[str], worker_index: int, pull_dtype: tf.DType, area_bytes: int):
        self._ps_devices = ps_devices
        self._worker_index = worker_index
        self._pull_dtype = pull_dtype
        self._area_bytes = area_bytes
        self._areas: dict[str, list[_Area]] = {}  # by device

    def wire_dtype(self, dtype: tf.DType) -> tf.DType:
        """Returns the type in which parameters of type `dtype` travel."""
        return self._pull_dtype if dtype == tf.float32 else dtype

    def unstage_clock(self, ps: int) -> tf.Tensor:
        """Returns the clock that the pull has read on ps task `ps`, int64 scalar; call it in that ps's device scope."""
        return _unstage([tf.int64], [[]], self._name(f"clock_{ps}"))[0]

    def unstage_parts(self, parts: Sequence[DensePart], device: str) -> list[tf.Tensor]:
        """Returns the pulled values of `parts`, in their own types; call it once for each device, in its scope."""
        values: list[tf.Tensor] = []
        self._areas[device] = []
        for number, count in enumerate(self.by_area([part.variable for part in parts])):
            area_parts = parts[len(values) : len(values) + count]
            dtypes = [part.variable.dtype.base_dtype for part in area_parts]
            name = self._name(f"values_{number}" if number else "values")
            wire_dtypes = [self.wire_dtype(dtype) for dtype in dtypes]
            unstaged = _unstage(wire_dtypes, [part.variable.shape for part in area_parts], name)
            self._areas[device].append(_Area(name, unstaged))
            values += [tf.cast(value, dtype) for value, dtype in zip(unstaged, dtypes, strict=True)]
        return values

    def build_pull(
        self,
        snapshot: Snapshot,
        on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None,
        arrived: Mapping[str, tf.Tensor] | None = None,
    ) -> list[tf.Operation]:
        """Builds the ops that pull for the next step.

        Args:
            snapshot: Values to pull, read after this worker's apply.
            on_pull: Called with each piece and the value that the worker will get, on the ps; the op that it returns
                runs with the pull.
            arrived: Values that come to the worker in another message: name of the piece's variable -> value there.
        """
        ops = []
        arrived = arrived or {}
        for ps, clock in enumerate(snapshot.clocks):
            with tf.device(self._ps_devices[ps]):
                ops.append(tf.raw_ops.Stage(values=[clock], shared_name=self._name(f"clock_{ps}")))
        if on_pull is not None:
            for piece, value in snapshot.values:
                with tf.device(self._ps_devices[piece.ps]):
                    # Cast back, because the rule must see the rounded value that the worker gets.
                    ops.append(on_pull(piece, tf.cast(value, piece.variable.dtype.base_dtype)))
        by_device: dict[str, list[tf.Tensor]] = {}
        for piece, value in snapshot.values:
            by_device.setdefault(piece.device, []).append(arrived.get(piece.variable.op.name, value))
        return [*ops, *self._stage(by_device)]

    def build_hold(self) -> list[tf.Operation]:
        """Builds the ops that stage this step's parameters for the next step, in place of a pull; nothing travels."""
        # The clocks are still staged on the ps tasks, because a step that pushes nothing takes none out.
        return self._stage(
            {device: [v for area in areas for v in area.values] for device, areas in self._areas.items()}
        )

    def build_clear(self) -> list[tf.Operation]:
        """Builds the ops that empty the staging areas; they may hold a pull of an earlier session of this worker."""
        clears = []
        for ps, device in enumerate(self._ps_devices):
            with tf.device(device):
                clears.append(tf.raw_ops.StageClear(dtypes=[tf.int64], shared_name=self._name(f"clock_{ps}")))
        for device, areas in self._areas.items():
            with tf.device(device):
                for area in areas:
                    dtypes = [value.dtype for value in area.values]
                    clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=area.name))
        return clears

    def by_area(self, variables: Sequence[tf.Variable]) -> list[int]:
        """Returns the number of consecutive variables in each staging area."""
        counts: list[int] = []
        num_bytes = self._area_bytes
        for variable in variables:
            if num_bytes >= self._area_bytes:
                counts.append(0)
                num_bytes = 0
            counts[-1] += 1
            num_bytes += variable.shape.num_elements() * variable.dtype.size
        return counts

    def _stage(self, by_device: Mapping[str, Sequence[tf.Tensor]]) -> list[tf.Operation]:
        ops = []
        for device, values in by_device.items():
            left = list(values)
            with tf.device(device):
                for area in self._areas[device]:
                    # One op for all values of an area, because an Unstage op takes out what one Stage op has put in.
                    staged, left = left[: len(area.values)], left[len(area.values) :]
                    ops.append(tf.raw_ops.Stage(values=staged, shared_name=area.name))
        return ops

    def _name(self, content: str) -> str:
        return f"pull/worker_{self._worker_index}/{content}"


def _unstage(dtypes: Sequence[tf.DType], shapes: Sequence[Any], name: str) -> list[tf.Tensor]:
    values: list[tf.Tensor] = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=name)
    for value, shape in zip(values, shapes, strict=True):
        value.set_shape(shape)  # Unstage does not know the shapes of the staged tensors
    return values
