"""The components that a run's configuration names, loaded and checked before anything is started."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer import component_tables, options
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import WorkerGroup, count_groups
from ps_trainer.config import MODEL_PARALLEL, TrainConfig
from ps_trainer.data.pipeline import dataset_record, facts
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.disturbances import delays
from ps_trainer.disturbances.delays import DelaySpec
from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Transform
from ps_trainer.gradients.transform_list import load as load_transforms
from ps_trainer.optimizers.assignment import OptimizerAssignment
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.store import holders, model_check
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.trace import ModelTrace, placeholders, trace
from ps_trainer.training import model_sizes, run_optimizers
from ps_trainer.training.graph_parts import step_calls
from ps_trainer.updates.base import UpdateRule


class Components(NamedTuple):
    """Instances of the components that `TrainConfig` names.

    Attributes:
        model: Model, with a method `build`.
        dataset: Dataset, which has found and checked its files.
        rule: Update rule.
        optimizers: The run's optimizer, and the optimizers that `--optimizer_for` names.
        schedule: Schedule of the learning rate.
        layout: Class of the parameter store.
        layout_options: Options of the layout.
        hooks: Classes of the user's session hooks, or functions that create one.
        transforms: Gradient transforms, in the order in which they are applied.
        stragglers: Delays that `--straggler` injects.
        num_stages: Number of stages of the model; 1 unless `--placement=model_parallel`.
        trace_model: Function that builds the model in a scratch graph when it is first called. Later calls return the
            same trace.
        model_option: Options of the model, with the sizes that the data have given.
        note: Sentence about the settings that the model itself has given; empty if it gave none.
    """

    model: Any
    dataset: Any
    rule: UpdateRule
    optimizers: OptimizerAssignment
    schedule: Any
    layout: type[ParameterStore]
    layout_options: Any
    hooks: tuple[Callable[[], Any], ...]
    transforms: list[Transform]
    stragglers: list[DelaySpec]
    num_stages: int
    trace_model: Callable[[], ModelTrace]
    model_option: tuple[str, ...] = ()
    note: str = ""

    @property
    def optimizer(self) -> PsOptimizer:
        """The optimizer of every variable that `--optimizer_for` does not name."""
        return self.optimizers.all[0].optimizer

    def count_holders(self, trainers: ClusterConfig, *, spans_hosts: bool) -> int:
        """Returns the number of tasks, from the first on, that hold parameters: ps tasks, or some of the workers.

        Args:
            trainers: Cluster of the workers that train.
            spans_hosts: Whether the tasks of the run are on several hosts.
        """
        num_tasks = len(trainers.ps_devices)
        if not trainers.is_colocated:
            return num_tasks
        least = getattr(self.layout_options, "least_share_bytes", 0)  # a user's layout may lack it
        return holders.count_holders(num_tasks, self.trace_model().specs, least, spans_hosts=spans_hosts)

    def create_store(self, group: WorkerGroup, config: TrainConfig, *, spans_hosts: bool = False) -> ParameterStore:
        """Creates a store of the run's layout for the worker that trains for `group`.

        Args:
            group: Worker group.
            config: Settings of the run.
            spans_hosts: Whether the tasks of the run are on several hosts.
        """
        trainers = group.trainers
        return self.layout(
            self.layout_options,
            ps_devices=trainers.ps_devices[: self.count_holders(trainers, spans_hosts=spans_hosts)],
            worker_device=trainers.device,
            worker_index=trainers.worker_index,
            pull_dtype=config.pull_dtype,
            keeps_replica=self.rule.keeps_replica,
            stage_devices=group.devices,
            spans_hosts=spans_hosts,
        )


class ComponentObjects(NamedTuple):
    """Objects that take the place of components which `TrainConfig` names; the Python API has them from its user.

    Attributes:
        model: Model, with a method `build`; None = as the configuration says.
        dataset: Dataset, with the methods `train` and `test`; None = as the configuration says.
        hooks: Classes of session hooks, or functions that create one; added to those that the configuration names.
    """

    model: Any = None
    dataset: Any = None
    hooks: tuple[Callable[[], Any], ...] = ()


NO_OBJECTS = ComponentObjects()


def load(
    config: TrainConfig,
    num_workers: int,
    objects: ComponentObjects = NO_OBJECTS,
    trained_run: pathlib.Path | None = None,
) -> Components:
    """Loads everything that `config` names. The dataset gives the sizes and scales of the model that `config` lacks.

    Args:
        config: Configuration of the run.
        num_workers: Number of workers in the cluster, including those that compute stages for other workers.
        objects: Objects in place of named components.
        trained_run: Folder of a trained run, for a command that uses its model and what it has recorded of its data.

    Raises:
        UsageError: An unknown name, a wrong option, missing or broken data, or a combination that cannot run.
    """
    rule = component_tables.UPDATES.create(config.update, config.update_option)
    layout = component_tables.LAYOUTS.load(config.layout)
    dataset = _create_dataset(config, trained_run) if objects.dataset is None else objects.dataset
    if objects.model is None:
        of_data = dataset_record.sizes_of(dataset) | dataset_record.scales_of(dataset)
        config = model_sizes.fill_in_sizes(config, of_data, trained_run)
    model = _create_model(config) if objects.model is None else objects.model
    trace_model = functools.cache(lambda: _trace(model, dataset, config))
    num_stages = _count_stages(trace_model, rule, config) if config.placement == MODEL_PARALLEL else 1
    # From here on, only the workers that train count.
    num_workers = count_groups(num_workers, num_stages)
    components = Components(
        model=model,
        dataset=dataset,
        rule=rule,
        optimizers=run_optimizers.create(config),
        schedule=component_tables.SCHEDULES.create(config.schedule, config.schedule_option),
        layout=layout,
        layout_options=options.parse(layout.Options, config.layout_option, "--layout_option"),
        hooks=(*_load_hooks(config), *objects.hooks),
        transforms=load_transforms(config.gradient_transform),
        stragglers=delays.parse_all(config.straggler, num_workers),
        num_stages=num_stages,
        trace_model=trace_model,
        model_option=config.model_option,
    )
    run_optimizers.check(rule, components.optimizers, components.transforms, config, num_workers)
    step_calls.check(config, rule, has_hooks=bool(components.hooks))
    model_sizes.check(model, dataset, config)
    # Only settings that need a trace make one before the server exists; `_trace` describes the effect.
    if config.optimizer_for:
        components.optimizers.check([spec.name for spec in trace_model().specs if spec.trainable])
    if not rule.holds_tables or rule.needs_tables:
        _check_tables(components, config)
    return components


def check_options(config: TrainConfig, num_workers: int, objects: ComponentObjects = NO_OBJECTS) -> None:
    """Checks the names and options of all components and whether they go together, without data and without the model.

    Of the data it checks only that `--data_dir` is there, if the dataset needs it.

    Args:
        config: Configuration of the run.
        num_workers: Number of workers in the cluster, including those that compute stages for other workers.
        objects: Objects in place of named components, which have their options already.

    Raises:
        UsageError: A name is unknown, an option is wrong, components exclude each other, the update rule does not fit
            the cluster, or the dataset's folder is missing.
    """
    rule = component_tables.UPDATES.create(config.update, config.update_option)
    component_tables.LAYOUTS.parse_options(config.layout, config.layout_option)
    if objects.model is None:
        _check_model_options(config)
    if objects.dataset is None:
        component_tables.DATASETS.parse_options(config.dataset, config.dataset_option)
        if config.lacks_data_dir:
            # The dataset raises the error, because it knows the names of its files.
            _create_dataset(config)
    optimizers = run_optimizers.create(config)
    component_tables.SCHEDULES.create(config.schedule, config.schedule_option)
    transforms = load_transforms(config.gradient_transform)
    # How many workers train depends on the model's stages under `model_parallel`. `load` checks that case.
    if config.placement != MODEL_PARALLEL:
        run_optimizers.check(rule, optimizers, transforms, config, num_workers)
    hooks = (*_load_hooks(config), *objects.hooks)
    step_calls.check(config, rule, has_hooks=bool(hooks))


def check_shares(layout_options: Any, *, is_colocated: bool) -> None:
    """Rejects an option about the workers' shares in a run whose workers hold no parameters.

    Args:
        layout_options: Options of the run's layout; None if it takes none.
        is_colocated: Whether the workers hold the parameters.

    Raises:
        OptionError: The run has such an option.
    """
    least = getattr(layout_options, "least_share_bytes", 0)  # a user's layout may lack it
    if least and not is_colocated:
        raise OptionError(
            f"--layout_option least_share_bytes={least} has no effect, because the workers hold no parameters; leave it"
            " out, or let several workers hold them with --placement=colocated"
        )


def _load_hooks(config: TrainConfig) -> tuple[type, ...]:
    return tuple(component_tables.HOOKS.load(name) for name in config.hook)


def advice(components: Components) -> str | None:
    """Builds the model, and returns a warning about variables that should be embedding tables, or None.

    Raises:
        OptionError: The model cannot be trained; the message says what to change in it.
    """
    found = model_check.embedding_advice(components.trace_model())
    return found if components.rule.holds_tables else None


def _create_model(config: TrainConfig) -> Any:
    try:
        return component_tables.MODELS.create(config.model, config.model_option)
    except ValueError as error:  # models know nothing of this package's errors
        raise OptionError(f"--model_option: {error}") from error


def _check_model_options(config: TrainConfig) -> None:
    """Checks the options of the model before the data have given its sizes."""
    try:
        _create_model(config)
    except OptionError:
        # An option may be too large for a default size only, such as num_sampled for vocab_size.
        _create_model(model_sizes.fill_in_sizes(config, model_sizes.UNBOUNDED))


def _create_dataset(config: TrainConfig, trained_run: pathlib.Path | None = None) -> Any:
    recorded = None if trained_run is None else dataset_record.read_facts(trained_run, config.dataset)
    takes_facts = getattr(component_tables.DATASETS.load(config.dataset), "takes_facts", False)
    # Only the tasks of a run write into its folder, and not the commands that use its model.
    shared = pathlib.Path(config.logdir) / facts.FOLDER if trained_run is None and config.logdir else None
    given = {"facts": facts.Facts(recorded, shared)} if takes_facts else {}
    return component_tables.DATASETS.create(config.dataset, config.dataset_option, data_dir=config.data_dir, **given)


def _count_stages(trace_model: Callable[[], ModelTrace], rule: UpdateRule, config: TrainConfig) -> int:
    """Returns the number of stages of the model.

    Raises:
        OptionError: The model has one stage only, a stage number is missing, or the rule cannot train stages.
    """
    if rule.keeps_replica:
        raise OptionError(
            f"--placement=model_parallel: with --update={config.update} each worker keeps a copy of the whole model;"
            " use --update=async, sync or another rule without such copies, or --placement=data_parallel"
        )
    stages = trace_model().stages
    if len(stages) == 1:
        raise OptionError(
            f"--placement=model_parallel: model {config.model!r} has only one stage; if the model has the option"
            " num_stages, give --model_option num_stages=2, else build layers inside `with layers.stage(1):`, or"
            " use --placement=data_parallel"
        )
    missing = sorted(set(range(max(stages))) - stages)
    if missing:
        raise OptionError(
            f"--placement=model_parallel: model {config.model!r} has the stages {sorted(stages)}, and"
            f" {', '.join(map(str, missing))} is missing; number the stages from 0 without a gap"
        )
    return len(stages)


def _trace(model: Any, dataset: Any, config: TrainConfig) -> ModelTrace:
    """Builds the model for a batch of the run, to learn its variables and stages.

    The batch of shard 0 stands for all batches: no variable of a model may depend on which worker builds it.

    A task whose settings do not need the trace earlier must create its server first. The first dataset of a process
    starts TensorFlow's eager runtime. Its thread pools then serve the whole process, with the default number of threads
    instead of the server's. Convolutions then add up their sums in another order.
    """
    with tf.Graph().as_default():
        examples = dataset.train(shard=Shard(0, 1), batch_size=config.batch_size, seed=config.seed, num_epochs=1)
    if config.devices_per_worker > 1:
        _check_divisible(examples.element_spec, config)
    return trace(lambda: model_check.build(model, config.model, placeholders(examples.element_spec)), config.seed)


def _check_divisible(element_spec: Any, config: TrainConfig) -> None:
    """Raises OptionError if a tensor of a batch cannot be divided among the devices of a worker."""
    for spec in tf.nest.flatten(element_spec):
        shape = spec.shape if isinstance(spec, tf.TensorSpec) else None
        if shape is None or not shape.rank or shape[0] != config.batch_size:
            raise OptionError(
                f"--devices_per_worker={config.devices_per_worker}: dataset {config.dataset!r} gives {spec}, and the"
                f" first dimension of each tensor must be --batch_size={config.batch_size}; use one device"
            )


def _check_tables(components: Components, config: TrainConfig) -> None:
    """Checks that the rule and the model's embedding tables go together.

    Raises:
        OptionError: The model has tables and the rule cannot train them, or has none and the rule needs some.
    """
    tables = [spec.name for spec in components.trace_model().specs if spec.is_table]
    if components.rule.needs_tables and not tables:
        raise OptionError(
            f"--update={config.update} is for models with embedding tables, and model {config.model!r} has none;"
            " use --update=all_reduce"
        )
    if tables and not components.rule.holds_tables:
        raise OptionError(
            f"--update={config.update} cannot train embedding tables, and model {config.model!r} has"
            f" {', '.join(tables)}; use --update=async, sync or hybrid, or another model"
        )
