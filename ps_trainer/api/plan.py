"""`TrainingPlan`: all that a training needs, from the arguments of the API, checked before anything is started."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import component_tables, options
from ps_trainer.api import data as data_lib
from ps_trainer.api import settings, shipped
from ps_trainer.api.callbacks import Callback, check_callbacks
from ps_trainer.api.model_fn import ModelFn
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import ArgumentError, ArgumentTypeError
from ps_trainer.registry import Registry
from ps_trainer.training import components as components_lib
from ps_trainer.training import model_defaults
from ps_trainer.training.components import ComponentObjects

_lock = threading.RLock()


class TrainingPlan(NamedTuple):
    """A training to start.

    Attributes:
        config: Settings of the run, checked.
        given: Names of the settings that differ from the defaults, or that the caller gave.
        objects: Objects in place of named components.
        callbacks: Functions to call after each step.
    """

    config: TrainConfig
    given: frozenset[str]
    objects: ComponentObjects
    callbacks: tuple[Callback, ...]


def create(
    owner: str,
    *,
    model: Any,
    data: Any,
    test_data: Any,
    callbacks: Callback | Sequence[Callback],
    num_workers: int,
    given: Mapping[str, Any],
    is_in_process: bool,
) -> TrainingPlan:
    """Checks all arguments of a training; returns them as a plan.

    Args:
        owner: The called function, "train()", for messages.
        model: Name of a model, a class, or an instance with a method `build`.
        data: Name of a dataset, a class, an instance with the methods `train` and `test`, arrays, or a function.
        test_data: Arrays or a function for the test examples, or None.
        callbacks: One function, or several.
        num_workers: Number of workers.
        given: Further settings by the names of their flags.
        is_in_process: Whether the tasks are threads of this process.

    Raises:
        ArgumentTypeError: An argument is unknown or of a wrong type.
        ArgumentError: An argument has a wrong value, or arguments cannot be combined.
    """
    values = dict(given)
    hooks, hook_names = _hooks(values.pop("hook", ()))
    settings.check_names(values, {field.name for field in dataclasses.fields(TrainConfig)}, owner)
    with settings.python_errors():
        model_name, model_object = _component(component_tables.MODELS, "model", model, values)
        data_name, dataset = _dataset(data, test_data, values)
        if dataset is not None and model_name in component_tables.MODELS.names():
            _check_keys(model_name, dataset)
    if hook_names:
        values["hook"] = hook_names
    objects = ComponentObjects(_one_at_a_time(model_object) if is_in_process else model_object, dataset, hooks)
    config = settings.build_config(values, owner, model=model_name, dataset=data_name)
    if config.sharding == "dynamic" and dataset is not None and not hasattr(dataset, "train_leased"):
        raise ArgumentError("sharding='dynamic' needs arrays or a dataset class; batches of a function have no shards")
    if isinstance(model_object, ModelFn):
        config, values = _with_optimizer(model_object, config, objects, num_workers, values)
    with settings.python_errors():
        config, note = model_defaults.fill_in_defaults(config, values, num_workers, model=model_object)
        components_lib.check_options(config, num_workers, objects)
    if note:
        logging.info("%s", note)
    return TrainingPlan(config, frozenset(values), objects, check_callbacks(callbacks))


def _component(table: Registry, name: str, given: Any, values: dict[str, Any]) -> tuple[str, Any]:
    """Returns name and object of a model or dataset given as a name, a class or an instance; the object may be None."""
    option_flag = f"{name}_option"
    if isinstance(given, str):
        return given, None
    if isinstance(given, type):
        _check_methods(table, name, given)
        options_type = getattr(given, "Options", None)
        if settings.is_importable(given):
            return settings.target_of(given), None
        strings = settings.convert(option_flag, tuple[str, ...], values.pop(option_flag, ()))
        parsed = options.parse_if_any(options_type, strings, f"--{option_flag}", f"{table.kind} {given.__name__}")
        extra = {} if name == "model" else {"data_dir": values.get("data_dir")}
        return settings.target_of(given), given(**extra) if parsed is None else given(parsed, **extra)
    _check_methods(table, name, given)
    if option_flag in values:
        raise ArgumentError(
            f"{option_flag} is for a {table.kind} that is given by name or as a class; {name} is an instance, which has"
            " its options already"
        )
    return settings.target_of(given.function if isinstance(given, ModelFn) else type(given)), given


def _check_methods(table: Registry, name: str, given: Any) -> None:
    missing = [method for method in table.methods if not callable(getattr(given, method, None))]
    if not missing:
        return
    if name == "model" and callable(given) and not isinstance(given, type):
        raise ArgumentTypeError(
            f"model={getattr(given, '__name__', given)!r} is a function; give ps_trainer.from_model_fn(…) of it, or a"
            " class with a method build(self, batch, training)"
        )
    article = "an" if table.kind[0] in "aeiou" else "a"
    raise ArgumentTypeError(f"{name}={given!r:.80} is not {article} {table.kind}: it has no method `{missing[0]}`")


def _dataset(data: Any, test_data: Any, values: dict[str, Any]) -> tuple[str, Any]:
    """Returns the name and object of the dataset; the object may be None."""
    is_component = isinstance(data, (str, type)) or all(
        callable(getattr(data, method, None)) for method in component_tables.DATASETS.methods
    )
    if is_component:
        if test_data is not None:
            raise ArgumentError("test_data goes with arrays or a function as data; a dataset has its own test examples")
        return _component(component_tables.DATASETS, "dataset", data, values)
    if "dataset_option" in values:
        raise ArgumentError("dataset_option is for a dataset that is given by name or as a class")
    batch_size = values.get("batch_size")
    if batch_size is not None:
        batch_size = settings.convert("batch_size", int, batch_size)
    sized = data_lib.create(data, test_data, batch_size)
    if sized.batch_size is not None:
        values["batch_size"] = sized.batch_size
    # A command that later reads these names from config.json says what it needs in their place.
    return settings.target_of(data) if callable(data) else shipped.DATASET, sized.dataset


def _check_keys(model_name: str, dataset: Any) -> None:
    """Raises ArgumentError unless the batches of a caller's dataset are dicts, as the package's models need them."""
    with tf.Graph().as_default():
        spec = dataset.test(batch_size=1) or dataset.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1)
        structure = spec.element_spec
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            f"model {model_name!r} takes batches that are dicts, and data gives a {type(structure).__name__}; give"
            ' data={"image": …, "label": …} or what else the description of the model names'
        )


def _hooks(given: Any) -> tuple[tuple[Callable[[], Any], ...], tuple[str, ...]]:
    """Returns the hooks that are given as classes or functions, and those that are given by name."""
    entries = (given,) if isinstance(given, str) or callable(given) else tuple(given)
    for entry in entries:
        if not isinstance(entry, str) and not callable(entry):
            raise ArgumentTypeError(
                f"hook={entry!r:.80}: each worker needs its own hook; give its class, or a function that creates"
                " one: hook=lambda: MyHook(…)"
            )
    return tuple(one for one in entries if callable(one)), tuple(one for one in entries if isinstance(one, str))


def _with_optimizer(
    model: ModelFn, config: TrainConfig, objects: ComponentObjects, num_workers: int, values: dict[str, Any]
) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns the settings with the optimizer that the model's function made, if it made one."""
    with settings.python_errors():
        components_lib.load(config, num_workers, objects).trace_model()
    if model.optimizer is None:
        return config, values
    found = model.optimizer._asdict()
    both = [name for name in found if name in values]
    if both:
        raise ArgumentError(
            f"{both[0]} is given, and {model.name} makes its own optimizer; remove one of the two (return"
            " train_op=None)"
        )
    return dataclasses.replace(config, **found), values | found


class _OneAtATime:
    """A model whose `build` runs in one thread at a time, since the user's code may keep state in the instance."""

    def __init__(self, model: Any):
        self._model = model

        @functools.wraps(model.build)  # its parameters are checked before a run
        def build(*args: Any, **kwargs: Any) -> Any:
            with _lock:
                return model.build(*args, **kwargs)

        self.build = build

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _one_at_a_time(model: Any) -> Any:
    return None if model is None else _OneAtATime(model)
