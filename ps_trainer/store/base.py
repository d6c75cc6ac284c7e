"""`ParameterStore`: the parameters on the ps tasks, and the pull of one worker's step.

A store gives the model, in place of each variable that it asks for by `tf.get_variable`, a tensor on the
worker: the value pulled once per step. Gradients are taken with respect to what was pulled. How the
parameters lie on the ps tasks is the layout's business (`packed.py`, `per_variable.py`); embedding tables
and variables without gradient lie alike in every layout and are made here.

Each ps task k has a *clock*: the number of updates applied there. The clock of ps 0 is `global_step`.
A pull reads the clock first and the parameters after it, so that the difference to the clock at the
apply is the gradient's staleness on that ps (design: `CONTRIBUTING.md`, "One step").

The pull for the next step is part of the step before: it starts on the ps as soon as the worker's update
is applied there, and waits in a staging area on the worker. So no time lies between an apply and the next
pull in which other workers' updates would count as nobody's staleness, and the way back of the step's
result is hidden behind the pull.

With an update rule that keeps a *replica* on each worker, the model reads that copy, and the rule decides
when it is fetched from the ps tasks.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.trace import ModelTrace, is_local
from ps_trainer.store.variables import create_local_variable, create_variable, parts_of, ps_of


class Piece(NamedTuple):
    """A variable on a ps task, and what of the model lies in it.

    Attributes:
        variable: resource variable on ps task `ps`.
        ps: index of the ps task.
        extents: ranges of model variables in it.
        pulled: the worker's copy, of the same shape, with respect to which gradients are taken;
            for an embedding table the variable itself, from which only rows are gathered.
        spec_names: names of the model variables in it.
        trainable: whether it takes part in updates.
        is_table: whether it is (part of) an embedding table.
        device: where it is pulled to and its gradient is computed; of a table the worker's own.
        replica: this worker's own copy of a trainable dense variable, where the update rule keeps one.
    """

    variable: tf.Variable
    ps: int
    extents: tuple[Extent, ...]
    pulled: Any
    trainable: bool = True
    is_table: bool = False
    device: str = ""
    replica: tf.Variable | None = None


class Part(NamedTuple):
    """A dense variable on ps task `ps`, as a layout makes it, and the ranges of model variables in it."""

    variable: tf.Variable
    ps: int
    extents: Sequence[Extent]


class Gradient(NamedTuple):
    """The gradient of one piece: a tensor of the piece's shape, or IndexedSlices of a table's rows."""

    piece: Piece
    value: tf.Tensor | tf.IndexedSlices


class Snapshot(NamedTuple):
    """The dense parameters as read on the ps tasks at one moment each.

    Attributes:
        clocks: for each ps task its clock before the read, int64 scalar on that ps.
        values: for each trainable dense piece its value on the ps, in the type in which it travels.
    """

    clocks: list[tf.Tensor]
    values: list[tuple[Piece, tf.Tensor]]


class ParameterStore(abc.ABC):
    """The parameters of one run, seen from one worker's graph.

    Args:
        options: the layout's options.
        num_ps: number of ps tasks.
        worker_device: this worker's device, "/job:worker/task:0".
        worker_index: this worker's index.
        pull_dtype: name of the type in which float32 parameters travel to the worker, rounded to nearest; beyond its
            range (±65504 in float16) the end of the range travels, as with the gradient transform `cast`.
        keeps_replica: whether the model reads a copy on the worker, which the update rule fetches.
        stage_devices: device of each of the model's stages, the worker's own first, where other workers compute them.

    Attributes:
        pieces: all variables that hold model variables, made by `create`.
        clocks: for each ps task its update counter, int64 scalar; `clocks[0]` is global_step.
        clock_reads: for each ps task the clock before this step's pull, int64 scalar on that ps; none with
            replicas.
    """

    def __init__(
        self,
        options: Any,
        *,
        num_ps: int,
        worker_device: str,
        worker_index: int,
        pull_dtype: str = "float32",
        keeps_replica: bool = False,
        stage_devices: Sequence[str] = (),
    ):
        self.options = options
        self.num_ps = num_ps
        self.worker_device = worker_device
        self.keeps_replica = keeps_replica
        self._stage_devices = tuple(stage_devices) or (worker_device,)
        self._worker_index = worker_index
        self._pull_dtype = tf.as_dtype(pull_dtype)
        self.pieces: list[Piece] = []
        self.clocks: list[tf.Variable] = []
        self.clock_reads: list[tf.Tensor] = []
        self.specs: tuple[VariableSpec, ...] = ()
        self._group_of: Callable[[str], int] = lambda name: 0
        self._model_values: dict[str, Any] = {}
        self._given: set[str] = set()
        self._unstaged: dict[str, list[tf.Tensor]] = {}  # by device
        # One for all tables, so that the next table goes on where the last one ended.
        self._table_setter = tf.train.replica_device_setter(ps_tasks=num_ps, worker_device=worker_device)

    @abc.abstractmethod
    def _create_dense(self, specs: Sequence[VariableSpec]) -> list[Part]:
        """Makes the trainable dense variables."""

    @abc.abstractmethod
    def _assemble(self, specs: Sequence[VariableSpec], pieces: Sequence[Piece]) -> dict[str, tf.Tensor]:
        """The model's tensors, by name, out of the pulled copies of `_create_dense`'s variables."""

    def ps_device(self, ps: int) -> str:
        """The device of ps task `ps`."""
        return f"/job:ps/task:{ps}"

    def create(self, trace: ModelTrace, group_of: Callable[[str], int] = lambda name: 0) -> None:
        """Makes clocks, variables and pulls for a traced model, in the default graph.

        Args:
            trace: the model's variables.
            group_of: name of a model variable -> number of its group; no two groups share a variable on a ps task.
        """
        is_split = len(self._stage_devices) > 1
        self.specs = trace.specs if is_split else tuple(spec._replace(stage=0) for spec in trace.specs)
        self._group_of = group_of
        for ps in range(self.num_ps):
            with tf.device(self.ps_device(ps)):
                self.clocks.append(_create_clock("global_step" if ps == 0 else f"ps_trainer/clock_{ps}"))
                if not self.keeps_replica:
                    self.clock_reads.append(_unstage([tf.int64], [[]], self._stage_name(f"clock_{ps}"))[0])
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
        """Variable-scope custom getter under which the model is built: gives the pulled value of `name`.

        Raises:
            OptionError: the model asks for a variable that it did not ask for when it was traced.
        """
        if is_local(kwargs):
            return getter(name, *args, **kwargs)
        if name not in self._model_values:
            raise OptionError(
                f"the model asks for variable {name!r} on this build but not on the first;"
                " it must ask for the same variables each time it is built"
            )
        value = self._model_values[name]
        if name not in self._given:  # a shared variable has one loss, as in TensorFlow
            self._given.add(name)
            _add_regularization_loss(value, kwargs.get("regularizer"))
        return value

    def gradients(self, loss: tf.Tensor) -> list[Gradient]:
        """Gradients of `loss` for the trainable pieces that it depends on.

        Raises:
            OptionError: the loss depends on no trainable variable.
        """
        trained = [piece for piece in self.pieces if piece.trainable]
        # Of a model in one place TensorFlow puts everything there, and colocation would only bind it to the ps tasks.
        is_split = len(self._stage_devices) > 1
        values = tf.gradients(loss, [piece.pulled for piece in trained], colocate_gradients_with_ops=is_split)
        gradients = []
        for piece, value in zip(trained, values, strict=True):
            if value is not None:
                with tf.device(piece.device):
                    gradients.append(Gradient(piece, value if piece.is_table else tf.convert_to_tensor(value)))
        if not gradients:
            raise OptionError("the model's loss depends on none of its trainable variables")
        return gradients

    @property
    def dense(self) -> list[Piece]:
        """The trainable dense pieces."""
        return [piece for piece in self.pieces if piece.trainable and not piece.is_table]

    def read(self, after: Sequence[tf.Operation]) -> Snapshot:
        """Reads each ps task's clock once its op is done, and the dense parameters after the clock.

        An update of another worker that falls between is in the parameters and not in the clock, unless both are read
        in the section in which updates are made (`read_on`).

        Args:
            after: for each ps task the op to wait for.
        """
        snapshots = []
        for ps in range(self.num_ps):
            with tf.control_dependencies([after[ps]]):
                snapshots.append(self.read_on(ps))
        return self.joined(snapshots)

    def read_on(self, ps: int) -> Snapshot:
        """Reads the clock of one ps task, then its dense parameters, as they are there; for `joined`."""
        with tf.device(self.ps_device(ps)):
            clock = self.clocks[ps].read_value()
            with tf.control_dependencies([clock]):
                values = [(piece, piece.variable.read_value()) for piece in self.dense if piece.ps == ps]
        return Snapshot([clock], values)

    def joined(self, snapshots: Sequence[Snapshot]) -> Snapshot:
        """One snapshot of `read_on` for each ps task, in order -> one of all, in the type in which it travels."""
        clocks = [clock for snapshot in snapshots for clock in snapshot.clocks]
        raw = {piece.variable.op.name: value for snapshot in snapshots for piece, value in snapshot.values}
        values = []
        for piece in self.dense:
            with tf.device(self.ps_device(piece.ps)):
                value = raw[piece.variable.op.name]
                values.append((piece, tf.saturate_cast(value, self._wire_dtype(value.dtype))))
        return Snapshot(clocks, values)

    def build_pull(
        self, snapshot: Snapshot, on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None
    ) -> list[tf.Operation]:
        """The ops that pull for the next step.

        Args:
            snapshot: what is pulled, read after this worker's apply.
            on_pull: called with each piece and the value that the worker will get of it, on the ps; its op
                runs with the pull.
        """
        ops = []
        for ps, clock in enumerate(snapshot.clocks):
            with tf.device(self.ps_device(ps)):
                ops.append(tf.raw_ops.Stage(values=[clock], shared_name=self._stage_name(f"clock_{ps}")))
        if on_pull is not None:
            for piece, value in snapshot.values:
                with tf.device(self.ps_device(piece.ps)):
                    ops.append(on_pull(piece, tf.cast(value, piece.variable.dtype.base_dtype)))
        by_device: dict[str, list[tf.Tensor]] = {}
        for piece, value in snapshot.values:
            by_device.setdefault(piece.device, []).append(value)
        return [*ops, *self._stage(by_device)]

    def build_hold(self) -> list[tf.Operation]:
        """In place of a pull: the ops that keep this step's parameters for the next one; nothing travels."""
        return self._stage(self._unstaged)

    def build_prime(self, on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None) -> tf.Operation:
        """The op that pulls for a worker's first step, in place of whatever was staged before."""
        clears = []
        for ps in range(self.num_ps):
            with tf.device(self.ps_device(ps)):
                clears.append(tf.raw_ops.StageClear(dtypes=[tf.int64], shared_name=self._stage_name(f"clock_{ps}")))
        for device, values in self._unstaged.items():
            with tf.device(device):
                dtypes = [value.dtype for value in values]
                clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=self._stage_name("values")))
        with tf.control_dependencies(clears):
            return tf.group(*self.build_pull(self.read([tf.group(*clears)] * self.num_ps), on_pull))

    def _create_trained(self, specs: Sequence[VariableSpec], device: str) -> None:
        """Makes the trainable dense variables of a stage, and their pull."""
        parts = self._create_dense(specs)
        with tf.device(device):
            replicas = [_create_replica(part.variable) if self.keeps_replica else None for part in parts]
            if self.keeps_replica:
                values = [replica.read_value() for replica in replicas]
            else:
                values = self._unstage_parts(parts, device)
            pieces = [
                Piece(part.variable, part.ps, tuple(part.extents), value, device=device, replica=replica)
                for part, value, replica in zip(parts, values, replicas, strict=True)
            ]
            tensors = self._assemble(specs, pieces)
        self.pieces += pieces
        self._model_values |= tensors
        for tensor in tensors.values():  # so that code that walks tf.trainable_variables() finds them
            tf.add_to_collection(tf.GraphKeys.TRAINABLE_VARIABLES, tensor)

    def _unstage_parts(self, parts: Sequence[Part], device: str) -> list[tf.Tensor]:
        if not parts:
            return []
        dtypes = [part.variable.dtype.base_dtype for part in parts]
        shapes = [part.variable.shape for part in parts]
        unstaged = _unstage([self._wire_dtype(d) for d in dtypes], shapes, self._stage_name("values"))
        self._unstaged[device] = unstaged
        return [tf.cast(value, dtype) for value, dtype in zip(unstaged, dtypes, strict=True)]

    def _stage(self, by_device: Mapping[str, Sequence[tf.Tensor]]) -> list[tf.Operation]:
        ops = []
        for device, values in by_device.items():
            with tf.device(device):
                ops.append(tf.raw_ops.Stage(values=values, shared_name=self._stage_name("values")))
        return ops

    def _wire_dtype(self, dtype: tf.DType) -> tf.DType:
        return self._pull_dtype if dtype == tf.float32 else dtype

    def _stage_name(self, what: str) -> str:
        return f"pull/worker_{self._worker_index}/{what}"

    def _create_table(self, spec: VariableSpec) -> None:
        """Rows in contiguous blocks over the ps tasks; only the rows of a batch travel."""
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
                Piece(variable, ps_of(variable), (extent,), variable, is_table=True, device=self.worker_device)
            )

    def _create_untrained(self, spec: VariableSpec, ps: int) -> None:
        """A variable that the model itself assigns, such as a moving average: one whole variable on one ps."""
        with tf.device(self.ps_device(ps)):
            variable = create_variable(spec.name, spec.shape, spec.dtype)
        self._model_values[spec.name] = variable
        extent = Extent(spec.name, 0, spec.size, 0)
        self.pieces.append(Piece(variable, ps, (extent,), None, trainable=False, device=self.worker_device))


def _create_replica(variable: tf.Variable) -> tf.Variable:
    """A copy of a ps variable on the worker; not initialised by the run's set-up but by the rule's fetch."""
    return create_local_variable(f"replica/{variable.op.name}", variable.shape, variable.dtype.base_dtype)


def _add_regularization_loss(value: Any, regularizer: Any) -> None:
    loss = None if regularizer is None else regularizer(tf.convert_to_tensor(value))
    if loss is not None:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, loss)


def _unstage(dtypes: Sequence[tf.DType], shapes: Sequence[Any], name: str) -> list[tf.Tensor]:
    values = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=name)
    for value, shape in zip(values, shapes, strict=True):
        value.set_shape(shape)
    return values


def _create_clock(name: str) -> tf.Variable:
    clock = create_variable(name, [], tf.int64.as_numpy_dtype)
    if name == "global_step":
        tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, clock)
    return clock
