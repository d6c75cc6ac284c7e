"""`counted_phase`: a phase out of what each ps task counted, for rules whose every step is counted there.

`counted_exclusively`: that count, where a step's update, its count and the read for the next step are one section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Snapshot
from ps_trainer.updates.base import Phase, RuleContext
from ps_trainer.updates.exclusive import exclusive


class Counted(NamedTuple):
    """A step on one ps task.

    Attributes:
        count: int64 [2] on the ps: its clock after the step, and the gradient's staleness there (below 0 for one that
            was dropped); its op comes after the apply.
        pulled: what was read there for the next step, in the section in which the update was made; None elsewhere.
    """

    count: tf.Tensor
    pulled: Snapshot | None = None


def counted_exclusively(
    store: ParameterStore,
    context: RuleContext,
    ps: int,
    part: Sequence[Gradient],
    apply: Callable[..., tf.Tensor],
    *arguments: tf.Tensor,
) -> Counted:
    """Updates, counts and reads for the next step on ps task `ps`, in its one exclusive section.

    So the clock that is read belongs to the dense parameters that are read, and staleness is exact for those. The rows
    of tables are read when the batch asks for them, and may hold updates that count as staleness; likewise what a
    worker's first step computes with, which is read when it joins.

    Args:
        store: the created store.
        context: the run.
        ps: the ps task.
        part: the gradients that arrive there.
        apply: given the clock that the worker read, the gradients' values and `arguments`, on the ps; gives
            `Counted.count`.
        *arguments: what else comes from another task.
    """
    pulled = None

    def body(*on_ps: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
        nonlocal pulled
        count = apply(*on_ps)
        with tf.control_dependencies([count]):
            pulled = store.read_on(ps)
        with tf.control_dependencies([*pulled.clocks, *(value for _, value in pulled.values)]):
            return tf.identity(count)

    values = [gradient.value for gradient in part]
    count = exclusive(store, ps, body, store.clock_reads[ps], *values, *arguments, after=context.push.awaited(ps))
    return Counted(count, pulled)


def counted_phase(store: ParameterStore, steps: Sequence[Counted], targets: Sequence[tf.Operation]) -> Phase:
    """The phase of a step that is over on each ps task when its count is there.

    One message comes back from each ps task.

    Args:
        store: the created store.
        steps: the step on each ps task.
        targets: ops to run beside.
    """
    counts, staleness = [step.count for step in steps], []
    with tf.device(store.ps_device(0)):
        pushed = counts[0][0]
    for ps, count in enumerate(counts[1:], 1):
        with tf.device(store.ps_device(ps)):
            staleness.append(count[1:])
    with tf.device(store.worker_device):
        return Phase(
            global_step=counts[0][0],
            staleness=tf.concat([counts[0][1:], *staleness], axis=0),
            targets=targets,
            applied=[count.op for count in counts],
            pushed=pushed,
            pulled=[step.pulled for step in steps if step.pulled is not None] or None,
        )
