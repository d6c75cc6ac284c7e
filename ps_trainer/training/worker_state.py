"""What one worker alone knows (residuals of gradient transforms, its replica …): kept, and taken up where it fits.

Each worker writes its own files on its own disk, so no shared file system is needed:

    <logdir>/checkpoints/worker-<index>-<pushes>.npz      the variables by name, and to what they belong

They belong to so many pushes of this worker, and are taken up only by a run whose parameters hold just these
(`push_counts.py`): an older state would be sent twice, a newer one lacks what is to be sent again. Where none fits, the
worker begins without, and says so.

So there is a file for each checkpoint. The chief writes its own with it. Another worker learns with its next push that
the chief has saved, and whether that push is in the checkpoint; it writes what it knew after this push, or after the
one before (`after_pushes.py`). All write one when their steps end, whatever ends them.

A step that failed may have pushed or not. What was known after the push before it is there still; a residual has taken
note of a push before that could leave (`gradients/wire.py`), so the worker also keeps what that has become, for a run
that holds the push. Both stay in memory as well until the worker has joined again.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import worker_file
from ps_trainer.checkpoints.worker_file import Saved
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.training.after_pushes import AfterPushes
from ps_trainer.training.push_counts import Mark, PushCounts


class WorkerState:
    """Saves and restores variables of one worker.

    Args:
        variables: on this worker; none where it knows nothing alone.
        counts: of pushes; None without variables.
        after_pushes: copies of the variables; None without.
        config: where, and how many files are kept.
        worker_index: of this worker.
        knows_first: whether the variables take note of a push before it can leave.
        kept: see `keep`, of before a part of the job was lost.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        counts: PushCounts | None,
        after_pushes: AfterPushes | None,
        config: TrainConfig,
        worker_index: int,
        *,
        knows_first: bool = True,
        kept: Sequence[Saved] = (),
    ):
        self._variables = {variable.op.name: variable for variable in variables}
        self._counts = counts
        self._after_pushes = after_pushes
        self._config = config
        self._index = worker_index
        self._knows_first = knows_first
        self._kept = tuple(kept)
        self._joined_at: Mark | None = None
        self._pushes = 0  # after which the copies were moved on last
        self._saved_pushes = 0
        self._folder: pathlib.Path | None = config.checkpoint_dir
        self._reads = _reads(self._variables, variables)
        self._reads_before = _reads(self._variables, after_pushes.before if after_pushes is not None else [])
        self._writes = {name: _write_of(variable) for name, variable in self._variables.items()}

    def restore(self, session: tf.Session, global_step: int) -> None:
        """Sets the variables to what belongs to the run's state at present, where there is such; called at the join."""
        if not self._variables:
            return
        mark = self._joined_at = self._counts.mark(session, global_step)
        self._pushes = mark.pushes
        self._take_up(session, global_step, mark)
        self._remove_abandoned(mark)
        session.run(self._after_pushes.begin_op)

    def _take_up(self, session: tf.Session, global_step: int, mark: Mark) -> None:
        faults = []
        for where, saved in self._candidates(mark):
            fault = self._fault(saved, mark)
            if not fault:
                self._load(session, saved)
                logging.info("goes on with this worker's state after %d pushes, from %s", mark.pushes, where)
                self._kept = ()
                return
            faults.append(f"{where}: {fault}")
        self._kept = ()
        if global_step and (mark.pushes or faults):
            logging.warning(
                "this worker begins without what it alone knew (%s): nothing that is there belongs to its push %d, at"
                " which the run goes on; %s",
                ", ".join(sorted(self._variables)[:3]) + (", …" if len(self._variables) > 3 else ""),
                mark.pushes,
                "; ".join(faults) or "it left nothing",
            )

    def after_step(self, session: tf.Session, global_step: int, counts: Sequence[np.ndarray]) -> None:
        """Writes what belongs to the chief's last checkpoint, as soon as that is known.

        Args:
            session: of this worker.
            global_step: after the step.
            counts: what the step brought of `PushCounts.build`.
        """
        for pushes, saved in counts:
            if saved > self._saved_pushes and saved in (self._pushes, pushes):
                reads = self._reads_before if saved == self._pushes else self._reads
                self._save(session, reads, global_step, Mark(self._joined_at.lineage, int(saved)))
            self._pushes = int(pushes)

    def save(self, session: tf.Session, global_step: int) -> None:
        """Saves now, between steps; a failure is logged, as training can go on without."""
        if self._variables and self._folder is not None:
            self._save(session, self._reads, global_step, self._counts.mark(session, global_step))

    def _save(self, session: tf.Session, reads: Mapping[str, tf.Tensor], global_step: int, mark: Mark) -> None:
        self._saved_pushes = mark.pushes
        if self._folder is not None:
            self._write(Saved(session.run(reads), global_step, *mark))
            self._remove_old()

    def keep(
        self, target: str, config: tf.ConfigProto, *, num_sent: int, global_step: int, in_flight: bool
    ) -> tuple[Saved, ...]:
        """What this worker knows when its steps have failed, and its session is closed; written to its disk as well.

        Args:
            target: of this worker's server, which holds the variables beyond the session.
            config: of a session of this task alone.
            num_sent: steps since the join that have pushed something.
            global_step: as this worker knows it.
            in_flight: whether a step was under way.

        Returns:
            For each number of pushes that the run may hold; none where nothing is known.
        """
        if not self._variables:
            return ()
        if self._joined_at is None:
            return self._kept
        lineage, pushes = self._joined_at
        pushes = self._counts.now(pushes + num_sent, global_step)
        if in_flight and self._counts.is_in_lockstep:
            return ()
        states = [(list(self._variables.values()), pushes)]
        if in_flight:
            states = [(self._after_pushes.last, pushes)]
            if self._knows_first:
                states.append((list(self._variables.values()), pushes + 1))
        try:
            values = [self._read_alone(variables, target, config) for variables, _ in states]
        except tf.errors.OpError as error:
            logging.warning("what this worker alone knows could not be kept: %s", error.message)
            return ()
        kept = tuple(
            Saved(value, global_step, lineage, count) for value, (_, count) in zip(values, states, strict=True)
        )
        if self._folder is not None:
            for saved in kept:
                self._write(saved)
        return kept

    def _read_alone(self, variables: Sequence[tf.Variable], target: str, config: tf.ConfigProto) -> dict:
        """The values, by name, by a graph that has no other task in it, of which one may be gone."""
        with tf.Graph().as_default() as graph:
            reads = {}
            for name, variable in zip(self._variables, variables, strict=True):
                own = variable.handle.op
                with tf.device(variable.device):
                    handle = tf.raw_ops.VarHandleOp(
                        dtype=variable.dtype.base_dtype,
                        shape=variable.shape,
                        container=own.get_attr("container"),
                        shared_name=own.get_attr("shared_name"),
                    )
                    reads[name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype.base_dtype)
        with tf.Session(target, graph=graph, config=config) as session:
            return session.run(reads)

    def _candidates(self, mark: Mark) -> Iterator[tuple[str, Saved]]:
        """What may fit, and where it is; what is broken is logged."""
        for saved in self._kept:
            yield "memory", saved
        if self._folder is None:
            return
        likely = worker_file.path_of(self._folder, self._index, mark.pushes)
        others = worker_file.find(self._folder, self._index)[-1:]
        for path in dict.fromkeys([likely, *others, worker_file.old_path_of(self._folder, self._index)]):
            with contextlib.suppress(FileNotFoundError):
                try:
                    yield str(path), worker_file.read(path)
                except CheckpointError as error:
                    logging.warning("%s", error)

    def _fault(self, saved: Saved, mark: Mark) -> str:
        """Why a state is not the one to go on with, in words; empty if it is."""
        if saved.pushes is None:
            return "of a version that did not note to how many pushes its state belongs"
        if saved.lineage != mark.lineage:
            return "of another run"
        if saved.pushes != mark.pushes:
            return f"of push {saved.pushes}"
        for name, variable in self._variables.items():
            if name not in saved.values or not variable.shape.is_compatible_with(saved.values[name].shape):
                return f"{name} is missing or has another shape; the run was started with other flags"
        return ""

    def _load(self, session: tf.Session, saved: Saved) -> None:
        for name, (value, write_op) in self._writes.items():
            session.run(write_op, {value: saved.values[name]})

    def _write(self, saved: Saved) -> None:
        path = worker_file.path_of(self._folder, self._index, saved.pushes)
        try:
            worker_file.write(path, saved)
        except OSError as error:
            logging.warning("%s could not be written: %s", path, error)

    def _remove_old(self) -> None:
        """Leaves one file more than there are checkpoints, as the chief may be still at the last."""
        for path in worker_file.find(self._folder, self._index)[: -self._config.keep_checkpoints - 1]:
            if worker_file.pushes_of(path) is not None:
                path.unlink(missing_ok=True)

    def _remove_abandoned(self, mark: Mark) -> None:
        """Removes what belongs to pushes that have been rolled back: others will have their numbers."""
        for path in worker_file.find(self._folder, self._index) if self._folder is not None else []:
            with contextlib.suppress(FileNotFoundError, CheckpointError):
                if (worker_file.pushes_of(path) or 0) > mark.pushes and worker_file.read(path).lineage == mark.lineage:
                    path.unlink()


def _reads(names: Iterable[str], variables: Sequence[tf.Variable]) -> dict[str, tf.Tensor]:
    return {name: variable.read_value() for name, variable in zip(names, variables, strict=True)}


def _write_of(variable: tf.Variable) -> tuple[tf.Tensor, tf.Operation]:
    """A placeholder, and the op that sets the variable to it: of any shape that the variable may take."""
    with variable.graph.as_default(), tf.device(variable.device):
        value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
        return value, variable.assign(value, read_value=False)
