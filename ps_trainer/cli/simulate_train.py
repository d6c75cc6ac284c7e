"""The `--model` form of `ps_trainer simulate`: trains with real gradients in the simulated order."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from ps_trainer.cli.command_wrapper import importing_tensorflow
from ps_trainer.config import TrainConfig
from ps_trainer.errors import UsageError
from ps_trainer.options import option, same_as

# Rules that exist only in the simulation, and the rule of a cluster that has the same limits.
_RULES_OF_CLUSTER = {"token_queue": "sync", "stock_sync": "sync", "ssp_cache": "ssp"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayFlags:
    """The training in virtual time, with the flags of a real run; without --model there is none."""

    model: str | None = option(None, "model to train; none = simulate only the times")
    model_option: tuple[str, ...] = same_as(TrainConfig, "model_option")
    dataset: str = same_as(TrainConfig, "dataset")
    dataset_option: tuple[str, ...] = same_as(TrainConfig, "dataset_option")
    data_dir: str | None = same_as(TrainConfig, "data_dir")
    batch_size: int = same_as(TrainConfig, "batch_size")
    optimizer: str = same_as(TrainConfig, "optimizer")
    optimizer_option: tuple[str, ...] = same_as(TrainConfig, "optimizer_option")
    learning_rate: float = same_as(TrainConfig, "learning_rate")
    schedule: str = same_as(TrainConfig, "schedule")
    schedule_option: tuple[str, ...] = same_as(TrainConfig, "schedule_option")
    evaluate_every: int = option(0, "updates between two evaluations on the test data; 0 = only at the end", least=0)


def check(flags: ReplayFlags, given: Container[str]) -> None:
    """Checks the flags as far as possible without TensorFlow.

    Args:
        flags: Flags to check.
        given: Names of the flags that the user gave.

    Raises:
        UsageError: A flag about training without `--model`.
    """
    without_effect = [
        field.name for field in dataclasses.fields(flags) if field.name in given and field.name != "model"
    ]
    if flags.model is None and without_effect:
        flag = without_effect[0]
        raise UsageError(f"--{flag} is about training, and nothing is trained without --model; add that or remove this")


class ReplayRequest:
    """A model that is trained after its schedule was simulated. Imports TensorFlow.

    Args:
        flags: Flags with a model.
        given: Names of the flags that the user gave; the model may have defaults for others.
        cluster: Simulated cluster, a `simulation.cluster.ClusterModel`.
        update: Name of the update rule.
        update_options: Options of the update rule.
        num_updates: Number of updates in the schedule.

    Raises:
        UsageError: An unknown name, a wrong option, missing data, or a combination that cannot run.
    """

    def __init__(
        self,
        flags: ReplayFlags,
        given: Collection[str],
        cluster: Any,
        update: str,
        update_options: Sequence[str],
        num_updates: int,
    ):
        fields = {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}
        del fields["evaluate_every"]
        config = TrainConfig(
            **fields,
            update=_RULES_OF_CLUSTER.get(update, update),
            update_option=tuple(update_options),
            max_steps=num_updates,
            seed=cluster.seed,
        )
        config.check()
        self._flags = flags
        self._rule = (update, update_options)
        self._num_workers = cluster.num_workers
        self._config, self._training = _load(config, given, cluster.num_workers)
        self._blocks: list[Any] = []

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the training, by the names of their flags."""
        return {name: getattr(self._config, name, value) for name, value in dataclasses.asdict(self._flags).items()}

    def keep(self, blocks: Iterable[Any]) -> Iterator[Any]:
        """Passes on the blocks of `simulation.simulate.stream`, and remembers them."""
        for block in blocks:
            self._blocks.append(block)
            yield block

    def train(self, folder: pathlib.Path | None) -> dict[str, Any]:
        """Trains along the blocks, prints the result, writes its tables if there is a folder, and returns figures."""
        from ps_trainer.simulation.replay import report
        from ps_trainer.simulation.replay.train import train
        from ps_trainer.simulation.schedule import Schedule, concatenate

        schedule = Schedule(self._num_workers, *concatenate(self._blocks))
        trained = train(self._training, schedule, *self._rule, evaluate_every=self._flags.evaluate_every)
        print(f"trained {_headline(self._config)}")
        print(report.describe(trained))
        if folder is not None:
            report.write_tables(trained, folder)
        return report.to_json(trained)


def _load(config: TrainConfig, given: Collection[str], num_workers: int) -> tuple[TrainConfig, Any]:
    """Returns the configuration with the model's defaults, and a `simulation.replay.training_setup.TrainingSetup`."""
    with importing_tensorflow():
        from ps_trainer.simulation.replay.training_setup import TrainingSetup, check_shards
        from ps_trainer.training import components as components_lib
        from ps_trainer.training import model_defaults

    config = model_defaults.fill_in_defaults(config, given, num_workers).config
    components = components_lib.load(config, num_workers)
    training = TrainingSetup(
        model=components.model,
        dataset=components.dataset,
        optimizer=components.optimizer,
        rate_schedule=components.schedule,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        seed=config.seed,
    )
    check_shards(training, num_workers)
    if (advice := components_lib.advice(components)) is not None:
        logging.warning("%s", advice)
    return config, training


def _headline(config: TrainConfig) -> str:
    optimizer = " ".join([config.optimizer, *config.optimizer_option])
    schedule = " ".join([config.schedule, *config.schedule_option])
    return (
        f"{config.model} on {config.dataset}: {optimizer}, learning rate {config.learning_rate:g} ({schedule}),"
        f" batch size {config.batch_size} per worker"
    )
