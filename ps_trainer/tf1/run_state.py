"""The state of a script's run on the ps tasks: how it begins, and in which container it lies."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import attr_value_pb2

from ps_trainer.checkpoints import folder_listing, reader, writer
from ps_trainer.errors import CheckpointError, OptionError, list_names
from ps_trainer.runtime.run_record import INITIALISED, RunStart

_PS = "/job:ps"
_POWER = re.compile(r"(.+/)?beta[12]_power(_\d+)?")  # beta ** (number of updates + 1), of AdamOptimizer
_run_of: weakref.WeakKeyDictionary[tf.Graph, str] = weakref.WeakKeyDictionary()


class SetUp(NamedTuple):
    """Ops and objects by which a script's model is initialised or restored; the attributes of `tf.train.Scaffold`.

    Attributes:
        init_op: Op that initialises the variables; None for none.
        init_feed_dict: Feeds of `init_op`.
        init_fn: Function of the session, called after `init_op`.
        local_init_op: Op that every worker runs in each new session.
        local_init_feed_dict: Feeds of `local_init_op`.
        ready_op: String tensor [n] with the names of variables that are not initialised; None = not checked.
        ready_for_local_init_op: The same, checked before `local_init_op`.
        saver: Saver of the checkpoints; None = nothing is restored.
        checkpoint_dir: Folder of the checkpoints, or None.
    """

    init_op: tf.Operation | None = None
    init_feed_dict: dict[Any, Any] | None = None
    init_fn: Callable[[tf.Session], Any] | None = None
    local_init_op: tf.Operation | None = None
    local_init_feed_dict: dict[Any, Any] | None = None
    ready_op: tf.Tensor | None = None
    ready_for_local_init_op: tf.Tensor | None = None
    saver: tf.train.Saver | None = None
    checkpoint_dir: str | None = None


class Containers:
    """Puts what a graph keeps on the ps tasks into the container of a run, so that no other run sees it.

    A script builds its graph before it knows the run, so the attribute is changed afterwards. An op whose container the
    script has named keeps it.

    Args:
        graph: The script's graph, before its first session.
    """

    def __init__(self, graph: tf.Graph):
        free = {"", _run_of.get(graph, "")}  # a script that tries again after a failure, with the same graph
        self._graph = graph
        self._ops = [
            op
            for op in graph.get_operations()
            if _PS in op.device and "container" in op.node_def.attr and op.get_attr("container").decode() in free
        ]

    def put_into(self, run_id: str) -> None:
        """Moves the ops to the container of a run; no open session may know them."""
        _run_of[self._graph] = run_id
        value = attr_value_pb2.AttrValue(s=run_id.encode())
        for op in self._ops:
            op._set_attr("container", value)  # TensorFlow has no public function for this


def check_placement(graph: tf.Graph) -> None:
    """Checks that the script keeps its variables on the ps tasks.

    Raises:
        OptionError: None of the graph's variables lies on a ps task.
    """
    variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    if variables and not any(_PS in variable.device for variable in variables):
        raise OptionError(
            f"no variable lies on a ps task ({variables[0].op.name} is on {variables[0].device or 'no device'}), so the"
            " workers would train different models; build the graph within"
            " tf.device(train.replica_device_setter(cluster=cluster, worker_device=…))"
        )


def variables_hash(graph: tf.Graph) -> str:
    """Returns a short hash of the trainable variables' names, shapes and types, equal on workers of one model."""
    variables = graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
    text = json.dumps([[v.op.name, str(v.shape), v.dtype.base_dtype.name] for v in variables])
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def begin(session: tf.Session, set_up: SetUp, *, is_alive: bool, was_lost: bool) -> RunStart:
    """Brings the state on the ps tasks to the point where training continues.

    1. If the state is alive there, because only the chief was restarted, attaches to it.
    2. Otherwise restores the newest checkpoint that can be loaded.
    3. Otherwise initialises.

    Args:
        session: Session of the chief.
        set_up: The script's ops.
        is_alive: Whether the ps tasks may still hold the state.
        was_lost: Whether there was state that is lost now.

    Raises:
        CheckpointError: The folder's checkpoints cannot be loaded, or state was lost and there is no checkpoint.
    """
    if is_alive and not uninitialised_names(session, set_up.ready_op):
        return RunStart(step=_step(session), how="attached to the run on the ps tasks")
    prefix = newest_checkpoint(set_up.checkpoint_dir) if set_up.saver is not None else None
    if prefix is not None and set_up.saver is not None:
        _restore(session, set_up.saver, prefix)
        return RunStart(step=_step(session), how=f"restored {prefix}")
    if was_lost:
        raise CheckpointError(
            "the run's state on the ps tasks is lost, and there is no checkpoint, so training would silently begin at"
            " step 0; give a checkpoint_dir, or start all tasks again"
        )
    if set_up.init_op is not None:
        session.run(set_up.init_op, feed_dict=set_up.init_feed_dict)
    if set_up.init_fn is not None:
        set_up.init_fn(session)
    if set_up.init_op is None and set_up.init_fn is None:
        raise OptionError("there is no checkpoint, and the script gives neither init_op nor init_fn")
    return RunStart(step=_step(session), how=INITIALISED)


def _restore(session: tf.Session, saver: tf.train.Saver, prefix: str) -> None:
    """Restores a checkpoint, also one of `ps_trainer local`, which holds the step in place of Adam's powers."""
    checkpoint = reader.Checkpoint(prefix)
    variables = session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    powers = [v for v in variables if _POWER.fullmatch(v.op.name) and v.op.name not in checkpoint]
    others = [v for v in variables if v not in powers]
    try:
        if powers and all(v.op.name in checkpoint for v in others):
            for variable in others:
                variable.load(checkpoint[variable.op.name], session)
            for variable in powers:
                session.run(variable.initializer)
                variable.load(session.run(variable) ** (checkpoint.step + 1), session)
        else:
            saver.restore(session, prefix)
    except (ValueError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        message = str(getattr(error, "message", error)).splitlines()[0]
        raise CheckpointError(
            f"{prefix} does not fit the graph: {message}. Use another checkpoint_dir, or the graph that wrote it"
        ) from error


def make_ready(session: tf.Session, set_up: SetUp) -> None:
    """Runs what every worker runs in a new session, and checks that the model is ready then.

    Raises:
        OptionError: A variable is not initialised.
    """
    _check_ready(session, set_up.ready_for_local_init_op)
    if set_up.local_init_op is not None:
        session.run(set_up.local_init_op, feed_dict=set_up.local_init_feed_dict)
    _check_ready(session, set_up.ready_op)


def newest_checkpoint(directory: str | None) -> str | None:
    """Returns the prefix of the checkpoint in `directory` from which training continues; None if none was ever saved.

    Raises:
        CheckpointError: There are checkpoints, or remains of some, and none can be loaded.
    """
    if directory is None:
        return None
    path = pathlib.Path(directory)
    folder = folder_listing.read_folder(path)
    named = path / folder.state.name if folder.state.newest else None
    # A script's own basename: then the state file tells which checkpoint is the newest, as in TensorFlow.
    if not folder.steps and not folder.orphans and named is not None and str(named.name) in folder.others:
        checkpoint = reader.Checkpoint(named)
        checkpoint.verify(any_name=True)
        return checkpoint.prefix
    writer.repair(path, any_name=True)
    newest = reader.latest(path, any_name=True)
    return newest.prefix if newest is not None else None


def uninitialised_names(session: tf.Session, ready_op: tf.Tensor | None) -> list[str]:
    """Returns the names of the variables that are not initialised."""
    return [name.decode() for name in session.run(ready_op)] if ready_op is not None else []


def _check_ready(session: tf.Session, ready_op: tf.Tensor | None) -> None:
    names = uninitialised_names(session, ready_op)
    if names:
        raise OptionError(
            f"{list_names(names)}: not initialised. The chief's init_op, or the restored checkpoint, sets"
            " variables on the ps tasks only, and only those that the chief's graph has; make others local variables"
        )


def _step(session: tf.Session) -> int:
    step = tf.train.get_global_step(session.graph)
    return int(session.run(step)) if step is not None else 0
