"""The components that a run's configuration names, loaded and checked before anything is started."""

from __future__ import annotations

from typing import Any, NamedTuple

from ps_trainer import options, registry
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.base import UpdateRule


class Components(NamedTuple):
    """Instances of what `TrainConfig` names; `dataset` has found and checked its files."""

    model: Any
    dataset: Any
    rule: UpdateRule
    optimizer: Any
    schedule: Any
    layout: type[ParameterStore]
    layout_options: Any
    hooks: tuple[type, ...]

    def create_store(self, cluster: ClusterConfig) -> ParameterStore:
        """A store of the run's layout, seen from this worker."""
        return self.layout(
            self.layout_options,
            num_ps=cluster.num_ps,
            worker_device=cluster.device,
            worker_index=cluster.worker_index,
        )


def load(config: TrainConfig, num_workers: int) -> Components:
    """Loads everything that `config` names.

    Raises:
        UsageError: an unknown name, a wrong option, missing or broken data, or a combination that cannot run.
    """
    rule = registry.UPDATES.create(config.update, config.update_option)
    rule.check(num_workers)
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
    )
    _check_classes(components, config)
    return components


def _create_model(config: TrainConfig) -> Any:
    try:
        return registry.MODELS.create(config.model, config.model_option)
    except ValueError as error:  # models know nothing of this package's errors
        raise OptionError(f"--model_option: {error}") from error


def _check_classes(components: Components, config: TrainConfig) -> None:
    model_classes = getattr(getattr(components.model, "options", None), "num_classes", None)
    data_classes = components.dataset.num_classes
    if model_classes is not None and data_classes is not None and model_classes < data_classes:
        raise OptionError(
            f"dataset {config.dataset!r} has {data_classes} classes, model {config.model!r} only {model_classes};"
            f" set --model_option num_classes={data_classes}"
        )
