"""What one worker alone knows (residuals of gradient transforms, its replica …): kept, and taken up where it fits.

Each worker writes its own files on its own disk, so no shared file system is needed:

    <logdir>/checkpoints/worker-<index>-<pushes>.npz      the variables by name, and to what they belong

They belong to so many pushes of this worker, and are taken up only by a run whose parameters hold just these
(`push_counts.py`): an older state would be sent twice, a newer one lacks what is to be sent again. Where none fits, the
worker begins without, and says so. In a step that failed, a residual has taken note of a push before that could leave
(`gradients/wire.py`), so it fits with that push and without it; a replica fits between steps only.

The chief writes a file with each checkpoint, of the same moment. The others write one at each multiple of
`save_checkpoint_steps`, which under rules with a barrier is when the chief saves, too. All write one when their steps
end, whatever ends them. What was known when a part of the job was lost is also kept in memory until the worker has
joined again.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.store import worker_file
from ps_trainer.store.worker_file import Saved
from ps_trainer.training.push_counts import Mark, PushCounts


class WorkerState:
    """Saves and restores variables of one worker.

    Args:
        variables: on this worker; none where it knows nothing alone.
        counts: of pushes; None without variables.
        config: where and how often.
        worker_index: of this worker.
        knows_first: whether the variables take note of a push before it can leave.
        kept: what this worker knew before a part of the job was lost.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        counts: PushCounts | None,
        config: TrainConfig,
        worker_index: int,
        *,
        knows_first: bool = True,
        kept: Saved | None = None,
    ):
        self._variables = {variable.op.name: variable for variable in variables}
        self._counts = counts
        self._config = config
        self._index = worker_index
        self._knows_first = knows_first
        self._kept = kept
        self._joined_at: Mark | None = None
        self._saved_step = 0
        self._folder: pathlib.Path | None = config.checkpoint_dir
        self._reads = {name: variable.read_value() for name, variable in self._variables.items()}
        self._writes = {name: _write_of(variable) for name, variable in self._variables.items()}

    def restore(self, session: tf.Session, global_step: int) -> None:
        """Sets the variables to what belongs to the run's state at present, where there is such; called at the join."""
        self._saved_step = global_step
        if not self._variables:
            return
        mark = self._joined_at = self._counts.mark(session, global_step)
        faults = []
        for where, saved in self._candidates(mark):
            fault = self._fault(saved, mark)
            if not fault:
                self._load(session, saved)
                logging.info("goes on with this worker's state after %d pushes, from %s", mark.pushes, where)
                self._kept = None
                return
            faults.append(f"{where}: {fault}")
        self._kept = None
        if global_step and (mark.pushes or faults):
            logging.warning(
                "this worker begins without what it alone knew (%s): nothing that is there belongs to its push %d, at"
                " which the run goes on; %s",
                ", ".join(sorted(self._variables)[:3]) + (", …" if len(self._variables) > 3 else ""),
                mark.pushes,
                "; ".join(faults) or "it left nothing",
            )

    def save_if_due(self, session: tf.Session, global_step: int) -> None:
        """Saves at the first step at or after each multiple of `save_checkpoint_steps`."""
        every = self._config.save_checkpoint_steps
        if every and global_step // every > self._saved_step // every:
            self.save(session, global_step)

    def save(self, session: tf.Session, global_step: int) -> None:
        """Saves now, between steps; a failure is logged, as training can go on without."""
        self._saved_step = global_step
        if self._variables and self._folder is not None:
            mark = self._counts.mark(session, global_step)
            self._write(Saved(session.run(self._reads), global_step, mark.lineage, mark.pushes, in_flight=False))

    def keep(
        self, target: str, config: tf.ConfigProto, *, num_sent: int, global_step: int, in_flight: bool
    ) -> Saved | None:
        """What this worker knows when its steps have failed, and its session is closed; written to its disk as well.

        Args:
            target: of this worker's server, which holds the variables beyond the session.
            config: of a session of this task alone.
            num_sent: steps since the join that have pushed something.
            global_step: as this worker knows it.
            in_flight: whether a step was under way.

        Returns:
            None where nothing is known, or it fits to nothing.
        """
        if not self._variables:
            return None
        if self._joined_at is None:
            return self._kept
        if in_flight and not self._knows_first:
            return None
        try:
            values = self._read_alone(target, config)
        except tf.errors.OpError as error:
            logging.warning("what this worker alone knows could not be kept: %s", error.message)
            return None
        lineage, pushes = self._joined_at
        saved = Saved(values, global_step, lineage, self._counts.after(pushes, global_step, num_sent), in_flight)
        if self._folder is not None:
            self._write(saved)
        return saved

    def _read_alone(self, target: str, config: tf.ConfigProto) -> dict:
        """The variables' values by a graph that has no other task in it, of which one may be gone."""
        with tf.Graph().as_default() as graph:
            reads = {}
            for name, variable in self._variables.items():
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
        if self._kept is not None:
            yield "memory", self._kept
        if self._folder is None:
            return
        likely = [worker_file.path_of(self._folder, self._index, pushes) for pushes in (mark.pushes, mark.pushes - 1)]
        others = worker_file.find(self._folder, self._index)[-1:]
        for path in dict.fromkeys([*likely, *others, worker_file.old_path_of(self._folder, self._index)]):
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
        if not saved.fits(*mark):
            return f"of push {saved.pushes}"
        for name, variable in self._variables.items():
            if name not in saved.values or not variable.shape.is_compatible_with(saved.values[name].shape):
                return f"{name} is missing or has another shape; the run was started with other flags"
        return ""

    def _load(self, session: tf.Session, saved: Saved) -> None:
        for name, (value, write_op) in self._writes.items():
            session.run(write_op, {value: saved.values[name]})

    def _write(self, saved: Saved) -> None:
        """Writes a file and removes all but as many as there are checkpoints."""
        path = worker_file.path_of(self._folder, self._index, saved.pushes)
        try:
            worker_file.write(path, saved)
            for old in worker_file.find(self._folder, self._index)[: -self._config.keep_checkpoints]:
                if old != worker_file.old_path_of(self._folder, self._index):
                    old.unlink(missing_ok=True)
        except OSError as error:
            logging.warning("%s could not be written: %s", path, error)


def _write_of(variable: tf.Variable) -> tuple[tf.Tensor, tf.Operation]:
    """A placeholder, and the op that sets the variable to it: of any shape that the variable may take."""
    with variable.graph.as_default(), tf.device(variable.device):
        value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
        return value, variable.assign(value, read_value=False)
