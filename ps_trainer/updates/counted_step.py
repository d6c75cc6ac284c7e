"""Builds the phase of rules whose every step is counted on each ps task.

`build_counted_step` makes a step's update, its count and the read for the next step one exclusive section.
`build_counted_phase` assembles the phase from the counts of all ps tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Snapshot
from ps_trainer.updates.base import Phase, RuleContext
from ps_trainer.updates.exclusive import exclusive


class PsStepOps(NamedTuple):
    """A step on one ps task.

    Attributes:
        count: Clock of the ps after the step, and the gradient's staleness there (below 0 if it was dropped). Int64 [2]
            on the ps; its op comes after the apply.
        pulled: Snapshot that was read there for the next step, in the section in which the update was made. None if the
            rule has no such section.
    """

    count: tf.Tensor
    pulled: Snapshot | None = None


def build_counted_step(
    store: ParameterStore,
    context: RuleContext,
    ps: int,
    part: Sequence[Gradient],
    apply: Callable[..., tf.Tensor],
    *arguments: tf.Tensor,
) -> PsStepOps:
    """Builds update, count and the read for the next step on ps task `ps`, in its one exclusive section.

    So the clock and the dense parameters that are read belong together, and the staleness of those is exact. The rows
    of tables are read when the batch asks for them, and may contain updates that count as staleness. The same holds for
    the parameters of a worker's first step, which are read when it joins.

    Args:
        store: The created store.
        context: The run.
        ps: Index of the ps task.
        part: Gradients that arrive there.
        apply: Builds `PsStepOps.count` on the ps from the clock that the worker read, the gradients' values and
            `arguments`.
        *arguments: Other tensors that come from another task.
    """
    pulled = None

    def body(*on_ps: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
        nonlocal pulled
        count = apply(*on_ps)
        with tf.control_dependencies([count]):  # the next step reads the parameters with this step's update
            # Casts to the types of the wire come outside (`combine_snapshots`), so that the section stays short.
            pulled = store.read_on(ps)
        # The section ends after these reads; otherwise another update could fall between the clock and the parameters.
        with tf.control_dependencies([*pulled.clocks, *(value for _, value in pulled.values)]):
            return tf.identity(count)

    values = [gradient.value for gradient in part]
    count = exclusive(store, ps, body, store.clock_reads[ps], *values, *arguments, after=context.push.ops_to_await(ps))
    return PsStepOps(count, pulled)


def build_counted_phase(store: ParameterStore, steps: Sequence[PsStepOps], targets: Sequence[tf.Operation]) -> Phase:
    """Builds the phase of a step that ends on each ps task when its count is known.

    One message comes back from each ps task.

    Args:
        store: The created store.
        steps: The step on each ps task.
        targets: Ops that the phase runs as well.
    """
    counts, staleness = [step.count for step in steps], []
    with tf.device(store.ps_device(0)):
        pushed = counts[0][0]
    for ps, count in enumerate(counts[1:], 1):
        with tf.device(store.ps_device(ps)):
            # The slice is on the ps task, because only ps 0 has to send its clock as well.
            staleness.append(count[1:])
    with tf.device(store.worker_device):
        return Phase.of_progress(
            [counts[0], *staleness],
            targets=targets,
            applied=[count.op for count in counts],
            pushed=pushed,
            pulled=[step.pulled for step in steps if step.pulled is not None] or None,
        )
