"""Saves a script's checkpoints with its own `Saver`, in files that a killed save or a full disk cannot damage."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import folder_listing, writer
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.errors import SaveError
from ps_trainer.tf1 import packing

BASENAME = "model.ckpt"
_NEVER_HOURS = 10_000.0  # TensorFlow's default of keep_checkpoint_every_n_hours


def use_one_file(scaffold: tf.train.Scaffold) -> None:
    """Gives a scaffold without a saver one that writes on the chief's own disk.

    TensorFlow's default saver makes each ps task write its part on its own machine, so that a checkpoint is whole only
    on a shared disk.
    """
    if scaffold._saver is None and not tf.get_collection(tf.GraphKeys.SAVERS):
        layout = packing.of_graph(tf.get_default_graph())
        with tf.device(None):
            saved = layout.saveables() if layout is not None else None
            scaffold._saver = tf.train.Saver(saved, sharded=False, allow_empty=True)
        # Where TensorFlow adds its default saver, too: a `CheckpointSaverHook` without a saver takes it from there.
        tf.add_to_collection(tf.GraphKeys.SAVERS, scaffold._saver)


def save(saver: tf.train.Saver, session: tf.Session, save_path: str, step: int, *, write_meta_graph: bool) -> int:
    """Saves `model.ckpt-<step>`: written under another name, synced, renamed; older checkpoints stay until then.

    The step in the name is the one that the files hold; the function returns it. A saver saves in TensorFlow's way if
    it writes a file on each ps task's machine (`sharded`), keeps checkpoints by the hour, or has another basename.

    Raises:
        SaveError: The disk is full or not writable.
    """
    folder, name = pathlib.Path(save_path).parent, pathlib.Path(save_path).name
    keeps_by_hour = saver.saver_def.keep_checkpoint_every_n_hours < _NEVER_HOURS
    if saver.saver_def.sharded or keeps_by_hour or name != BASENAME:
        try:
            saver.save(session, save_path, global_step=step, write_meta_graph=write_meta_graph)
        except (OSError, tf.errors.ResourceExhaustedError, tf.errors.PermissionDeniedError) as error:
            raise SaveError(f"{save_path}-{step} could not be written: {error}") from error
        return step

    def write_files(prefix: str) -> int:
        session.run(saver.saver_def.save_tensor_name, {saver.saver_def.filename_tensor_name: prefix})
        # Other workers have made steps during the save, so the files may hold a later step than `step`.
        variable = tf.train.get_global_step(session.graph)
        saved = Checkpoint(prefix)
        return int(saved[variable.op.name]) if variable is not None and variable.op.name in saved else step

    prefix = writer.write_by(folder, step, write_files, keep=saver.saver_def.max_to_keep or None)
    if write_meta_graph:
        with session.graph.as_default():  # the thread of a `Supervisor` has none
            saver.export_meta_graph(f"{prefix}.meta")
    _remove_meta_graphs(folder)
    saver.set_last_checkpoints([path for path in saver.last_checkpoints if path != prefix] + [prefix])
    return folder_listing.step_of(prefix) or 0


def _remove_meta_graphs(folder: pathlib.Path) -> None:
    """Removes the graphs of checkpoints that were removed."""
    for path in folder.glob(f"{BASENAME}-*.meta"):
        if not path.with_suffix(".index").exists():
            path.unlink(missing_ok=True)


class CheckpointSaverHook(tf.train.CheckpointSaverHook):
    """`tf.train.CheckpointSaverHook`, with the same arguments; its files cannot be damaged by a failed save.

    Training continues when a save fails, and ends when `max_failed_saves` in a row have failed
    (PS_TRAINER_MAX_FAILED_SAVES), or when the last save of the run fails.

    Args:
        args: As in TensorFlow.
        max_failed_saves: Consecutive failed saves after which training ends.
        kwargs: As in TensorFlow.
    """

    def __init__(self, *args: Any, max_failed_saves: int = 3, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.max_failed_saves = max_failed_saves
        self._failed_saves = 0
        self._saved_step: int | None = None

    def end(self, session: tf.Session) -> None:
        """Saves the last checkpoint; a failure is an error here."""
        self._failed_saves = self.max_failed_saves
        super().end(session)

    def save_now(self, session: tf.Session) -> None:
        """Saves the current state, unless it is saved already."""
        step = int(session.run(self._global_step_tensor))
        if step != self._saved_step:
            self._failed_saves = self.max_failed_saves
            self._save(session, step)

    def _save(self, session: tf.Session, step: int) -> bool:
        for listener in self._listeners:
            listener.before_save(session, step)
        try:
            self._saved_step = save(
                self._get_saver(), session, self._save_path, int(step), write_meta_graph=self._save_graph_def
            )
        except SaveError as error:
            self._failed_saves += 1
            if self._failed_saves >= self.max_failed_saves:
                raise
            logging.warning("%s. Training continues after failed save %d", error, self._failed_saves)
            return False
        self._failed_saves = 0
        logging.info("saved %s-%d", self._save_path, self._saved_step)
        log = tf.SessionLog(status=tf.SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
        self._summary_writer.add_session_log(log, step)
        answers = [listener.after_save(session, step) for listener in self._listeners]  # each one is to hear of it
        return any(answers)


def make_folder(directory: str) -> None:
    """Makes the folder of the checkpoints.

    Raises:
        SaveError: It cannot be made.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise SaveError(f"checkpoint_dir={directory} cannot be made: {error.strerror}") from error
