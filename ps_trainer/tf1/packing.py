"""`packed`: the variables of a script's model in a few flat variables, so that a step sends few messages.

    with train.packed():
        logits = network(images)

Every trainable variable that the body makes becomes a view of a flat variable, one for each ps task. A step then pulls
one tensor of each ps task and pushes one gradient, in place of one for each variable. Optimizers that treat every
element alike, as all of TensorFlow's do, compute the same numbers.

The body gets `PackedVariable`s, which can be read. Any other use, such as an assignment, needs the variable itself and
raises an error that says so. Checkpoints keep the names and shapes of the model's variables, with their slots.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec

from ps_trainer.errors import OptionError
from ps_trainer.store.extents import Extent, VariableSpec, cut
from ps_trainer.tf1 import tasks
from ps_trainer.tf1.placement import device_scope

_GATHERS = ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd")


class PackedVariable:
    """A variable of a model that lies in a flat variable on the ps tasks. Its value can be used like a tensor.

    Args:
        spec: Name, shape and type.
        value: Tensor with the value that the worker has pulled.
    """

    def __init__(self, spec: VariableSpec, value: tf.Tensor):
        self._spec = spec
        self._value = value

    @property
    def name(self) -> str:
        """Name of the variable, with ":0"."""
        return f"{self._spec.name}:0"

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the variable."""
        return tf.TensorShape(self._spec.shape)

    @property
    def dtype(self) -> tf.DType:
        """Type of the variable."""
        return tf.as_dtype(self._spec.dtype)

    def get_shape(self) -> tf.TensorShape:
        """Returns the shape of the variable."""
        return self.shape

    def value(self) -> tf.Tensor:
        """Returns the value, as the worker has pulled it in this step."""
        return self._value

    def read_value(self) -> tf.Tensor:
        """Returns the value, as the worker has pulled it in this step."""
        return self._value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in dir(tf.Variable):
            _refuse(self._spec.name, f"something asks for its {name}")
        return getattr(self._value, name)


def _operator(name: str) -> Callable[..., tf.Tensor]:
    return lambda self, *others: getattr(self.value(), name)(*others)


for _name in tf.Tensor.OVERLOADABLE_OPERATORS:
    setattr(PackedVariable, _name, _operator(_name))


def _convert(variable: PackedVariable, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> tf.Tensor:
    del dtype, name, as_ref
    return variable.value()


tf.register_tensor_conversion_function(PackedVariable, _convert)


class _Flat(NamedTuple):
    """A flat variable on a ps task.

    Attributes:
        variable: The variable, of one dimension.
        extents: Ranges of the model's variables that lie in it.
    """

    variable: tf.Variable
    extents: list[Extent]


class Layout:
    """The packed variables of one graph.

    Attributes:
        pulled_at: Value of global_step when the worker pulled; None if the graph had no global_step then.
        staleness: Staleness of each gradient that this worker has sent, for `MonitoredTrainingSession` in asynchronous
            training: the number of updates between its pull and its own update.
    """

    def __init__(self) -> None:
        self.specs: list[VariableSpec] = []
        self._initial: dict[str, Any] = {}
        self._stubs: dict[str, tf.Tensor] = {}
        self._flats: list[_Flat] = []
        self.pulled_at: tf.Tensor | None = None
        self.staleness: list[int] = []

    def create(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Creates one variable of the body, in place of TensorFlow's own creator."""
        collections = kwargs.get("collections") or [tf.GraphKeys.GLOBAL_VARIABLES]
        if kwargs.get("trainable") is False or tf.GraphKeys.LOCAL_VARIABLES in collections:
            return next_creator(**kwargs)
        with tf.name_scope(kwargs.get("name") or "Variable") as scope:
            name = scope.rstrip("/")
            with device_scope(tasks.own_task().cluster.device), tf.name_scope(None):
                given = kwargs.get("initial_value")
                value = tf.convert_to_tensor(given() if callable(given) else given, kwargs.get("dtype"))
        if not value.shape.is_fully_defined():
            _refuse(name, f"its shape {value.shape} is not fully known")
        if not value.dtype.is_floating:
            return next_creator(**kwargs)
        spec = VariableSpec(
            name, tuple(value.shape.as_list()), np.dtype(value.dtype.as_numpy_dtype), trainable=True, is_table=False
        )
        with device_scope(tasks.own_task().cluster.device):
            # The flat variables are made when all variables are known; then `lay_out` replaces the zeros.
            stub = tf.identity(tf.zeros(spec.shape, value.dtype), name=f"{name}/pulled")
        self.specs.append(spec)
        self._initial[name], self._stubs[name] = value, stub
        return PackedVariable(spec, stub)

    def lay_out(self) -> None:
        """Makes the flat variables, and lets the body's ops read them.

        Raises:
            OptionError: A variable is read by rows.
        """
        for name, stub in self._stubs.items():
            if any(consumer.type in _GATHERS for consumer in stub.consumers()):
                _refuse(name, "it is read by rows, as in an embedding lookup, and packed reads it whole")
        task = tasks.own_task()
        lines = defaultdict(list)
        for spec in self.specs:
            lines[spec.dtype.name].append(spec)
        for dtype, specs in lines.items():
            self._lay_out_line(dtype, specs, task.cluster.num_ps)
        views = self._views(task.cluster.device)
        for name, stub in self._stubs.items():
            stub.op._update_input(0, views[name])  # TensorFlow has no public function for this

    def _lay_out_line(self, dtype: str, specs: Sequence[VariableSpec], num_ps: int) -> None:
        total = sum(spec.size for spec in specs)
        sizes = [total * (ps + 1) // num_ps - total * ps // num_ps for ps in range(num_ps)]
        with device_scope(tasks.own_task().cluster.device):
            values = {spec.name: tf.reshape(self._initial[spec.name], [-1]) for spec in specs}
        for ps, extents in enumerate(cut(specs, sizes)):
            if not extents:
                continue
            with device_scope(tasks.own_task().cluster.device):
                initial = tf.concat([values[e.name][e.start : e.stop] for e in extents], 0)
            with device_scope(f"/job:ps/task:{ps}"):
                flat = tf.Variable(initial, name=f"packed/{dtype}/ps_{ps}", use_resource=True)
            self._flats.append(_Flat(flat, extents))

    def _views(self, device: str) -> dict[str, tf.Tensor]:
        step = tf.train.get_global_step()
        if step is not None:
            with device_scope(step.device):
                self.pulled_at = tf.cast(step.read_value(), tf.int64)
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for flat in self._flats:
            # The step is read first, so that an update in between counts as one that the worker has not seen.
            before = [self.pulled_at] if self.pulled_at is not None else []
            with device_scope(flat.variable.device), tf.control_dependencies(before):
                value = flat.variable.read_value()
            with device_scope(device):
                for extent, part in zip(flat.extents, tf.split(value, [e.size for e in flat.extents]), strict=True):
                    parts[extent.name].append(part)
        with device_scope(device):
            return {spec.name: tf.reshape(tf.concat(parts[spec.name], 0), spec.shape) for spec in self.specs}

    def saveables(self) -> list[Any]:
        """Returns the values in a save of the whole graph: model variables and slots by name, and all others."""
        flats = {flat.variable.op.name: flat for flat in self._flats}
        others, groups = [], defaultdict(list)
        for variable in tf.global_variables():
            primary = next((n for n in flats if variable.op.name == n or variable.op.name.startswith(f"{n}/")), None)
            if primary is None or variable.shape != flats[primary].variable.shape:
                others.append(variable)
            else:
                slot = variable.op.name[len(primary) :]
                groups[slot, variable.dtype.base_dtype.name].append(_Flat(variable, flats[primary].extents))
        specs = {spec.name: spec for spec in self.specs}
        return [*others, *(_Saveable(slot, specs, group) for (slot, _), group in groups.items())]


class _Saveable(SaveableObject):
    """Flat variables, or one slot of each, saved as the model's variables that lie in them.

    Args:
        slot: Suffix of the names: "" for the variables, "/Adam" for a slot.
        specs: The model's variables, by name.
        flats: The flat variables, or their slots, of one type.
    """

    def __init__(self, slot: str, specs: Mapping[str, VariableSpec], flats: Sequence[_Flat]):
        self._flats = flats
        ranges = defaultdict(list)
        for flat in flats:
            value = flat.variable.read_value()
            for extent in flat.extents:
                ranges[extent.name].append(value[extent.offset : extent.offset + extent.size])
        self._names = list(ranges)
        values = {name: tf.reshape(tf.concat(parts, 0), specs[name].shape) for name, parts in ranges.items()}
        saved = [SaveSpec(value, "", f"{name}{slot}", dtype=value.dtype) for name, value in values.items()]
        super().__init__(values[self._names[0]], saved, f"packed{slot}")

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        """Assigns the model's variables to the flat ones; whole, because those may not be initialised yet."""
        del restored_shapes
        values = {name: tf.reshape(tensor, [-1]) for name, tensor in zip(self._names, restored_tensors, strict=True)}
        return tf.group(
            *(
                flat.variable.assign(
                    tf.ensure_shape(
                        tf.concat([values[e.name][e.start : e.stop] for e in flat.extents], 0), flat.variable.shape
                    ),
                    read_value=False,
                )
                for flat in self._flats
            )
        )


_of_graph: weakref.WeakKeyDictionary[tf.Graph, Layout] = weakref.WeakKeyDictionary()


def of_graph(graph: tf.Graph) -> Layout | None:
    """Returns the layout of the packed variables in `graph`; None if there are none."""
    return _of_graph.get(graph)


@contextlib.contextmanager
def packed() -> Iterator[Layout]:
    """Packs the trainable variables that the body makes; a decorator of the function that builds the model, too.

    The task's `Server` must exist. Each graph may have one such block, and gradients are taken after it.

    Raises:
        OptionError: There is no `Server`, the graph has a packed block already, or something needs a variable itself.
    """
    graph = tf.get_default_graph()
    if of_graph(graph) is not None:
        raise OptionError("the graph has packed variables already; put the whole model into one train.packed() block")
    tasks.own_task()
    layout = Layout()
    with tf.variable_creator_scope(layout.create):
        yield layout
    if not layout.specs:
        raise OptionError("train.packed(): its body makes no trainable variable; put the model's code into the block")
    layout.lay_out()
    _of_graph[graph] = layout


def _refuse(name: str, reason: str) -> NoReturn:
    raise OptionError(f"{name} cannot be packed: {reason}. Make it outside of the train.packed() block")
