"""`TrainConfig`: a whole training run as data.

The one place that lists what can be set about a run, with default and help text: the command line's
flags are made from these fields (`ps_trainer.cli.flags`), and `<logdir>/config.json` holds their values.
A setting of one component only (an update rule, an optimizer …) is not here but in that component's
own options, given as `--<component>_option key=value`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any

from ps_trainer import registry, target
from ps_trainer.agreement import MUST_AGREE
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

    `*_option` fields hold `key=value` strings. Units are in the names. Call `check` before use.
    """

    model: str = option("cnn", "model to train: a registered name or package.module:Class")
    model_option: tuple[str, ...] = repeatable("key=value for the model")
    dataset: str = option("digits", "data to train and test on")
    dataset_option: tuple[str, ...] = repeatable("key=value for the dataset")
    data_dir: str | None = option(None, "folder of the dataset's files, where it needs any")
    batch_size: int = option(32, "examples per step and worker")
    num_epochs: int | None = option(None, "passes of each worker over its shard; none = until max_steps")
    max_steps: int | None = option(1000, "value of global_step at which training ends; none = at the end of the data")

    target_metric: str | None = option(
        None, "test metric that is enough, as accuracy>=0.97; training then ends, too. Looked at with each checkpoint"
    )

    sharding: str = option(
        "static", "static: each worker has its part of the data; dynamic: workers take small shards, and none is lost"
    )
    shard_examples: int = option(0, "most examples of a dynamic shard; 0 = an eighth of a worker's share")

    update: str = option("async", "update rule")
    update_option: tuple[str, ...] = repeatable("key=value for the update rule")
    gradient_transform: tuple[str, ...] = repeatable(
        "name:key=value,… of what is done to gradients before they are sent; repeat it for several, in order"
    )
    pull_dtype: str = option("float32", "type in which parameters travel to the workers: float32, bfloat16, float16")
    optimizer: str = option("sgd", "optimizer that the parameter servers apply")
    optimizer_option: tuple[str, ...] = repeatable("key=value for the optimizer")
    optimizer_for: tuple[str, ...] = repeatable(
        "pattern=name:key=value,… of another optimizer for variables whose names match; learning_rate is a key, too"
    )
    learning_rate: float = option(0.1, "learning rate, before the schedule")
    schedule: str = option("constant", "learning-rate schedule over global_step")
    schedule_option: tuple[str, ...] = repeatable("key=value for the schedule")
    placement: str = option(
        "data_parallel",
        "data_parallel: each worker computes the whole model; model_parallel: its stages, in groups of as many workers",
    )
    layout: str = option("packed", "how parameters lie on the ps tasks")
    layout_option: tuple[str, ...] = repeatable("key=value for the layout")
    seed: int = option(0, "seed of initial values, data order and the model's random ops (each worker draws its own)")

    init_from: str | None = option(
        None, "checkpoint, or folder of some, whose variables of the same name and shape a new run begins with"
    )
    logdir: str | None = option(None, "folder for checkpoints, metrics and summary; none = nothing is kept")
    save_checkpoint_secs: float = option(60.0, "seconds between checkpoints by the chief; 0 = by steps only")
    save_checkpoint_steps: int = option(0, "global steps between checkpoints; 0 = by seconds only")
    keep_checkpoints: int = option(5, "number of checkpoints kept")
    max_failed_saves: int = option(3, "saves that fail in a row (disk full …) and end the run; before, it only warns")
    report_secs: float = option(5.0, "seconds between two reports of a worker (log, metrics)")
    step_log: bool = option(False, "a line per step of each worker, in <logdir>/steps")
    straggler: tuple[str, ...] = repeatable(
        "name:key=value,… of a delay in each step, between pull and push; of several, the last that names a worker"
    )
    hook: tuple[str, ...] = repeatable("package.module:Class of a tf.train.SessionRunHook to add to every worker")

    start_timeout_secs: float = option(300.0, "how long a task waits for the others to appear")
    join_wait_secs: float = option(30.0, "how long the first step waits for all workers; async then starts without")
    stall_timeout_secs: float = option(600.0, "how long a task waits for a step to complete before it fails")
    heartbeat_timeout_secs: float = option(30.0, "silence after which a task counts as lost, though its port answers")
    recover_timeout_secs: float = option(
        120.0, "how long tasks wait for a lost one to come back (who starts it again is your affair); 0 = end at once"
    )
    isolation: str | None = option(None, "what keeps strangers from the tasks' ports (firewall …); ends the warning")
    intra_op_threads: int = option(0, "threads inside one TensorFlow op; 0 = cores / tasks on this host")
    inter_op_threads: int = option(0, "TensorFlow ops at the same time; 0 = cores / tasks on this host, at least 2")

    def check(self) -> None:
        """Checks values and names without importing TensorFlow.

        Raises:
            OptionError: a value is out of range, or nothing would end the run.
            UnknownNameError: a component is not registered.
        """
        registry.MODELS.check(self.model)
        registry.DATASETS.check(self.dataset)
        registry.UPDATES.check(self.update)
        registry.OPTIMIZERS.check(self.optimizer)
        for text in self.optimizer_for:
            registry.OPTIMIZERS.check(registry.split_inline(text.partition("=")[2])[0], "--optimizer_for")
        registry.SCHEDULES.check(self.schedule)
        registry.LAYOUTS.check(self.layout)
        for transform in self.gradient_transform:
            registry.GRADIENT_TRANSFORMS.check(registry.split_inline(transform)[0])
        for field, allowed in (("pull_dtype", PULL_DTYPES), ("placement", PLACEMENTS), ("sharding", SHARDINGS)):
            if getattr(self, field) not in allowed:
                raise OptionError(f"--{field}={getattr(self, field)}; choose from {', '.join(allowed)}")
        if self.shard_examples and self.sharding != "dynamic":
            raise OptionError(f"--shard_examples={self.shard_examples} is for --sharding=dynamic; set that as well")
        for spec in self.straggler:
            registry.DELAYS.check(registry.split_inline(spec)[0])
        for name in self.hook:
            registry.HOOKS.check(name)
        for field, least in _AT_LEAST.items():
            value = getattr(self, field)
            if value is not None and not value >= least:  # NaN is refused as well
                raise OptionError(f"--{field}={value} is too small; the least is {least}")
        for field in _ABOVE_0:
            if not getattr(self, field) > 0:
                raise OptionError(f"--{field}={getattr(self, field)} must be greater than 0")
        for field in dataclasses.fields(self):
            _check_size(field.name, getattr(self, field.name))
        if self.target_metric is not None:
            target.parse(self.target_metric)
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
        """The part that every worker of one job must have the same (`agreement.MUST_AGREE`), as JSON values."""
        return json.loads(json.dumps({name: getattr(self, name) for name in MUST_AGREE}))


def recorded(logdir: pathlib.Path) -> dict[str, Any] | None:
    """The fields of the last run in `logdir`, as its config.json has them; None where there is none."""
    try:
        train = json.loads((logdir / "config.json").read_text(encoding="utf-8"))["train"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return train if isinstance(train, dict) else None


def _check_size(name: str, value: Any) -> None:
    """Raises OptionError where a number is none that a run can count with: every wait has an end."""
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"--{name}={value}; give a finite number")
    most = _MOST_THREADS if name.endswith("_threads") else _MOST
    if isinstance(value, int) and value > most:
        raise OptionError(f"--{name}={value} is too large; the most is {most}")


_MOST = 2**63 - 1
_MOST_THREADS = 4096
_ABOVE_0 = ("learning_rate", "report_secs", "start_timeout_secs", "stall_timeout_secs", "heartbeat_timeout_secs")
_AT_LEAST = {
    "batch_size": 1,
    "num_epochs": 1,
    "max_steps": 1,
    "shard_examples": 0,
    "seed": 0,
    "save_checkpoint_secs": 0,
    "save_checkpoint_steps": 0,
    "keep_checkpoints": 1,
    "max_failed_saves": 1,
    "join_wait_secs": 0,
    "recover_timeout_secs": 0,
    "intra_op_threads": 0,
    "inter_op_threads": 0,
}
