"""`TrainConfig`: a whole training run as data.

This file alone lists the settings of a run, each with default and help text. `ps_trainer.cli.flags` makes the
command line's flags from these fields, and `<logdir>/config.json` holds their values. A setting of a single component
(an update rule, an optimizer …) is an option of that component: `--<component>_option key=value`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

from ps_trainer import component_tables, options, target_metric
from ps_trainer.errors import OptionError
from ps_trainer.options import option, repeatable
from ps_trainer.registry import split_inline

# The launcher sets this environment variable to its pid; a task ends when the process with that pid has ended.
PARENT_PID_VARIABLE = "PS_TRAINER_PARENT_PID"

SHARDINGS = ("static", "dynamic")
PULL_DTYPES = ("float32", "bfloat16", "float16")
MODEL_PARALLEL = "model_parallel"
COLOCATED = "colocated"
PLACEMENTS = ("data_parallel", MODEL_PARALLEL, COLOCATED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Model, data, update rule, length and surroundings of a training run.

    `*_option` fields hold `key=value` strings. Names contain the unit. Call `check` before use. Each field says why all
    workers must have the same value (`shared`), or why each may have its own (`own`).
    """

    model: str = option(
        "cnn",
        "model to train: a registered name or package.module:Class",
        shared="the workers train one set of variables",
    )
    model_option: tuple[str, ...] = repeatable(
        "option of the model, as key=value", shared="the workers train one set of variables"
    )
    preset: str | None = option(
        None,
        "named settings from the model's publication, e.g. paper; flags override them; `ps_trainer list MODEL` prints"
        " them",
        shared="the workers train one set of variables with one optimizer",
    )
    dataset: str = option("digits", "data to train and test on", shared="each worker has its part of one data set")
    dataset_option: tuple[str, ...] = repeatable(
        "option of the dataset, as key=value", shared="each worker has its part of one data set, read in one way"
    )
    data_dir: str | None = option(
        None,
        "folder with the files of the dataset, if it reads any",
        own="each machine may keep the files in another folder",
    )
    batch_size: int = option(
        32,
        "examples per step and worker",
        least=1,
        shared="an average of gradients counts each worker's batch alike, and learning rates are per batch",
    )
    devices_per_worker: int = option(
        1,
        "devices in each worker, which share its batch: GPUs, or logical CPUs where there is no GPU",
        least=1,
        most=64,
        own="the gradient of a batch is the same up to rounding, however many devices compute it",
    )
    num_epochs: int | None = option(
        None,
        "passes of each worker over its shard; none = train until max_steps",
        least=1,
        shared="the workers read every example equally often",
    )
    max_steps: int | None = option(
        1000,
        "global_step at which training ends; none = train until the data end",
        least=1,
        shared="all workers end at the same step",
    )

    target_metric: str | None = option(
        None,
        "stop when a test metric reaches a bound, e.g. accuracy>=0.97; evaluated at every checkpoint",
        own="the chief evaluates, and tells the other workers",
    )

    sharding: str = option(
        "static",
        "static: each worker reads a fixed part of the data; dynamic: workers take small shards, so that none is lost",
        choices=SHARDINGS,
        shared="all workers must divide the examples in the same way",
    )
    shard_examples: int = option(
        0,
        "maximum number of examples in a dynamic shard; 0 = an eighth of a worker's share",
        least=0,
        shared="all workers must cut the same shards",
    )

    update: str = option("async", "update rule", shared="all workers must push, wait and average by the same rule")
    update_option: tuple[str, ...] = repeatable(
        "option of the update rule, as key=value", shared="all workers must push, wait and average by the same rule"
    )
    gradient_transform: tuple[str, ...] = repeatable(
        "transform of gradients before they are sent, as name:key=value,…; repeat the flag to chain several",
        shared="the ps tasks decode what the workers encode",
    )
    pull_dtype: str = option(
        "float32",
        "number type in which parameters are sent to the workers",
        choices=PULL_DTYPES,
        shared="all workers must round the parameters equally",
    )
    optimizer: str = option(
        "sgd",
        "optimizer that the ps tasks run; a model may have its own defaults, which `ps_trainer list MODEL` prints",
        shared="the ps tasks apply all gradients with one optimizer",
    )
    optimizer_option: tuple[str, ...] = repeatable(
        "option of the optimizer, as key=value", shared="the ps tasks apply all gradients with one optimizer"
    )
    optimizer_for: tuple[str, ...] = repeatable(
        "optimizer for the variables whose names match, as pattern=name:key=value,…; learning_rate is also a key",
        shared="the ps tasks apply all gradients with one optimizer",
    )
    learning_rate: float = option(
        0.1, "learning rate, before the schedule", above=0, shared="the ps tasks apply all gradients at one rate"
    )
    schedule: str = option(
        "constant", "learning-rate schedule over global_step", shared="the ps tasks apply all gradients at one rate"
    )
    schedule_option: tuple[str, ...] = repeatable(
        "option of the schedule, as key=value", shared="the ps tasks apply all gradients at one rate"
    )
    placement: str = option(
        "data_parallel",
        "data_parallel: each worker computes the whole model; model_parallel: a group of workers, one stage each;"
        " colocated: as data_parallel, and the workers hold the parameters, without ps tasks",
        choices=PLACEMENTS,
        shared="it decides which workers train, compute a stage for another worker, or hold parameters",
    )
    layout: str = option(
        "packed", "layout of the parameters on the ps tasks", shared="it decides which ps task holds each parameter"
    )
    layout_option: tuple[str, ...] = repeatable(
        "option of the layout, as key=value", shared="it decides which ps task holds each parameter"
    )
    seed: int = option(
        0,
        "seed of initial values, data order and the model's random ops (each worker draws its own)",
        least=0,
        shared="all workers must use the same order of the data, and a run must be repeatable",
    )

    init_from: str | None = option(
        None,
        "checkpoint, or folder of checkpoints, that initialises variables of the same name and shape in a new run",
        own="the chief sets the initial values",
    )
    logdir: str | None = option(
        None,
        "folder for checkpoints, metrics and summary; none = write no files",
        own="each worker writes to its own disk",
    )
    save_checkpoint_secs: float = option(
        60.0,
        "seconds between checkpoints; 0 = use save_checkpoint_steps only",
        least=0,
        own="the chief saves checkpoints",
    )
    save_checkpoint_steps: int = option(
        0,
        "global steps between checkpoints; 0 = use save_checkpoint_secs only",
        least=0,
        own="the chief saves checkpoints",
    )
    keep_checkpoints: int = option(
        5, "number of checkpoints to keep", least=1, own="it concerns this worker's own disk"
    )
    max_failed_saves: int = option(
        3,
        "consecutive failed saves after which the run fails; earlier failures only warn",
        least=1,
        own="it concerns the chief's disk",
    )
    report_secs: float = option(
        5.0,
        "seconds between two reports of a worker (log and metrics)",
        above=0,
        own="it concerns this worker's own log",
    )
    eval_examples: int | None = option(
        None,
        "test examples of an evaluation, spread over all; none = all, or as many as fit into a minute or into the time"
        " of the training, whichever is longer",
        least=1,
        own="only the chief and the evaluators evaluate",
    )
    step_log: bool = option(
        False, "write one line per step of each worker to <logdir>/steps", own="it concerns this worker's own log"
    )
    straggler: tuple[str, ...] = repeatable(
        "delay between pull and push of each step, as name:key=value,…; the last one that matches a worker counts;"
        " paced=true counts the delay from the start of the step, so that it contains the computation",
        own="a delay changes no gradient, and machines differ in speed",
    )
    hook: tuple[str, ...] = repeatable(
        "tf.train.SessionRunHook to add to every worker, as package.module:Class",
        own="a hook may observe a single worker",
    )

    start_timeout_secs: float = option(
        300.0,
        "seconds that a task waits for the other tasks to start",
        above=0,
        own="each task may wait for its own length of time; the result is the same",
    )
    join_wait_secs: float = option(
        30.0,
        "seconds that the first step waits for all workers; then async starts without the missing ones",
        least=0,
        own="each task may wait for its own length of time; the result is the same",
    )
    stall_timeout_secs: float = option(
        600.0,
        "seconds without a completed step after which a task fails",
        above=0,
        own="each task may wait for its own length of time; the result is the same",
    )
    heartbeat_timeout_secs: float = option(
        30.0,
        "seconds of silence after which a task counts as lost, although its port accepts connections",
        above=0,
        own="each task may wait for its own length of time; the result is the same",
    )
    watch_secs: float = option(
        0.25,
        "seconds between two questions of a worker to each ps task about the job; many workers need fewer questions",
        least=0.05,
        most=1.0,
        own="each task may ask as often as it likes; the result is the same",
    )
    recover_timeout_secs: float = option(
        120.0,
        "seconds to wait for the restart of a lost task; 0 = fail at once; --max_restarts or your supervisor starts it",
        least=0,
        own="each task may wait for its own length of time; the result is the same",
    )
    isolation: str | None = option(
        None,
        "what keeps strangers away from the tasks' ports, e.g. a firewall; silences the warning about open ports",
        own="it concerns this machine's ports",
    )
    steps_per_call: int = option(
        0,
        "steps that a worker makes in one call of TensorFlow, which costs less per step; 0 = up to 50 where the"
        " update rule and the hooks allow it; 1 = each step is a call",
        least=0,
        most=10_000,
        own="a call makes the same steps, however many are in it",
    )
    intra_op_threads: int = option(
        0,
        "threads inside one TensorFlow op; 0 = number of cores / tasks on this host",
        least=0,
        most=4096,
        own="it concerns this machine's cores",
    )
    inter_op_threads: int = option(
        0,
        "TensorFlow ops that run at the same time; 0 = number of cores / tasks on this host, but at least 2",
        least=0,
        most=4096,
        own="it concerns this machine's cores",
    )
    grappler: bool = option(
        False,
        "let TensorFlow's graph optimizer rewrite this worker's graph: a longer start, and other last bits of losses",
        own="each worker computes the same, but for rounding",
    )

    def check(self, *, has_batch_size: bool = True) -> None:
        """Checks values and names without importing TensorFlow.

        Args:
            has_batch_size: Whether `batch_size` is final; otherwise a default of the model may take its place.

        Raises:
            OptionError: A value is out of range, or the run would never end.
            UnknownNameError: A component is not registered.
        """
        options.check(self)
        component_tables.MODELS.check(self.model)
        component_tables.DATASETS.check(self.dataset)
        component_tables.UPDATES.check(self.update)
        component_tables.OPTIMIZERS.check(self.optimizer)
        for text in self.optimizer_for:
            component_tables.OPTIMIZERS.check(split_inline(text.partition("=")[2])[0], "--optimizer_for")
        component_tables.SCHEDULES.check(self.schedule)
        component_tables.LAYOUTS.check(self.layout)
        for transform in self.gradient_transform:
            component_tables.GRADIENT_TRANSFORMS.check(split_inline(transform)[0])
        if self.shard_examples and self.sharding != "dynamic":
            raise OptionError(f"--shard_examples={self.shard_examples} needs --sharding=dynamic; add that flag")
        for spec in self.straggler:
            component_tables.DELAYS.check(split_inline(spec)[0])
        for name in self.hook:
            component_tables.HOOKS.check(name)
        if self.target_metric is not None:
            target_metric.parse(self.target_metric)
        self._check_devices(has_batch_size=has_batch_size)
        if self.max_steps is None and self.num_epochs is None:
            raise OptionError("--max_steps=none and --num_epochs=none: the run would never end; set one of them")

    def _check_devices(self, *, has_batch_size: bool) -> None:
        devices = self.devices_per_worker
        if devices == 1:
            return
        if has_batch_size and self.batch_size % devices:
            fitting = [self.batch_size // devices * devices, (self.batch_size // devices + 1) * devices]
            sizes = " or ".join(f"--batch_size={size}" for size in fitting if size)
            raise OptionError(
                f"--devices_per_worker={devices}: --batch_size={self.batch_size} is not a multiple of it; give {sizes}"
            )
        if self.sharding == "dynamic":
            raise OptionError(
                f"--devices_per_worker={devices} --sharding=dynamic: the last batch of a shard may be smaller, and"
                " cannot be divided; use --sharding=static, or one device"
            )
        if self.placement == MODEL_PARALLEL:
            raise OptionError(
                f"--devices_per_worker={devices} --placement=model_parallel: a worker computes one stage on one device;"
                " use --placement=data_parallel, or one device"
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return dataclasses.asdict(self)

    @property
    def checkpoint_dir(self) -> pathlib.Path | None:
        """Folder of the checkpoints, or None without a logdir."""
        return pathlib.Path(self.logdir) / "checkpoints" if self.logdir else None

    @property
    def has_own_class(self) -> bool:
        """Whether the run names a class of the user's own, as `module:Class`."""
        names = (self.model, self.dataset, self.update, self.optimizer, self.schedule, self.layout, *self.hook)
        return any(":" in name for name in names)

    @property
    def lacks_data_dir(self) -> bool:
        """Whether the dataset needs `--data_dir` and it is not given, or it is given and is not a folder here."""
        if self.data_dir is None:
            return self.dataset in component_tables.DATASETS_OF_FILES
        return not pathlib.Path(self.data_dir).is_dir()

    def agreement(self) -> dict[str, Any]:
        """Returns the settings that must be the same for every worker of a job, as JSON values."""
        shared = [field.name for field in dataclasses.fields(self) if "shared" in field.metadata]
        # JSON turns tuples into lists. The settings of another task arrive as JSON, and must compare as equal.
        return json.loads(json.dumps({name: getattr(self, name) for name in shared}))
