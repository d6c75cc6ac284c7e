"""The components that a run's configuration names, loaded and checked before anything is started."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer import delays, options, registry
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.data.base import Shard
from ps_trainer.delays import DelaySpec
from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Transform
from ps_trainer.gradients.parse import check_optimizer
from ps_trainer.gradients.parse import load as load_transforms
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.trace import placeholders, trace
from ps_trainer.updates.base import RunPlan, UpdateRule


class Components(NamedTuple):
    """Instances of what `TrainConfig` names; `dataset` has found and checked its files."""

    model: Any
    dataset: Any
    rule: UpdateRule
    optimizer: PsOptimizer
    schedule: Any
    layout: type[ParameterStore]
    layout_options: Any
    hooks: tuple[type, ...]
    transforms: list[Transform]
    stragglers: list[DelaySpec]

    def create_store(self, cluster: ClusterConfig, config: TrainConfig) -> ParameterStore:
        """A store of the run's layout, seen from this worker."""
        return self.layout(
            self.layout_options,
            num_ps=cluster.num_ps,
            worker_device=cluster.device,
            worker_index=cluster.worker_index,
            pull_dtype=config.pull_dtype,
            keeps_replica=self.rule.keeps_replica,
        )


def load(config: TrainConfig, num_workers: int) -> Components:
    """Loads everything that `config` names.

    Raises:
        UsageError: an unknown name, a wrong option, missing or broken data, or a combination that cannot run.
    """
    rule = registry.UPDATES.create(config.update, config.update_option)
    layout = registry.LAYOUTS.load(config.layout)
    components = Components(
        model=_create_model(config),
        dataset=registry.DATASETS.create(config.dataset, config.dataset_option, data_dir=config.data_dir),
        rule=rule,
        optimizer=registry.OPTIMIZERS.create(config.optimizer, config.optimizer_option),
        schedule=registry.SCHEDULES.create(config.schedule, config.schedule_option),
        layout=layout,
        layout_options=options.parse(layout.Options, config.layout_option, "--layout_option"),
        hooks=tuple(registry.HOOKS.load(name) for name in config.hook),
        transforms=load_transforms(config.gradient_transform),
        stragglers=delays.parse_all(config.straggler, num_workers),
    )
    rule.check(_plan(components, config, num_workers))
    check_optimizer(components.transforms, config.optimizer, components.optimizer.momentum)
    _check_classes(components, config)
    if not rule.holds_tables or rule.needs_tables:
        _check_tables(components, config)
    return components


def _create_model(config: TrainConfig) -> Any:
    try:
        return registry.MODELS.create(config.model, config.model_option)
    except ValueError as error:  # models know nothing of this package's errors
        raise OptionError(f"--model_option: {error}") from error


def _plan(components: Components, config: TrainConfig, num_workers: int) -> RunPlan:
    return RunPlan(
        num_workers=num_workers,
        optimizer=components.optimizer,
        optimizer_name=config.optimizer,
        transforms=[registry.split_inline(text)[0] for text in config.gradient_transform],
        is_lossy=any(transform.is_lossy for transform in components.transforms),
    )


def _check_tables(components: Components, config: TrainConfig) -> None:
    """Raises OptionError where the model has embedding tables and the rule cannot train them, or has none and must."""
    with tf.Graph().as_default():
        examples = components.dataset.train(
            shard=Shard(0, 1), batch_size=config.batch_size, seed=config.seed, num_epochs=1
        )
    model_trace = trace(lambda: components.model.build(placeholders(examples.element_spec), training=True), config.seed)
    tables = [spec.name for spec in model_trace.specs if spec.is_table]
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


def _check_classes(components: Components, config: TrainConfig) -> None:
    model_classes = getattr(getattr(components.model, "options", None), "num_classes", None)
    data_classes = components.dataset.num_classes
    if model_classes is not None and data_classes is not None and model_classes < data_classes:
        raise OptionError(
            f"dataset {config.dataset!r} has {data_classes} classes, model {config.model!r} only {model_classes};"
            f" set --model_option num_classes={data_classes}"
        )
