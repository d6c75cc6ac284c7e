"""Builds a model once in a scratch graph, which shows its variables, and computes their initial values.

An initialiser without a seed gets one that is derived from the run's seed and the variable's name. So a variable's
initial value depends only on these two. Layout, number of tasks and position in the graph do not matter.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.extents import VariableSpec

# Collection in which `models.layers.embedding` puts a table. Models write the text, so as not to import ps_trainer.
EMBEDDING_TABLES = "embedding_tables"
# Parts of the path of a file that creates variables without `tf.get_variable`, with what it is and what to do instead.
_MAKERS = {
    "keras/src/optimizers/": (
        "a Keras optimizer",
        "leave the optimizer out of build, return the loss, and choose the optimizer by --optimizer",
    ),
    "keras/src/": (
        "a Keras layer",
        "use the layers of ps_trainer.models.layers, or tf.get_variable and tf.nn",
    ),
    "/training/moving_averages.py": (
        "tf.train.ExponentialMovingAverage",
        "leave it out; layers.moving_average_update keeps an average that all workers share",
    ),
}
_BY_VARIABLE = ("tf.Variable", "create them by tf.get_variable, so that the parameter store can place them")
_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# Collections that `models.layers.stages` fills or reads.
_STAGES = "model_stages"
_CURRENT_STAGE = "current_model_stage"
STAGE_DEVICES = "model_stage_devices"


class ModelTrace:
    """The variables of a model.

    Attributes:
        specs: The global variables, in creation order.
        has_tables: Whether one of them is an embedding table.
        stages: Indices of the stages that the model names, and stage 0.
        is_repeatable: Whether the seed gives the initial values again: no Python function is in the graph, which could
            give others.
        graph: The scratch graph, without devices.
    """

    def __init__(self, graph: tf.Graph, variables: dict[str, tf.Variable], specs: Sequence[VariableSpec]):
        self.specs = tuple(specs)
        self.has_tables = any(spec.is_table for spec in specs)
        self.stages = frozenset({0, *graph.get_collection(_STAGES)})
        self.is_repeatable = not any(op.type in _PYTHON_OPS for op in graph.get_operations())
        self.graph = graph
        self._variables = variables

    def handles(self) -> list[tuple[VariableSpec, tf.Tensor]]:
        """Returns the handle of each variable in the scratch graph; its consumers show how the model uses it."""
        return [(spec, self._variables[spec.name].handle) for spec in self.specs]

    def initial_tensors(self) -> dict[str, tf.Tensor]:
        """Returns the initial value of each variable as a tensor in the scratch graph, by name."""
        return {name: variable.initializer.inputs[1] for name, variable in self._variables.items()}

    def initial_values(self, without: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Runs the model's own initialisers in this process, on the CPU; returns the values by name.

        Args:
            without: Names of variables whose values are not needed.
        """
        variables = {name: variable for name, variable in self._variables.items() if name not in without}
        if not variables:
            return {}
        # Without the GPU: TensorFlow would reserve its memory for these few ops.
        with tf.Session(graph=self.graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
            session.run([variable.initializer for variable in variables.values()])
            # Fetches each variable's own read op: `read_value` would add ops, and workers compare a hash of the graph.
            return session.run(variables)


def trace(build: Callable[[], Any], seed: int) -> ModelTrace:
    """Builds a model in a scratch graph and returns its variables.

    Args:
        build: Builds the model and its inputs in the default graph.
        seed: Seed of the run.

    Raises:
        OptionError: A global variable was not created by `tf.get_variable`, or has no static shape.
    """
    graph = tf.Graph()
    variables: dict[str, tf.Variable] = {}
    specs: list[VariableSpec] = []
    seeded = seeded_getter(seed)

    def record(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        variable = seeded(getter, name, *args, **without_partitioner(kwargs))
        if name not in variables and not is_local(kwargs):
            if not variable.shape.is_fully_defined():
                raise OptionError(f"model variable {name!r} has the shape {variable.shape}; give it a static shape")
            variables[name] = variable
            specs.append(
                VariableSpec(
                    name=name,
                    shape=tuple(variable.shape.as_list()),
                    dtype=np.dtype(variable.dtype.base_dtype.as_numpy_dtype),
                    trainable=bool(variable.trainable),
                    is_table=EMBEDDING_TABLES in (kwargs.get("collections") or ()),
                    stage=next(iter(graph.get_collection(_CURRENT_STAGE)[-1:]), 0),
                )
            )
        return variable

    with graph.as_default():
        # For initial values that are tensors of random ops, which have no initializer to give a seed to.
        tf.set_random_seed(seed)
        with tf.variable_scope("", custom_getter=record, use_resource=True):
            build()
        unplaced = [v for v in tf.global_variables() if v.op.name not in variables]
    if unplaced:
        maker, fix = _origin(unplaced[0])
        names = ", ".join(variable.op.name for variable in unplaced if _origin(variable)[0] == maker)
        raise OptionError(f"model variables {names} were created by {maker}; {fix}")
    if not specs:
        raise OptionError("the model has no variables; create them by tf.get_variable")
    return ModelTrace(graph, variables, specs)


def placeholders(element_spec: Any) -> Any:
    """Creates placeholders for the tensors of a dataset's elements, in the default graph, nested like the spec."""
    return tf.nest.map_structure(lambda spec: tf.placeholder(spec.dtype, spec.shape), element_spec)


def _origin(variable: tf.Variable) -> tuple[str, str]:
    """Names the code that created a variable without `tf.get_variable`, and the call to use instead."""
    files = [frame.filename.replace("\\", "/") for frame in variable.op.traceback]
    for part, origin in _MAKERS.items():
        if any(part in file for file in files):
            return origin
    return _BY_VARIABLE


def seeded_getter(seed: int) -> Callable[..., tf.Variable]:
    """Returns a custom getter for a variable scope; it gives an initialiser without a seed one from (seed, name).

    A single process can start from the same values as a cluster run with that seed. It builds the model under
    `tf.set_random_seed(seed)` and `tf.variable_scope("", custom_getter=seeded_getter(seed))`.
    """

    def seeded(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        initializer = kwargs.get("initializer")
        if initializer is None and tf.as_dtype(kwargs.get("dtype") or tf.float32).is_floating:
            initializer = tf.glorot_uniform_initializer()  # the default of tf.get_variable, which has no seed
        if isinstance(initializer, type):
            initializer = initializer()
        if initializer is not None and hasattr(initializer, "seed") and initializer.seed is None:
            # A model may give one initializer to several variables, and each needs its own seed.
            initializer = copy.copy(initializer)
            initializer.seed = derive_seed(seed, name)
        kwargs["initializer"] = initializer
        return getter(name, *args, **kwargs)

    return seeded


def derive_seed(seed: int, purpose: str) -> int:
    """Returns a seed in [0, 2**31) that depends on the run's seed and a purpose."""
    # Not `hash`, which differs from process to process. 31 bits, because TensorFlow truncates longer seeds.
    return zlib.crc32(f"{seed}/{purpose}".encode()) & 0x7FFFFFFF


def without_partitioner(getter_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns a custom getter's arguments without the model's partitioner, because the layout cuts variables."""
    return getter_kwargs | {"partitioner": None}


def is_local(getter_kwargs: dict[str, Any]) -> bool:
    """Returns whether a custom getter's arguments ask for a worker-local variable, which the store does not hold."""
    return tf.GraphKeys.LOCAL_VARIABLES in (getter_kwargs.get("collections") or ())
