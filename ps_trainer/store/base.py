"""`ParameterStore`: the parameters on the ps tasks, and the pull of one worker's step.

The model asks for each variable by `tf.get_variable`. The store answers with a tensor on the worker: the value that the
worker pulls once per step. Gradients are taken with respect to these pulled values. The layout decides how the
parameters lie on the ps tasks (`packed.py`, `per_variable.py`). Embedding tables and variables without gradient lie in
the same way under every layout, so this file creates them.

Each ps task k has a *clock*: the number of updates applied there. The clock of ps 0 is `global_step`. A pull reads the
clock first and the parameters after it. The clock at the apply minus the clock at the pull is the gradient's staleness
on that ps (design: `CONTRIBUTING.md`, "One step").

The pull for the next step is part of the step before (`pull.py`). It starts on the ps as soon as the worker's update is
applied there. Otherwise updates that land between an apply and the next pull would be missing from every staleness
count. The step's result also travels back to the worker while the pull is under way, and so costs no additional time.

Some update rules keep a *replica* on each worker. Then the model reads that copy, and the rule decides when to fetch it
from the ps tasks.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.pieces import DensePart, Gradient, Piece, Snapshot
from ps_trainer.store.pull import AREA_BYTES, PullStaging
from ps_trainer.store.trace import ModelTrace, is_local
from ps_trainer.store.variables import create_local_variable, create_setter, create_variable, parts_of

ModelGetter = Callable[..., Any]
"""A custom getter of the variable scope in which a model is built."""


class ParameterStore(abc.ABC):
    """The parameters of one run, seen from one worker's graph.

    Args:
        options: Options of the layout.
        ps_devices: Device of each ps task; in a process that trains alone, its own.
        worker_device: Device of this worker, "/job:worker/task:0".
        worker_index: Index of this worker.
        pull_dtype: Name of the type in which float32 parameters travel to the worker, rounded to nearest. A value
            beyond the type's range (±65504 in float16) travels as the end of the range, as with the gradient transform
            `cast`.
        keeps_replica: Whether the model reads a copy on the worker, which the update rule fetches.
        stage_devices: Device of each stage of the model, the worker's own first. Empty if the worker computes the whole
            model.
        spans_hosts: Whether the tasks are on several hosts, where smaller messages overlap better.

    Attributes:
        num_ps: Number of ps tasks.
        spans_hosts: Whether the tasks are on several hosts.
        pieces: All variables that hold model variables; `create` fills it.
        clocks: Update counter of each ps task, int64 scalar; `clocks[0]` is global_step.
        clock_reads: For each ps task the clock before this step's pull, int64 scalar on that ps. Empty with replicas.
        pull: Staging areas of this worker's pull.
        specs: The model's variables, in creation order.
        dense_values: The model's trainable dense variables as tensors on the worker, by name.
    """

    def __init__(
        self,
        options: Any,
        *,
        ps_devices: Sequence[str],
        worker_device: str,
        worker_index: int,
        pull_dtype: str = "float32",
        keeps_replica: bool = False,
        stage_devices: Sequence[str] = (),
        spans_hosts: bool = False,
    ):
        self.options = options
        # In the form that TensorFlow gives the devices of variables, by which `ps_of` finds them.
        self._ps_devices = [tf.DeviceSpec.from_string(device).to_string() for device in ps_devices]
        self.num_ps = len(self._ps_devices)
        self.worker_device = worker_device
        self.keeps_replica = keeps_replica
        self._stage_devices = tuple(stage_devices) or (worker_device,)
        self.spans_hosts = spans_hosts
        area_bytes = AREA_BYTES["several hosts" if spans_hosts else "one host"]
        self.pull = PullStaging(self._ps_devices, worker_index, tf.as_dtype(pull_dtype), area_bytes)
        self.pieces: list[Piece] = []
        self.clocks: list[tf.Variable] = []
        self.clock_reads: list[tf.Tensor] = []
        self.specs: tuple[VariableSpec, ...] = ()
        self._optimizer_index_of: Callable[[str], int] = lambda name: 0
        self.dense_values: dict[str, tf.Tensor] = {}
        self._model_values: dict[str, Any] = {}
        self._given: set[str] = set()
        # All tables share one setter, so that the second table does not start on ps 0 again.
        self._table_setter = create_setter(self._ps_devices, worker_device)

    @abc.abstractmethod
    def _create_dense(self, specs: Sequence[VariableSpec]) -> list[DensePart]:
        """Creates the trainable dense variables of one stage."""

    @abc.abstractmethod
    def _assemble(self, specs: Sequence[VariableSpec], pieces: Sequence[Piece]) -> dict[str, tf.Tensor]:
        """Builds the model's tensors, by name, from the pulled copies of the variables of `_create_dense`."""

    def ps_device(self, ps: int) -> str:
        """Returns the device of ps task `ps`."""
        return self._ps_devices[ps]

    def ps_of(self, variable: tf.Variable) -> int:
        """Returns the index of the ps task on which a variable lies."""
        return self._ps_devices.index(tf.DeviceSpec.from_string(variable.device).to_string())

    def create(self, trace: ModelTrace, optimizer_index_of: Callable[[str], int] = lambda name: 0) -> None:
        """Creates clocks, variables and pulls for a traced model, in the default graph.

        Args:
            trace: The model's variables.
            optimizer_index_of: Maps the name of a model variable to the index of its optimizer. Model variables with
                different optimizers never share a variable on a ps task.
        """
        # Stages that one worker computes count as one, so that they share a pull.
        is_split = len(self._stage_devices) > 1
        self.specs = trace.specs if is_split else tuple(spec._replace(stage=0) for spec in trace.specs)
        self._optimizer_index_of = optimizer_index_of
        for ps in range(self.num_ps):
            with tf.device(self.ps_device(ps)):
                self.clocks.append(_create_clock("global_step" if ps == 0 else f"ps_trainer/clock_{ps}"))
                if not self.keeps_replica:
                    self.clock_reads.append(self.pull.unstage_clock(ps))
        for stage, device in enumerate(self._stage_devices):
            dense = [spec for spec in self.specs if spec.trainable and not spec.is_table and spec.stage == stage]
            if dense:
                self._create_trained(dense, device)
        for position, spec in enumerate(s for s in self.specs if s.is_table or not s.trainable):
            if spec.is_table and spec.trainable:
                self._create_table(spec)
            else:
                self._create_untrained(spec, ps=position % self.num_ps)

    def model_getter(self, getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the custom getter of the model's variable scope, which returns the pulled value of `name`.

        Raises:
            OptionError: The model asks for a variable that it did not ask for when it was traced.
        """
        return self._give({}, self._given, getter, name, *args, **kwargs)

    def getter_of(self, copies: Mapping[str, tf.Tensor], local_prefix: str) -> ModelGetter:
        """Returns a custom getter for a model that is built beside others: it reads copies of the dense variables.

        Args:
            copies: Copies of the values in `dense_values`, by name.
            local_prefix: Prefix of the names of variables that belong to this model on this worker alone.
        """
        given: set[str] = set()

        def give(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            return self._give(copies, given, getter, local_prefix + name if is_local(kwargs) else name, *args, **kwargs)

        return give

    def _give(
        self, copies: Mapping[str, tf.Tensor], given: set[str], getter: Any, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        if is_local(kwargs):
            return getter(name, *args, **kwargs)
        if name not in self._model_values:
            raise OptionError(
                f"the model asks for variable {name!r} on this build but not on the first;"
                " it must ask for the same variables each time it is built"
            )
        value = copies.get(name, self._model_values[name])
        if name not in given:  # TensorFlow adds the loss of a shared variable once, too
            given.add(name)
            _add_regularization_loss(value, kwargs.get("regularizer"))
        return value

    def gradients(self, loss: tf.Tensor) -> list[Gradient]:
        """Builds the gradients of `loss` for the trainable pieces that it depends on.

        Raises:
            OptionError: The loss depends on no trainable variable.
        """
        return self.gradients_of([loss])

    def gradients_of(
        self, values: Sequence[tf.Tensor], value_gradients: Sequence[tf.Tensor] | None = None
    ) -> list[Gradient]:
        """Builds the gradients of a loss for the trainable pieces on which `values` depend.

        Args:
            values: Tensors between the pieces and the loss, or the loss itself.
            value_gradients: Gradient of the loss for each of `values`; None = 1, as for the loss itself.

        Raises:
            OptionError: They depend on no trainable variable.
        """
        trained = [piece for piece in self.pieces if piece.trainable]
        # In a model without stages TensorFlow already places the gradient ops on the worker. Colocation would only tie
        # some of them to the ps tasks.
        is_split = len(self._stage_devices) > 1
        found = tf.gradients(
            values,
            [piece.pulled for piece in trained],
            grad_ys=value_gradients,
            colocate_gradients_with_ops=is_split,
        )
        gradients = []
        for piece, value in zip(trained, found, strict=True):
            if value is not None:
                with tf.device(piece.device):
                    # A gather from a dense variable has IndexedSlices as its gradient, but a piece needs a full tensor.
                    gradients.append(Gradient(piece, value if piece.is_table else tf.convert_to_tensor(value)))
        if not gradients:
            raise OptionError("the model's loss depends on none of its trainable variables")
        return gradients

    @property
    def dense(self) -> list[Piece]:
        """Trainable dense pieces."""
        return [piece for piece in self.pieces if piece.trainable and not piece.is_table]

    def read(self, after: Sequence[tf.Operation]) -> Snapshot:
        """Reads the clock of each ps task when the task's op in `after` is done, then its dense parameters.

        If another worker's update lands between the two reads, the parameters contain it and the clock does not count
        it. Rules that need an exact clock call `read_on` in the exclusive section in which updates are made.

        Args:
            after: For each ps task the op to wait for.
        """
        snapshots = []
        for ps in range(self.num_ps):
            with tf.control_dependencies([after[ps]]):
                snapshots.append(self.read_on(ps))
        return self.combine_snapshots(snapshots)

    def read_on(self, ps: int) -> Snapshot:
        """Reads the clock of one ps task, then its dense parameters in their own types, for `combine_snapshots`."""
        with tf.device(self.ps_device(ps)):
            clock = self.clocks[ps].read_value()
            # Clock first: an update between the reads then counts as staleness. In the other order the parameters
            # would be older than their clock, and the staleness too small.
            values: list[tuple[Piece, tf.Tensor]] = []
            for piece in (one for one in self.dense if one.ps == ps):
                # In the order of use: gRPC sends one message after the other, and the first layers are needed first.
                with tf.control_dependencies([values[-1][1] if values else clock]):
                    # A read shares the variable's memory. A dense update copies memory in use, so the value stays.
                    values.append((piece, piece.variable.read_value()))
        return Snapshot([clock], values)

    def combine_snapshots(self, snapshots: Sequence[Snapshot]) -> Snapshot:
        """Combines the snapshots of `read_on`, one for each ps task in order, and casts values to their wire types."""
        clocks = [clock for snapshot in snapshots for clock in snapshot.clocks]
        raw = {piece.variable.op.name: value for snapshot in snapshots for piece, value in snapshot.values}
        values = []
        for piece in self.dense:
            with tf.device(self.ps_device(piece.ps)):
                value = raw[piece.variable.op.name]
                wire_dtype = self.pull.wire_dtype(value.dtype)
                # A cast to the same type would still copy all parameters, to clip them to the range that they have.
                values.append((piece, value if value.dtype == wire_dtype else tf.saturate_cast(value, wire_dtype)))
        return Snapshot(clocks, values)

    def build_prime(self, on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None) -> tf.Operation:
        """Builds the op that pulls for a worker's first step; it replaces any pull that an earlier session has left."""
        clears = self.pull.build_clear()
        # Clear before the read and the stage; otherwise the clear could remove the new pull.
        with tf.control_dependencies(clears):
            return tf.group(*self.pull.build_pull(self.read([tf.group(*clears)] * self.num_ps), on_pull))

    def _create_trained(self, specs: Sequence[VariableSpec], device: str) -> None:
        """Creates the trainable dense variables of a stage, and their pull."""
        parts = self._create_dense(specs)
        with tf.device(device):
            replicas: Sequence[tf.Variable | None] = [None] * len(parts)
            if self.keeps_replica:
                created = [_create_replica(part.variable) for part in parts]
                values, replicas = [replica.read_value() for replica in created], created
            else:
                values = self.pull.unstage_parts(parts, device)
            pieces = [
                Piece(part.variable, part.ps, tuple(part.extents), value, device=device, replica=replica)
                for part, value, replica in zip(parts, values, replicas, strict=True)
            ]
            tensors = self._assemble(specs, pieces)
        self.pieces += pieces
        self.dense_values |= tensors
        self._model_values |= tensors
        for tensor in tensors.values():  # a model may walk tf.trainable_variables(), e.g. for weight decay
            tf.add_to_collection(tf.GraphKeys.TRAINABLE_VARIABLES, tensor)

    def _create_table(self, spec: VariableSpec) -> None:
        """Creates a table whose rows lie in contiguous blocks on the ps tasks; only the rows of a batch travel."""
        parts = min(self.options.table_partitions or self.num_ps, spec.shape[0])
        with tf.device(self._table_setter):
            table = tf.get_variable(
                spec.name,
                spec.shape,
                tf.as_dtype(spec.dtype),
                initializer=tf.zeros_initializer(),
                partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None,
                collections=[tf.GraphKeys.GLOBAL_VARIABLES],
                trainable=False,
                use_resource=True,
            )
        self._model_values[spec.name] = table
        for variable, extent in parts_of(table, spec):
            self.pieces.append(
                Piece(variable, self.ps_of(variable), (extent,), variable, is_table=True, device=self.worker_device)
            )

    def _create_untrained(self, spec: VariableSpec, ps: int) -> None:
        """Creates a variable that the model itself assigns, such as a moving average, whole on one ps task."""
        with tf.device(self.ps_device(ps)):
            variable = create_variable(spec.name, spec.shape, spec.dtype)
        self._model_values[spec.name] = variable
        extent = Extent(spec.name, 0, spec.size, 0)
        self.pieces.append(Piece(variable, ps, (extent,), None, trainable=False, device=self.worker_device))


def _create_replica(variable: tf.Variable) -> tf.Variable:
    """Creates a copy of a ps variable on the worker; the rule's fetch gives it its first value."""
    return create_local_variable(f"replica/{variable.op.name}", variable.shape, variable.dtype.base_dtype)


def _add_regularization_loss(value: Any, regularizer: Any) -> None:
    loss = None if regularizer is None else regularizer(tf.convert_to_tensor(value))
    if loss is not None:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, loss)


def _create_clock(name: str) -> tf.Variable:
    clock = create_variable(name, [], tf.int64.as_numpy_dtype)
    if name == "global_step":
        tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, clock)
    return clock
