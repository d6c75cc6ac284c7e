"""Saves and restores the state that only one worker has: residuals of gradient transforms, its replica.

Each worker writes files on its own disk, so no shared file system is needed:

    <logdir>/checkpoints/worker-<index>-<pushes>.npz      the variables by name, and the moment to which they belong

A state belongs to a number of pushes of this worker. The worker restores it only in a run whose parameters hold exactly
these pushes (`push_counts.py`). With an older state it would send a part of its gradients twice; a newer state lacks
what has to be sent again. If no state fits, the worker starts without one and logs a warning.

When each file is written:

    the chief             with each checkpoint
    another worker        when its next push shows that the chief has saved: the state after this push, or after the
                          push before it, whichever the checkpoint holds (`after_pushes.py`)
    every worker          when its steps end or fail

A failed step may have pushed or not. The state after the push before it still exists as a copy. A residual notes a push
before the push can leave the worker (`gradients/wire.py`), so the present variables are the state after the push. The
worker keeps both states, in memory as well, until it has joined again.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import worker_file
from ps_trainer.checkpoints.worker_file import SavedWorkerState
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.training.graph_parts.after_pushes import AfterPushes
from ps_trainer.training.graph_parts.push_counts import PushCounts, PushMark

ReadVariables = Callable[[Sequence[tf.Variable]], Sequence[np.ndarray]]


class OwnVariables(NamedTuple):
    """Variables of one worker that are saved beside the checkpoints.

    Attributes:
        variables: The variables; at least one.
        push_counts: Counts of the pushes to which their values belong.
        after_pushes: Copies of the variables after this worker's last pushes.
        knows_first: Whether the variables note a push before it can leave the worker.
    """

    variables: Sequence[tf.Variable]
    push_counts: PushCounts
    after_pushes: AfterPushes
    knows_first: bool = True


class WorkerStateSaver:
    """Saves and restores variables of one worker.

    Args:
        own: Variables on this worker; None if it has none.
        config: Configuration of the run: the folder, and the number of files to keep.
        worker_index: Index of this worker.
        kept: States that `keep` returned before the worker lost its last session.
    """

    def __init__(
        self,
        own: OwnVariables | None,
        config: TrainConfig,
        worker_index: int,
        *,
        kept: Sequence[SavedWorkerState] = (),
    ):
        variables = own.variables if own is not None else []
        self._variables = {variable.op.name: variable for variable in variables}
        self._counts = own.push_counts if own is not None else None
        self._after_pushes = own.after_pushes if own is not None else None
        self._config = config
        self._index = worker_index
        self._knows_first = own is None or own.knows_first
        self._kept = tuple(kept)
        self._joined_at: PushMark | None = None
        self._pushes = 0  # number of pushes to which the newer copy belongs
        self._saved_pushes = 0
        self._folder: pathlib.Path | None = config.checkpoint_dir
        self._reads = _reads(self._variables, variables)
        self._reads_before = _reads(self._variables, own.after_pushes.before if own is not None else [])
        self._writes = {name: _write_of(variable) for name, variable in self._variables.items()}

    def restore(self, session: tf.Session, global_step: int) -> None:
        """Sets the variables to the state that belongs to the run's present moment, if one exists.

        Called when the worker joins.
        """
        if self._counts is None or self._after_pushes is None:
            return
        mark = self._joined_at = self._counts.mark(session, global_step)
        self._pushes = mark.pushes
        self._take_up(session, global_step, mark)
        self._remove_abandoned(mark)
        # Last, so that the copies have the restored values.
        session.run(self._after_pushes.begin_op)

    def _take_up(self, session: tf.Session, global_step: int, mark: PushMark) -> None:
        faults = []
        for where, saved in self._candidates(mark):
            fault = self._fault(saved, mark)
            if not fault:
                self._load(session, saved)
                logging.info("continuing with this worker's own state after %d pushes, from %s", mark.pushes, where)
                self._kept = ()
                return
            faults.append(f"{where}: {fault}")
        self._kept = ()
        if global_step and (mark.pushes or faults):
            logging.warning(
                "this worker starts without its own state (%s): the run continues at its push %d, and no saved state"
                " belongs to that push; %s",
                ", ".join(sorted(self._variables)[:3]) + (", …" if len(self._variables) > 3 else ""),
                mark.pushes,
                "; ".join(faults) or "no file of this worker was found",
            )

    def after_step(self, session: tf.Session, global_step: int, counts: Sequence[np.ndarray]) -> None:
        """Writes the state that belongs to the chief's last checkpoint, as soon as this worker knows of it.

        Args:
            session: Session of this worker.
            global_step: Value of global_step after the step.
            counts: Values of `StepFetches.counts`.
        """
        for pushes, saved in counts:
            if self._joined_at is not None and self._is_new(pushes, saved):
                reads = self._reads_before if saved == self._pushes else self._reads
                self._save(session, reads, global_step, PushMark(self._joined_at.lineage, int(saved)))
            self._pushes = int(pushes)

    def is_due(self, counts: Sequence[np.ndarray]) -> bool:
        """Returns whether `after_step` would write a state."""
        return any(self._is_new(pushes, saved) for pushes, saved in counts)

    def note(self, counts: Sequence[np.ndarray]) -> None:
        """Stands for `after_step` after a step for which nothing is due."""
        for pushes, _ in counts:
            self._pushes = int(pushes)

    def _is_new(self, pushes: int, saved: int) -> bool:
        return saved > self._saved_pushes and saved in (self._pushes, pushes)

    def save(self, session: tf.Session, global_step: int) -> None:
        """Saves between two steps. A failure is only logged, because training can continue without the file."""
        if self._counts is not None and self._folder is not None:
            self._save(session, self._reads, global_step, self._counts.mark(session, global_step))

    def _save(self, session: tf.Session, reads: Mapping[str, tf.Tensor], global_step: int, mark: PushMark) -> None:
        self._saved_pushes = mark.pushes
        if self._folder is not None:
            self._write(self._folder, SavedWorkerState(session.run(reads), global_step, *mark))
            self._remove_old(self._folder)

    def keep(
        self, read: ReadVariables, *, num_sent: int, global_step: int, in_flight: bool
    ) -> tuple[SavedWorkerState, ...]:
        """Reads this worker's state after its steps failed and its session was closed, and writes it to disk.

        Args:
            read: Function that reads variables of this worker although its session is closed.
            num_sent: Number of steps since the join that pushed something.
            global_step: Last value of global_step that this worker saw.
            in_flight: Whether a step had begun and not ended.

        Returns:
            One state for each number of pushes that the run may hold; empty if the number is unknown.
        """
        if self._counts is None or self._after_pushes is None:
            return ()
        # The worker failed before it joined, so an earlier state is still the newest one.
        if self._joined_at is None:
            return self._kept
        lineage, pushes = self._joined_at
        pushes = self._counts.now(pushes + num_sent, global_step)
        # The exchange may or may not have arrived at the other workers, so no number of pushes is certain.
        if in_flight and self._counts.is_in_lockstep:
            return ()
        states = [(list(self._variables.values()), pushes)]
        if in_flight:
            states = [(self._after_pushes.last, pushes)]
            if self._knows_first:
                states.append((list(self._variables.values()), pushes + 1))
        try:
            values = [dict(zip(self._variables, read(variables), strict=True)) for variables, _ in states]
        except tf.errors.OpError as error:
            logging.warning("this worker's own state could not be read after the failure: %s", error.message)
            return ()
        kept = tuple(
            SavedWorkerState(value, global_step, lineage, count)
            for value, (_, count) in zip(values, states, strict=True)
        )
        if self._folder is not None:
            for saved in kept:
                self._write(self._folder, saved)
        return kept

    def _candidates(self, mark: PushMark) -> Iterator[tuple[str, SavedWorkerState]]:
        """Yields the states that may fit, each with the place where it is. Damaged files are logged and skipped."""
        for saved in self._kept:
            yield "memory", saved
        if self._folder is None:
            return
        # Only the first of these files can fit. The others are read so that the warning names what is there.
        likely = worker_file.path_of(self._folder, self._index, mark.pushes)
        others = worker_file.find(self._folder, self._index)[-1:]
        for path in dict.fromkeys([likely, *others, worker_file.old_path_of(self._folder, self._index)]):
            with contextlib.suppress(FileNotFoundError):
                try:
                    yield str(path), worker_file.read(path)
                except CheckpointError as error:
                    logging.warning("%s", error)

    def _fault(self, saved: SavedWorkerState, mark: PushMark) -> str:
        """Returns in words why a state does not fit; empty if it fits."""
        if saved.pushes is None:
            return "from an older version, which did not record the number of pushes"
        if saved.lineage != mark.lineage:
            return "from another run"
        if saved.pushes != mark.pushes:
            return f"after push {saved.pushes}"
        for name, variable in self._variables.items():
            if name not in saved.values or not variable.shape.is_compatible_with(saved.values[name].shape):
                return f"{name} is missing or has another shape, as the run was started with other flags"
        return ""

    def _load(self, session: tf.Session, saved: SavedWorkerState) -> None:
        for name, (value, write_op) in self._writes.items():
            session.run(write_op, {value: saved.values[name]})

    def _write(self, folder: pathlib.Path, saved: SavedWorkerState) -> None:
        if saved.pushes is None:
            raise ValueError("only states in files of older versions lack the number of pushes")
        path = worker_file.path_of(folder, self._index, saved.pushes)
        try:
            worker_file.write(path, saved)
        except OSError as error:
            logging.warning("%s could not be written: %s", path, error)

    def _remove_old(self, folder: pathlib.Path) -> None:
        """Removes old files, but keeps one more than the checkpoints: the chief may not have finished the last one."""
        for path in worker_file.find(folder, self._index)[: -self._config.keep_checkpoints - 1]:
            if worker_file.pushes_of(path) is not None:
                path.unlink(missing_ok=True)

    def _remove_abandoned(self, mark: PushMark) -> None:
        """Removes the files of pushes that were rolled back: new pushes will get the same numbers."""
        for path in worker_file.find(self._folder, self._index) if self._folder is not None else []:
            with contextlib.suppress(FileNotFoundError, CheckpointError):
                if (worker_file.pushes_of(path) or 0) > mark.pushes and worker_file.read(path).lineage == mark.lineage:
                    path.unlink()


def _reads(names: Iterable[str], variables: Sequence[tf.Variable]) -> dict[str, tf.Tensor]:
    return {name: variable.read_value() for name, variable in zip(names, variables, strict=True)}


def _write_of(variable: tf.Variable) -> tuple[tf.Tensor, tf.Operation]:
    """Builds a placeholder of any shape that the variable may take, and the op that assigns it to the variable."""
    with variable.graph.as_default(), tf.device(variable.device):
        value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
        return value, variable.assign(value, read_value=False)
