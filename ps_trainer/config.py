"""`TrainConfig`: a whole training run as data.

The one place that lists what can be set about a run, with default and help text: the command line's
flags are made from these fields (`ps_trainer.cli.flags`), and `<logdir>/config.json` holds their values.
A setting of one component only (an update rule, an optimizer …) is not here but in that component's
own options, given as `--<component>_option key=value`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

from ps_trainer import options, registry, target_metric
from ps_trainer.component_registry import split_inline
from ps_trainer.errors import OptionError
from ps_trainer.options import option, repeatable

# Environment variable by which the launcher tells a task its pid: a task ends when that process is gone.
PARENT_PID_VARIABLE = "PS_TRAINER_PARENT_PID"

SHARDINGS = ("static", "dynamic")
PULL_DTYPES = ("float32", "bfloat16", "float16")
MODEL_PARALLEL = "model_parallel"
PLACEMENTS = ("data_parallel", MODEL_PARALLEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What to train, on what, by which rule, for how long.

    `*_option` fields hold `key=value` strings. Units are in the names. Call `check` before use. Each field says why all
    workers must have the same value (`shared`), or why each may have its own (`own`).
    """

    model: str = option(
        "cnn",
        "model to train: a registered name or package.module:Class",
        shared="the workers train one set of variables",
    )
    model_option: tuple[str, ...] = repeatable(
        "key=value for the model", shared="the workers train one set of variables"
    )
    dataset: str = option("digits", "data to train and test on", shared="each worker has its part of one data set")
    dataset_option: tuple[str, ...] = repeatable(
        "key=value for the dataset", shared="each worker has its part of one data set, read in one way"
    )
    data_dir: str | None = option(
        None,
        "folder of the dataset's files, where it needs any",
        own="the same files may lie elsewhere on each machine",
    )
    batch_size: int = option(
        32,
        "examples per step and worker",
        least=1,
        shared="an average of gradients counts each worker's batch alike, and learning rates are per batch",
    )
    num_epochs: int | None = option(
        None,
        "passes of each worker over its shard; none = until max_steps",
        least=1,
        shared="each example is to be read equally often",
    )
    max_steps: int | None = option(
        1000,
        "value of global_step at which training ends; none = at the end of the data",
        least=1,
        shared="the workers end at one step",
    )

    target_metric: str | None = option(
        None,
        "test metric that is enough, as accuracy>=0.97; training then ends, too. Looked at with each checkpoint",
        own="the chief tests, and tells the others",
    )

    sharding: str = option(
        "static",
        "static: each worker has its part of the data; dynamic: workers take small shards, and none is lost",
        choices=SHARDINGS,
        shared="examples are dealt out in one way",
    )
    shard_examples: int = option(
        0,
        "most examples of a dynamic shard; 0 = an eighth of a worker's share",
        least=0,
        shared="examples are cut into shards in one way",
    )

    update: str = option("async", "update rule", shared="the workers push, wait and average by one rule")
    update_option: tuple[str, ...] = repeatable(
        "key=value for the update rule", shared="the workers push, wait and average by one rule"
    )
    gradient_transform: tuple[str, ...] = repeatable(
        "name:key=value,… of what is done to gradients before they are sent; repeat it for several, in order",
        shared="the ps tasks decode what the workers encode",
    )
    pull_dtype: str = option(
        "float32",
        "type in which parameters travel to the workers",
        choices=PULL_DTYPES,
        shared="the workers compute with equally rounded parameters",
    )
    optimizer: str = option(
        "sgd", "optimizer that the parameter servers apply", shared="the ps tasks apply all gradients by one optimizer"
    )
    optimizer_option: tuple[str, ...] = repeatable(
        "key=value for the optimizer", shared="the ps tasks apply all gradients by one optimizer"
    )
    optimizer_for: tuple[str, ...] = repeatable(
        "pattern=name:key=value,… of another optimizer for variables whose names match; learning_rate is a key, too",
        shared="the ps tasks apply all gradients by one optimizer",
    )
    learning_rate: float = option(
        0.1, "learning rate, before the schedule", above=0, shared="the ps tasks apply all gradients at one rate"
    )
    schedule: str = option(
        "constant", "learning-rate schedule over global_step", shared="the ps tasks apply all gradients at one rate"
    )
    schedule_option: tuple[str, ...] = repeatable(
        "key=value for the schedule", shared="the ps tasks apply all gradients at one rate"
    )
    placement: str = option(
        "data_parallel",
        "data_parallel: each worker computes the whole model; model_parallel: its stages, in groups of as many workers",
        choices=PLACEMENTS,
        shared="it says which workers train and which compute for another one",
    )
    layout: str = option("packed", "how parameters lie on the ps tasks", shared="it says where each parameter lies")
    layout_option: tuple[str, ...] = repeatable("key=value for the layout", shared="it says where each parameter lies")
    seed: int = option(
        0,
        "seed of initial values, data order and the model's random ops (each worker draws its own)",
        least=0,
        shared="the data are dealt out in one order, and a run can be repeated",
    )

    init_from: str | None = option(
        None,
        "checkpoint, or folder of some, whose variables of the same name and shape a new run begins with",
        own="the chief sets the initial values",
    )
    logdir: str | None = option(
        None,
        "folder for checkpoints, metrics and summary; none = nothing is kept",
        own="each worker writes to its own disk",
    )
    save_checkpoint_secs: float = option(
        60.0, "seconds between checkpoints by the chief; 0 = by steps only", least=0, own="the chief saves checkpoints"
    )
    save_checkpoint_steps: int = option(
        0, "global steps between checkpoints; 0 = by seconds only", least=0, own="the chief saves checkpoints"
    )
    keep_checkpoints: int = option(5, "number of checkpoints kept", least=1, own="it is about this worker's own disk")
    max_failed_saves: int = option(
        3,
        "saves that fail in a row (disk full …) and end the run; before, it only warns",
        least=1,
        own="it is about the chief's disk",
    )
    report_secs: float = option(
        5.0, "seconds between two reports of a worker (log, metrics)", above=0, own="it is about this worker's own log"
    )
    step_log: bool = option(
        False, "a line per step of each worker, in <logdir>/steps", own="it is about this worker's own log"
    )
    straggler: tuple[str, ...] = repeatable(
        "name:key=value,… of a delay in each step, between pull and push; of several, the last that names a worker",
        own="how long a worker computes changes no gradient, and machines differ",
    )
    hook: tuple[str, ...] = repeatable(
        "package.module:Class of a tf.train.SessionRunHook to add to every worker",
        own="a hook may watch one worker alone",
    )

    start_timeout_secs: float = option(
        300.0,
        "how long a task waits for the others to appear",
        above=0,
        own="a task may have its own patience; the result is the same",
    )
    join_wait_secs: float = option(
        30.0,
        "how long the first step waits for all workers; async then starts without",
        least=0,
        own="a task may have its own patience; the result is the same",
    )
    stall_timeout_secs: float = option(
        600.0,
        "how long a task waits for a step to complete before it fails",
        above=0,
        own="a task may have its own patience; the result is the same",
    )
    heartbeat_timeout_secs: float = option(
        30.0,
        "silence after which a task counts as lost, though its port answers",
        above=0,
        own="a task may have its own patience; the result is the same",
    )
    recover_timeout_secs: float = option(
        120.0,
        "how long tasks wait for a lost one to come back (who starts it again is your affair); 0 = end at once",
        least=0,
        own="a task may have its own patience; the result is the same",
    )
    isolation: str | None = option(
        None,
        "what keeps strangers from the tasks' ports (firewall …); ends the warning",
        own="it is about this machine's ports",
    )
    intra_op_threads: int = option(
        0,
        "threads inside one TensorFlow op; 0 = cores / tasks on this host",
        least=0,
        most=4096,
        own="it is about this machine's cores",
    )
    inter_op_threads: int = option(
        0,
        "TensorFlow ops at the same time; 0 = cores / tasks on this host, at least 2",
        least=0,
        most=4096,
        own="it is about this machine's cores",
    )

    def check(self) -> None:
        """Checks values and names without importing TensorFlow.

        Raises:
            OptionError: a value is out of range, or nothing would end the run.
            UnknownNameError: a component is not registered.
        """
        options.check(self)
        registry.MODELS.check(self.model)
        registry.DATASETS.check(self.dataset)
        registry.UPDATES.check(self.update)
        registry.OPTIMIZERS.check(self.optimizer)
        for text in self.optimizer_for:
            registry.OPTIMIZERS.check(split_inline(text.partition("=")[2])[0], "--optimizer_for")
        registry.SCHEDULES.check(self.schedule)
        registry.LAYOUTS.check(self.layout)
        for transform in self.gradient_transform:
            registry.GRADIENT_TRANSFORMS.check(split_inline(transform)[0])
        if self.shard_examples and self.sharding != "dynamic":
            raise OptionError(f"--shard_examples={self.shard_examples} is for --sharding=dynamic; set that as well")
        for spec in self.straggler:
            registry.DELAYS.check(split_inline(spec)[0])
        for name in self.hook:
            registry.HOOKS.check(name)
        if self.target_metric is not None:
            target_metric.parse(self.target_metric)
        if self.max_steps is None and self.num_epochs is None:
            raise OptionError("--max_steps=none and --num_epochs=none: nothing would end the run; set one of them")

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return dataclasses.asdict(self)

    @property
    def checkpoint_dir(self) -> pathlib.Path | None:
        """Folder of the checkpoints, or None without a logdir."""
        return pathlib.Path(self.logdir) / "checkpoints" if self.logdir else None

    def agreement(self) -> dict[str, Any]:
        """The part that every worker of one job must have the same, as JSON values."""
        shared = [field.name for field in dataclasses.fields(self) if "shared" in field.metadata]
        return json.loads(json.dumps({name: getattr(self, name) for name in shared}))


def recorded(logdir: pathlib.Path) -> dict[str, Any] | None:
    """The fields of the last run in `logdir`, as its config.json has them; None where there is none."""
    try:
        train = json.loads((logdir / "config.json").read_text(encoding="utf-8"))["train"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return train if isinstance(train, dict) else None
