"""`Transform` and `Codec`: the interface of one file per gradient transform, and what they work on.

A worker's gradients come from *sites*: dense ps variables, whose gradient is taken as one flat vector, and
embedding tables, whose gradient is a few rows. `wire.Wire` sends them; on the way they pass through the
transforms in the order in which they were given:

    clip_*  →  error_feedback  →  one of top_k random_k threshold dgc power_sgd  →  one of cast one_bit …
    VALUE      FEEDBACK           SELECT                                            PACK

Each of the four stages may be left out; only VALUE may hold more than one transform. A `Codec` (SELECT or
PACK) is lossy: it encodes on the worker and decodes on the ps, and only what `encode` returns crosses the
wire. State lies in variables on the worker and changes only by ops that every sending step runs.
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
        offset: where it begins in the site's vector, in elements.
        size: its elements.
        start: where it begins in the flattened model variable.
        shape: of the whole model variable.
    """

    offset: int
    size: int
    start: int
    shape: tuple[int, ...]


class Site(NamedTuple):
    """A place where gradients come from: a dense ps variable, or (part of) an embedding table.

    Attributes:
        name: unique; usable in variable names.
        shape: of the gradient; for a table of the whole table on this ps.
        dtype: of the gradient, floating.
        ps: index of the ps task that it lies on.
        is_table: whether the gradient is IndexedSlices of rows.
        segments: the model variables in a dense site's flat vector, in order and without holes.
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


class Outgoing(NamedTuple):
    """The gradient of one site: a tensor of its shape, or IndexedSlices of a table's rows."""

    site: Site
    value: tf.Tensor | tf.IndexedSlices


class Stage(enum.IntEnum):
    """Where a transform may stand: stages only go up along the list of transforms."""

    VALUE = 0
    FEEDBACK = 1
    SELECT = 2
    PACK = 3


class Encoded(NamedTuple):
    """What a codec makes of one site's values.

    Attributes:
        values: vector of the floating values that the next codec may encode, or packed bytes.
        side: vectors that go over the wire as they are (indices, scales).
        decode: gives the site's values back from (values, side); builds its ops in the device scope that it
            is called in, and uses no tensor but its arguments: what else it used would cross the wire too.
    """

    values: tf.Tensor
    side: tuple[tf.Tensor, ...]
    decode: Callable[[tf.Tensor, Sequence[tf.Tensor]], tf.Tensor]


class Transform(abc.ABC):
    """A gradient transform; a subclass gives equation, source, bytes, state and bias in its docstring.

    Args:
        options: an instance of the class's `Options`; None for a class without any.

    Attributes:
        name: the registered name.
        stage: where it may stand.
        acts_on_rows: whether it encodes the values of a table's rows too; otherwise they pass unchanged.
        Options: its options' dataclass, or None.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    acts_on_rows: ClassVar[bool] = False
    Options: ClassVar[type | None] = None

    def __init__(self, options: Any = None):
        self.options = options

    @property
    def is_lossy(self) -> bool:
        """Whether the ps gets something else than the values that came in."""
        return self.stage in (Stage.SELECT, Stage.PACK)

    @property
    def is_packing(self) -> bool:
        """Whether it turns values into another type, so that nothing can come after it."""
        return self.stage == Stage.PACK

    @property
    def has_momentum(self) -> bool:
        """Whether it keeps a momentum of its own, which a momentum on the ps would double."""
        return False

    def check(self, before: Sequence[Transform]) -> None:  # noqa: B027 - most go with everything
        """Raises OptionError where it does not go with the transforms `before` it; stages are checked already."""

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        """Changes values on the worker, before any encoding.

        Args:
            values: of every site that this worker sends; of tables the rows' values, each row once.
            num_workers: workers of the cluster.

        Returns:
            As many values, of the same shapes.
        """
        return values


class Codec(Transform):
    """A lossy transform: encodes one site's values on the worker, decodes them on the ps."""

    @abc.abstractmethod
    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        """Encodes values.

        Args:
            values: vector, floating; of static size unless rows of a table or a dynamic selection.
            scope: what it may know and keep.
        """


class Scope(NamedTuple):
    """What a codec sees of the site whose values it encodes.

    Attributes:
        site: the site.
        segments: where the model variables lie in the values; empty when the values are not the site's own
            vector any more (selected ones), or rows.
        state: variables and random seeds of this codec at this site.
    """

    site: Site
    segments: tuple[Segment, ...]
    state: SiteState

    def split(self, values: tf.Tensor) -> list[tf.Tensor]:
        """`values` cut into the model variables' parts; one part where that is not known."""
        if len(self.segments) < 2:
            return [values]
        return tf.split(values, [segment.size for segment in self.segments])


def static_size(values: tf.Tensor) -> int | None:
    """The number of elements of a vector, where the graph tells."""
    return values.shape.num_elements()


def encode_all(codecs: Sequence[Codec], values: tf.Tensor, scope: Scope) -> Encoded:
    """Encodes by one codec after the other; `scope` is that of the values that the first one gets."""
    layers: list[tuple[int, Callable[..., tf.Tensor]]] = []
    side: list[tf.Tensor] = []
    for codec in codecs:
        encoded = codec.encode(values, scope._replace(state=scope.state.of(codec.name)))
        values = encoded.values
        side += encoded.side
        layers.append((len(encoded.side), encoded.decode))
        scope = scope._replace(segments=())

    def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
        end = len(side)
        for num_side, decode_one in reversed(layers):
            values = decode_one(values, side[end - num_side : end])
            end -= num_side
        return values

    return Encoded(values, tuple(side), decode)
