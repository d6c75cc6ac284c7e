"""`counted_phase`: a phase out of what each ps task counted, for rules whose every step is counted there."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.base import Phase


def counted_phase(store: ParameterStore, counts: Sequence[tf.Tensor], targets: Sequence[tf.Operation]) -> Phase:
    """The phase of a step that is over on each ps task when its count is there.

    One message comes back from each ps task.

    Args:
        store: the created store.
        counts: for each ps task int64 [2] on that ps: its clock after the step, and the gradient's staleness there
            (below 0 for one that was dropped); its op comes after the apply.
        targets: ops to run beside.
    """
    staleness = []
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
        )
