"""`Wire`: sends a worker's gradients through the transforms to the ps tasks.

Ops on the worker compute the message of each site: one uint8 vector, or one tensor if a single one is enough. Ops on
the site's ps task decode it. So only the messages are on the edges from worker to ps, and `payload_bytes` is their
size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.gradients import message as message_lib
from ps_trainer.gradients.base import (
    Codec,
    Encoded,
    Feedback,
    Scope,
    Segment,
    Site,
    SiteGradient,
    Transform,
    encode_all,
)
from ps_trainer.gradients.error_feedback import ErrorFeedback
from ps_trainer.gradients.state import SiteState, TransformState


class Wire:
    """Sends one worker's gradients to the ps tasks.

    Args:
        transforms: Transforms in order, which `transform_list.check` has checked.
        num_workers: Number of workers of the cluster.
        worker_index: Index of this worker.
        worker_device: Device of this worker, "/job:worker/task:0".
        ps_device: Maps the index of a ps task to its device.
        seed: Seed of the run.

    Attributes:
        payload_bytes: Size of the messages of one `send` in bytes. It is an int64 scalar on the worker if the size
            differs from step to step, and 0 before `send`.
    """

    def __init__(
        self,
        transforms: Sequence[Transform],
        *,
        num_workers: int,
        worker_index: int,
        worker_device: str,
        ps_device: Callable[[int], str],
        seed: int,
    ):
        self._transforms = tuple(transforms)
        self._codecs, self._row_codecs = _codecs(transforms)
        self._num_workers = num_workers
        self._worker_device = worker_device
        self._ps_device = ps_device
        self._state = TransformState(seed, worker_index)
        self.payload_bytes: int | tf.Tensor = 0

    @property
    def has_transforms(self) -> bool:
        """Whether `send` changes or encodes gradients."""
        return bool(self._transforms)

    @property
    def state(self) -> list[tf.Variable]:
        """The transforms' variables on this worker, which `send` creates and checkpoints save."""
        return list(self._state.variables)

    @property
    def targets(self) -> list[tf.Operation]:
        """Ops that update the state; every sending step runs all of them."""
        return list(self._state.updates)

    def send(self, site_gradients: Sequence[SiteGradient]) -> list[SiteGradient]:
        """Builds the gradients as the ps tasks receive them, on the ps tasks; call it once per graph.

        Without transforms the function returns the gradients unchanged, and they travel to the ops that use them.
        """
        if self._transforms:
            site_gradients = [self._send(item) for item in self._reduce(site_gradients)]
        else:
            for item in site_gradients:
                self._count(*(tensor for tensor in _tensors(item.value) if not self._is_there(item.site, tensor)))
        return list(site_gradients)

    def reduce(self, site_gradients: Sequence[SiteGradient]) -> list[SiteGradient]:
        """Builds the gradients after `clip_*`, on the worker, for rules that apply them there and send none.

        Raises:
            OptionError: The run has lossy transforms, which are useless if no gradient is sent.
        """
        lossy = [transform.name for transform in self._transforms if transform.is_lossy]
        if lossy:
            raise OptionError(
                f"--gradient_transform {lossy[0]}: this update rule applies gradients on the worker and sends none,"
                " so there is nothing to compress; leave it out, or choose a rule that sends gradients"
            )
        return self._reduce(site_gradients) if self._transforms else list(site_gradients)

    def _reduce(self, site_gradients: Sequence[SiteGradient]) -> list[SiteGradient]:
        """Sums repeated rows, then applies the transforms that change values."""
        with tf.device(self._worker_device):
            site_gradients = [item._replace(value=_rows_once(item.value)) for item in site_gradients]
            values = [_values(item.value) for item in site_gradients]
            for transform in self._transforms:
                values = transform.reduce(values, self._num_workers)
            return [_replace_values(item, value) for item, value in zip(site_gradients, values, strict=True)]

    def _send(self, item: SiteGradient) -> SiteGradient:
        if item.site.is_table:
            return item._replace(value=self._send_rows(item.site, item.value))
        if not self._codecs:
            self._count(item.value)
            return item
        # A message waits for the updates of its own site only, not for the encoding of others.
        num_before = len(self._state.updates)
        with tf.device(self._worker_device):
            encoded = self._encode(item.site, self._codecs, tf.reshape(item.value, [-1]), item.site.segments)
            message, unpack = message_lib.pack([encoded.values, *encoded.side])
            message = self._send_after_note(message, num_before)
            self._count(message)
        with tf.device(self._ps_device(item.site.ps)):
            values, *side = unpack(message)
            return item._replace(value=tf.reshape(encoded.decode(values, side), item.site.shape))

    def _send_rows(self, site: Site, rows: tf.IndexedSlices) -> tf.IndexedSlices:
        """Sends rows and their indices in one message; indices are int32 if the table is small enough."""
        index_dtype = tf.int32 if site.shape[0] <= tf.int32.max else tf.int64
        num_before = len(self._state.updates)
        with tf.device(self._worker_device):
            encoded = self._encode(site, self._row_codecs, tf.reshape(rows.values, [-1]), ())
            message, unpack = message_lib.pack([tf.cast(rows.indices, index_dtype), encoded.values, *encoded.side])
            message = self._send_after_note(message, num_before)
            self._count(message)
        with tf.device(self._ps_device(site.ps)):
            indices, values, *side = unpack(message)
            values = tf.reshape(encoded.decode(values, side), [-1, *site.shape[1:]])
            # The shape is a constant of the ps, so an op that reads it there needs no message from the worker.
            return tf.IndexedSlices(values, tf.cast(indices, rows.indices.dtype), tf.constant(site.shape, tf.int64))

    def _send_after_note(self, message: tf.Tensor, num_before: int) -> tf.Tensor:
        """Returns the message, which is sent after the state of its site has been updated.

        So a step that fails may lose its push, but never sends again what has already arrived.
        """
        with tf.control_dependencies(self._state.updates[num_before:]):
            return tf.identity(message)

    def _encode(self, site: Site, codecs: Sequence[Codec], values: tf.Tensor, segments: tuple[Segment, ...]) -> Encoded:
        return encode_all(codecs, values, Scope(site, segments, SiteState(self._state, site.name)))

    def _is_there(self, site: Site, tensor: tf.Tensor) -> bool:
        """Returns whether a tensor is on the ps task, although the worker computes gradients on another device."""
        there = tf.DeviceSpec.from_string(self._ps_device(site.ps))
        own = tf.DeviceSpec.from_string(self._worker_device)
        return there != own and tf.DeviceSpec.from_string(tensor.device) == there

    def _count(self, *messages: tf.Tensor) -> None:
        with tf.device(self._worker_device):
            for message in messages:
                self.payload_bytes += message_lib.num_bytes(message)


def _codecs(transforms: Sequence[Transform]) -> tuple[list[Codec], list[Codec]]:
    """Returns the codecs of a dense gradient, and those of rows; error feedback and all codecs after it form one."""
    codecs = [transform for transform in transforms if isinstance(transform, Codec)]
    feedback = [transform for transform in transforms if isinstance(transform, ErrorFeedback)]
    of_rows = [codec for codec in codecs if codec.acts_on_rows]
    if not feedback:
        return codecs, of_rows
    # Rows have no residual, so only codecs that need none encode them.
    return [feedback[0].around(codecs)], [codec for codec in of_rows if codec.feedback is not Feedback.NEEDED]


def _rows_once(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
    """Sums rows that occur several times, because transforms act on the whole gradient of a row."""
    if not isinstance(value, tf.IndexedSlices):
        return value
    indices, position = tf.unique(value.indices)
    values = tf.math.unsorted_segment_sum(value.values, position, tf.size(indices))
    return tf.IndexedSlices(values, indices, value.dense_shape)


def _values(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _replace_values(item: SiteGradient, values: tf.Tensor) -> SiteGradient:
    if not isinstance(item.value, tf.IndexedSlices):
        return item._replace(value=values)
    return item._replace(value=tf.IndexedSlices(values, item.value.indices, item.value.dense_shape))


def _tensors(value: tf.Tensor | tf.IndexedSlices) -> list[tf.Tensor]:
    return [value.values, value.indices] if isinstance(value, tf.IndexedSlices) else [value]
