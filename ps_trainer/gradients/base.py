"""`Transform` and `Codec`: the interfaces of the gradient transforms, and the gradients that they work on.

A worker's gradients come from *sites*. A site is a dense ps variable, whose gradient is one flat vector, or an
embedding table, whose gradient is a few rows. `wire.Wire` sends the gradients through the transforms in the given
order:

    clip_*  →  error_feedback  →  one of top_k random_k threshold dgc power_sgd  →  one of cast one_bit …
    VALUE      FEEDBACK           SELECT                                            PACK

Each of the four stages may be empty; only VALUE may have more than one transform. A `Codec` (SELECT or PACK) is lossy:
it encodes on the worker and decodes on the ps, and only the result of `encode` travels. The state lies in variables on
the worker. Only ops that every sending step runs change it.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.state import SiteState


class Segment(NamedTuple):
    """A range of one model variable inside a site's flat vector.

    Attributes:
        offset: First element of the range in the site's vector.
        size: Number of elements.
        start: First element of the range in the flattened model variable.
        shape: Shape of the whole model variable.
    """

    offset: int
    size: int
    start: int
    shape: tuple[int, ...]


class Site(NamedTuple):
    """The origin of a gradient: a dense ps variable, or an embedding table or a partition of one.

    Attributes:
        name: Unique name, which is usable in variable names.
        shape: Shape of the gradient; for a table the shape of its part on this ps.
        dtype: Floating-point dtype of the gradient.
        ps: Index of the ps task of the variable.
        is_table: Whether the gradient is IndexedSlices of rows.
        segments: Ranges of model variables in a dense site's flat vector, in order and without gaps.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType
    ps: int
    is_table: bool
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Number of elements of the gradient's shape."""
        return tf.TensorShape(self.shape).num_elements()


class SiteGradient(NamedTuple):
    """The gradient of one site: a tensor of its shape, or IndexedSlices of a table's rows."""

    site: Site
    value: tf.Tensor | tf.IndexedSlices


class Stage(enum.IntEnum):
    """Place of a transform in the order; along the list of transforms the stage never decreases."""

    VALUE = 0
    FEEDBACK = 1
    SELECT = 2
    PACK = 3


class Feedback(enum.Enum):
    """The effect of error feedback around a lossy transform on training."""

    NEEDED = enum.auto()  # training suffers without it, so a run adds it
    POSSIBLE = enum.auto()
    HARMFUL = enum.auto()  # the residual can grow, or the transform has one of its own


class Encoded(NamedTuple):
    """A codec's encoding of one site's values.

    Attributes:
        values: Vector of floating-point values, which the next codec may encode, or of packed bytes.
        side: Vectors that travel unchanged, such as indices and scales.
        decode: Builds the site's values from (values, side), in the device scope of the call. It must use no other
            tensor, because any other tensor of the worker would travel as well.
    """

    values: tf.Tensor
    side: tuple[tf.Tensor, ...]
    decode: Callable[[tf.Tensor, Sequence[tf.Tensor]], tf.Tensor]


class Transform(abc.ABC):
    """A gradient transform; the docstring of a subclass has its equation, source, bytes, state and bias.

    Args:
        options: Instance of the class's `Options`; None for a class without options.

    Attributes:
        name: Registered name.
        stage: Place in the order of transforms.
        acts_on_rows: Whether it also encodes the rows of a table; otherwise the rows pass unchanged.
        Options: Dataclass of its options, or None.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    acts_on_rows: ClassVar[bool] = False
    Options: ClassVar[type | None] = None

    def __init__(self, options: Any = None):
        self.options = options

    @property
    def is_lossy(self) -> bool:
        """Whether the ps receives other values than the transform has received."""
        return self.stage in (Stage.SELECT, Stage.PACK)

    @property
    def is_packing(self) -> bool:
        """Whether it turns values into another type, so that no transform can follow."""
        return self.stage == Stage.PACK

    @property
    def feedback(self) -> Feedback:
        """The effect of `error_feedback` before it on training."""
        return Feedback.POSSIBLE

    @property
    def has_momentum(self) -> bool:
        """Whether it applies momentum itself; momentum on the ps would then apply it twice."""
        return False

    def check(self, before: Sequence[Transform]) -> None:  # noqa: B027 - most go with everything
        """Checks the transform against the transforms `before` it; the caller has checked the stages.

        Raises:
            OptionError: The transforms cannot be combined.
        """

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        """Changes values on the worker, before any encoding.

        Args:
            values: Values of every site that this worker sends; for a table the values of its rows, each row once.
            num_workers: Number of workers of the cluster.

        Returns:
            The changed values, of the same number and shapes.
        """
        return values


class Codec(Transform):
    """A lossy transform: encodes one site's values on the worker, decodes them on the ps."""

    @abc.abstractmethod
    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        """Encodes values.

        Args:
            values: Vector of floating-point values. Its size is static unless it holds rows of a table, or a selection
                of variable size.
            scope: The site, its segments and its state.
        """


class Scope(NamedTuple):
    """The site whose values a codec encodes, with the codec's state there.

    Attributes:
        site: The site.
        segments: Ranges of the model variables in the values. Empty if the values are rows, or a selection from the
            site's vector.
        state: Variables and random seeds of this codec at this site.
    """

    site: Site
    segments: tuple[Segment, ...]
    state: SiteState

    def split(self, values: tf.Tensor) -> list[tf.Tensor]:
        """Splits `values` into the parts of the model variables; returns one part if the segments are unknown."""
        if len(self.segments) < 2:
            return [values]
        return tf.split(values, [segment.size for segment in self.segments])


def static_size(values: tf.Tensor) -> int | None:
    """Returns the number of elements of a vector, or None if the graph does not determine it."""
    return values.shape.num_elements()


def encode_all(codecs: Sequence[Codec], values: tf.Tensor, scope: Scope) -> Encoded:
    """Encodes by one codec after the other; `scope` describes the values that the first codec receives."""
    layers: list[tuple[int, Callable[..., tf.Tensor]]] = []
    side: list[tf.Tensor] = []
    for codec in codecs:
        encoded = codec.encode(values, scope._replace(state=scope.state.of(codec.name)))
        values = encoded.values
        side += encoded.side
        layers.append((len(encoded.side), encoded.decode))
        scope = scope._replace(segments=())  # the next codec receives other values than the site's own vector

    def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
        end = len(side)
        # The last codec decodes first, and its side vectors are the last ones.
        for num_side, decode_one in reversed(layers):
            values = decode_one(values, side[end - num_side : end])
            end -= num_side
        return values

    return Encoded(values, tuple(side), decode)
