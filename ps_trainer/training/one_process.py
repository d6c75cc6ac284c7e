"""Trains in one process, without ps tasks, server or port: the chief's own loop, on parameters in its own memory.

The process is a chief whose sessions (`alone_sessions.py`) and control plane (`runtime/alone_control.py`) need no
server. Graph, step loop, checkpoints, metrics and summary are those of a cluster's chief. With the same threads, the
loss of each step equals the loss of one worker with one ps task to the last bit.

`ps_trainer local --num_ps=0 --num_workers=1` trains so in a child process. From Python, in the calling process:

    config = TrainConfig(model="mlp", max_steps=200, logdir="runs/alone")
    config.check()
    result = one_process.train(config)                             # components by the names in the config
    result = one_process.train(config, create=lambda: components.load(config, 1)._replace(model=MyModel()))
    result.summary.metrics, result.values["global_step"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import logging

from ps_trainer.cluster import one_process
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import RunError
from ps_trainer.runtime.job_runner import StopRequest, run_inside
from ps_trainer.training import alone_sessions
from ps_trainer.training import components as components_lib
from ps_trainer.training.chief import Chief, check_as_chief
from ps_trainer.training.components import Components
from ps_trainer.training.run_summary import RunSummary
from ps_trainer.training.worker_progress import StepObserver


class OneProcessResult(NamedTuple):
    """Result of a run that is done.

    Attributes:
        summary: Content of summary.json.
        values: Model variables, slots and global_step by name.
    """

    summary: RunSummary
    values: dict[str, np.ndarray]


def train(
    config: TrainConfig, *, create: Callable[[], Components] | None = None, stop: StopRequest | None = None
) -> OneProcessResult:
    """Trains in this process until the run ends.

    Any thread may call it, and it sets no signal handlers. Ctrl-C in the main thread saves a checkpoint and raises
    `Interrupted`. Every run builds its own graph, so a process may train several times, one run after the other.

    Args:
        config: Settings of the run, checked by `config.check()`.
        create: Function that creates the components; None = those that `config` names. It is called after the numbers
            of threads are set, because the first dataset of a process fixes them.
        stop: Stop request; `stop.request(Interrupted(signal.SIGTERM))` from another thread ends the run.

    Raises:
        UsageError: The settings are wrong, or need a cluster.
        PsTrainerError: The run failed.
        Interrupted: The run was asked to stop, and has saved a checkpoint.
    """
    prepare(config)
    chief = create_chief(config, create() if create is not None else components_lib.load(config, 1))
    run_inside(chief.work, stop)
    if chief.summary is None:
        raise RunError("the run ended without a summary")
    return OneProcessResult(chief.summary, chief.final_values)


def prepare(config: TrainConfig) -> None:
    """Checks that one process can train with these settings, and sets the threads of this process.

    Raises:
        OptionError: A setting needs a ps task or other workers.
    """
    one_process.check(config)
    alone_sessions.use_threads(one_process.describe(), config)


def create_chief(config: TrainConfig, components: Components, *, observer: StepObserver | None = None) -> Chief:
    """Creates the chief of a run in this process.

    Args:
        config: Settings of the run.
        components: Components of the run.
        observer: Object that follows the steps; None = no object.

    Raises:
        UsageError: The data are too few, the target metric does not exist, or the checkpoints cannot be continued.
    """
    if isinstance(components.dataset, DataSource):
        components.dataset.check_shard(Shard(0, 1), config.batch_size)
    check_as_chief(config, components)
    if (advice := components_lib.advice(components)) is not None:
        logging.warning("%s", advice)
    return Chief(one_process.describe(), config, components, None, observer=observer)
