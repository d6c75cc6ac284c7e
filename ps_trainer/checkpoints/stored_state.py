"""`StoredState`: everything that a checkpoint holds, under the model's names, whatever the layout.

A model variable has its own name, and an optimizer slot the name `<variable>/<slot>` as in plain TensorFlow (`w/Adam`,
`w/Adam_1`). The clock of ps 0 is `global_step`. Values pass through the chief as NumPy arrays, those of large tables in
pieces. Each ps task makes the initial values of its part of a large table by itself, where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import compatibility, file_arrays, large_table
from ps_trainer.checkpoints.large_table import LargeTable
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.checkpoints.table_on_ps import TableOnPs, TableRows
from ps_trainer.errors import CheckpointError
from ps_trainer.store import extents as extents_lib
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.pieces import Piece


class Count(NamedTuple):
    """A count that is saved beside the parameters, under its own name.

    Attributes:
        variable: Variable on a ps task.
        adapt: Maps the value in a checkpoint, None if it has none, to the value with which the run continues.
        saved: Tensor on the same ps task that a checkpoint holds. None: the variable's value.
    """

    variable: tf.Variable
    adapt: Callable[[np.ndarray | None], np.ndarray]
    saved: tf.Tensor | None = None


class SavedVariable(NamedTuple):
    """A ps variable, and the ranges of saved tensors that it holds.

    Attributes:
        variable: The variable.
        extents: Ranges of saved tensors.
        is_slot: Whether it is an optimizer slot.
        table: Ops that fill it by rows, if it is a large table or a slot of one; None if not.
    """

    variable: tf.Variable
    extents: tuple[Extent, ...]
    is_slot: bool
    table: LargeTable | None = None


class StoredState:
    """The saved state of a run, as seen from the chief's graph.

    Args:
        store: The created store.
        slots: Pairs of a piece and one of its optimizer slots, of the piece's shape.
        counts: Counts that are saved as well; they start at zero.
        initial_tensors: Initial values of the model's variables in another graph, by name; None on a worker that never
            sets them.

    Attributes:
        count_names: Names of the counts.
        count_reads: For each count the tensor that a checkpoint holds, by name.
        clock: Variable of global_step.
        saved_variables: The pieces and their slots.
        variables: All saved variables on the ps tasks.
    """

    def __init__(
        self,
        store: ParameterStore,
        slots: Sequence[tuple[Piece, tf.Variable]],
        counts: Sequence[Count] = (),
        initial_tensors: Mapping[str, tf.Tensor] | None = None,
    ):
        self._counts = {count.variable.op.name: count for count in counts}
        self.count_reads = {name: _value_to_save(count) for name, count in self._counts.items()}
        self.count_names = frozenset(self._counts)
        self._clocks = store.clocks
        self.clock = store.clocks[0]
        self._model_specs = list(store.specs)
        specs = {spec.name: spec for spec in store.specs}
        self._specs: dict[str, VariableSpec] = dict(specs)

        def table_of(piece: Piece, variable: tf.Variable) -> LargeTable | None:
            """Returns what fills a table by rows; None on a worker that never sets it."""
            if initial_tensors is None:
                return None
            is_slot = variable is not piece.variable
            return large_table.build(piece, variable, None if is_slot else initial_tensors.get(piece.extents[0].name))

        self.saved_variables = [
            SavedVariable(piece.variable, piece.extents, is_slot=False, table=table_of(piece, piece.variable))
            for piece in store.pieces
        ]
        for piece, slot in slots:
            # Several model variables may share a piece, so each gets its own slot name, as in plain TensorFlow.
            suffix = slot.op.name[len(piece.variable.op.name) :]  # "/Adam"
            renamed = tuple(extent._replace(name=extent.name + suffix) for extent in piece.extents)
            self.saved_variables.append(SavedVariable(slot, renamed, is_slot=True, table=table_of(piece, slot)))
            for extent in piece.extents:
                spec = specs[extent.name]
                self._specs[extent.name + suffix] = spec._replace(name=extent.name + suffix)
        self.variables = [saved.variable for saved in self.saved_variables] + self._clocks
        self.variables += [count.variable for count in counts]
        self._tables = {
            spec.name: TableOnPs(spec, [piece for piece in store.pieces if piece.extents[0].name == spec.name])
            for spec in store.specs
            if spec.is_table and spec.num_bytes >= file_arrays.LARGE_BYTES
        }
        self._slot_initializer = tf.group(*(slot.initializer for _, slot in slots))
        self._reads = [saved.variable.read_value() for saved in self.saved_variables]
        self._are_initialized = [variable.is_initialized() for variable in self.variables]

    @property
    def specs(self) -> list[VariableSpec]:
        """The saved tensors except global_step: model variables, then slots."""
        return list(self._specs.values())

    def lost_variables(self, session: tf.Session) -> list[str]:
        """Returns the names of the ps variables that hold no value at present."""
        alive = session.run(self._are_initialized)
        return [variable.op.name for variable, is_alive in zip(self.variables, alive, strict=True) if not is_alive]

    @property
    def large_tables(self) -> frozenset[str]:
        """Names of the model's large tables, which are set in pieces."""
        return frozenset(one.extents[0].name for one in self.saved_variables if one.table is not None)

    @property
    def self_made(self) -> frozenset[str]:
        """Names of the model variables whose initial values the ps tasks can make by themselves."""
        others = {
            one.extents[0].name
            for one in self.saved_variables
            if not one.is_slot and (one.table is None or one.table.initial_op is None)
        }
        return self.large_tables - others

    def initialize(self, session: tf.Session, initial_values: Mapping[str, np.ndarray | Checkpoint]) -> None:
        """Sets parameters to their initial values, slots to the optimizer's initial values, clocks to 0.

        Args:
            session: Session on the graph.
            initial_values: Values by name, or the checkpoint that holds a value. Those of `self_made` may be missing.
        """
        session.run(self._slot_initializer)
        # Slots have initial values of their optimizer, such as Adagrad's 0.1, and no initial value in the model.
        parameters = [saved for saved in self.saved_variables if not saved.is_slot]
        self_made = self.self_made - initial_values.keys()
        for name in sorted(self_made):  # one table after the other, since a ps task needs memory for a part twice
            session.run([one.table.initial_op for one in parameters if one.table and one.extents[0].name == name])
        for saved in parameters:
            if saved.extents[0].name not in self_made:
                _load(session, saved, initial_values)
        session.run([count.variable.initializer for count in self._counts.values()])
        self._set_clocks(session, 0)

    def restore(self, session: tf.Session, checkpoint: Checkpoint) -> int:
        """Sets everything from a checkpoint; returns its global_step.

        Raises:
            CheckpointError: A tensor is missing or has another shape.
        """
        self._check(checkpoint)
        return self.load(session, checkpoint)

    def load(self, session: tf.Session, values: Mapping[str, np.ndarray]) -> int:
        """Sets everything from values as `HeldState.read` returns them; returns their global_step."""
        for saved in self.saved_variables:
            _load(session, saved, values)
        self._load_counts(session, values)
        step = int(values["global_step"])
        self._set_clocks(session, step)
        return step

    def read_parameters(
        self, session: tf.Session, looked_up: Collection[str] = ()
    ) -> dict[str, np.ndarray | TableRows]:
        """Reads the current values of the model variables, by name, one piece after the other.

        Args:
            session: Session on the graph.
            looked_up: Names of variables of which only rows are needed. Large tables among them stay on the ps tasks.
        """
        tables = {name: TableRows(self._tables[name], session) for name in looked_up if name in self._tables}
        chosen = [
            (saved.extents, read)
            for saved, read in zip(self.saved_variables, self._reads, strict=True)
            if not saved.is_slot and saved.extents[0].name not in tables
        ]
        specs = [spec for spec in self._model_specs if spec.name not in tables]
        values = extents_lib.from_pieces(specs, [(extents, session.run(read)) for extents, read in chosen])
        return {**values, **tables}

    def _load_counts(self, session: tf.Session, values: Mapping[str, np.ndarray]) -> None:
        for name, count in self._counts.items():
            initializer = count.variable.initializer
            session.run(initializer, {initializer.inputs[1]: count.adapt(values.get(name))})

    def _set_clocks(self, session: tf.Session, step: int) -> None:
        for clock in self._clocks:
            session.run(clock.initializer, {clock.initializer.inputs[1]: np.int64(step)})

    def _check(self, checkpoint: Checkpoint) -> None:
        faults = compatibility.compare(self.specs, checkpoint).faults()
        if faults:
            raise CheckpointError(
                f"{checkpoint.prefix}: {'; '.join(faults)}. It was saved by another model or optimizer: use the same"
                " --model, --model_option and --optimizer, or a new --logdir (`checkpoint plan` compares)"
            )


def _value_to_save(count: Count) -> tf.Tensor:
    return count.variable.read_value() if count.saved is None else count.saved


def _load(session: tf.Session, saved: SavedVariable, values: Mapping[str, Any]) -> None:
    source = values if isinstance(values, Checkpoint) else values.get(saved.extents[0].name)
    if saved.table is not None and isinstance(source, Checkpoint):
        saved.table.load(session, saved.extents[0].name, source)
        return
    value = extents_lib.to_piece(saved.extents, saved.variable.shape.as_list(), values)
    # Feeding the initializer's input assigns the value without an assign op and a placeholder for each variable.
    session.run(saved.variable.initializer, {saved.variable.initializer.inputs[1]: value})
