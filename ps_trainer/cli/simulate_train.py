"""The `--model` form of `python -m ps_trainer simulate`: real gradients along the schedule."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from ps_trainer.cli.run import hidden_stderr, quiet_tensorflow
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, UsageError
from ps_trainer.options import option, repeatable

# The rule of the cluster whose limits hold for those that are simulated only.
_RULES_OF_CLUSTER = {"token_queue": "sync", "stock_sync": "sync"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayFlags:
    """What is trained in virtual time, as in a real run; without --model nothing is."""

    model: str | None = option(None, "model to train; none = only the times")
    model_option: tuple[str, ...] = repeatable("key=value for the model")
    dataset: str = option(TrainConfig.dataset, "data to train and test on")
    dataset_option: tuple[str, ...] = repeatable("key=value for the dataset")
    data_dir: str | None = option(None, "folder of the dataset's files, where it needs any")
    batch_size: int = option(TrainConfig.batch_size, "examples per step and worker")
    optimizer: str = option(TrainConfig.optimizer, "optimizer that the parameter servers apply")
    optimizer_option: tuple[str, ...] = repeatable("key=value for the optimizer")
    learning_rate: float = option(TrainConfig.learning_rate, "learning rate, before the schedule")
    schedule: str = option(TrainConfig.schedule, "learning-rate schedule over global_step")
    schedule_option: tuple[str, ...] = repeatable("key=value for the schedule")
    evaluate_every: int = option(0, "updates between two evaluations on the test data; 0 = only at the end")


def check(flags: ReplayFlags, given: Container[str]) -> None:
    """Checks the flags as far as that needs no TensorFlow.

    Args:
        flags: to check.
        given: names of the flags that the user gave.

    Raises:
        UsageError: a flag about training without `--model`.
        OptionError: a value out of range.
    """
    in_vain = [field.name for field in dataclasses.fields(flags) if field.name in given and field.name != "model"]
    if flags.model is None and in_vain:
        raise UsageError(f"--{in_vain[0]} is about training, and nothing is trained; add --model=…, or leave it out")
    if flags.evaluate_every < 0:
        raise OptionError(f"--evaluate_every={flags.evaluate_every}; give 0 (only at the end) or more")


class Trainee:
    """A model that is trained once its schedule is there. Imports TensorFlow.

    Args:
        flags: with a model.
        cluster: `simulation.cluster.ClusterModel` on which the schedule is made.
        update: its rule.
        update_options: of the rule.
        num_updates: of the schedule.

    Raises:
        UsageError: an unknown name, a wrong option, missing data, or a combination that cannot run.
    """

    def __init__(self, flags: ReplayFlags, cluster: Any, update: str, update_options: Sequence[str], num_updates: int):
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
        self._training = _load(config, cluster.num_workers)
        self._blocks: list[Any] = []

    def keep(self, blocks: Iterable[Any]) -> Iterator[Any]:
        """The same blocks of `simulation.run.stream`, which are remembered."""
        for block in blocks:
            self._blocks.append(block)
            yield block

    def train(self, folder: pathlib.Path | None) -> dict[str, Any]:
        """Trains along the blocks, prints the result, writes its tables if there is a folder, and returns figures."""
        from ps_trainer.simulation.replay import report, run
        from ps_trainer.simulation.schedule import Schedule, concatenate

        schedule = Schedule(self._num_workers, *concatenate(self._blocks))
        trained = run.train(self._training, schedule, *self._rule, evaluate_every=self._flags.evaluate_every)
        print(f"trained {_headline(self._flags)}")
        print(report.describe(trained))
        if folder is not None:
            report.write_tables(trained, folder)
        return report.to_json(trained)


def _load(config: TrainConfig, num_workers: int) -> Any:
    """A `simulation.replay.training.Training`."""
    quiet_tensorflow()
    with hidden_stderr():
        from ps_trainer.simulation.replay.training import Training, check_shards
        from ps_trainer.training import components as components_lib

    components = components_lib.load(config, num_workers)
    training = Training(
        model=components.model,
        dataset=components.dataset,
        optimizer=components.optimizer,
        rate_schedule=components.schedule,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        seed=config.seed,
    )
    check_shards(training, num_workers)
    return training


def _headline(flags: ReplayFlags) -> str:
    optimizer = " ".join([flags.optimizer, *flags.optimizer_option])
    schedule = " ".join([flags.schedule, *flags.schedule_option])
    return (
        f"{flags.model} on {flags.dataset}: {optimizer}, learning rate {flags.learning_rate:g} ({schedule}),"
        f" batch size {flags.batch_size} per worker"
    )
