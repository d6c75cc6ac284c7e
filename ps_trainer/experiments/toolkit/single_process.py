"""Training in one process, without ps tasks or a server: the loop that a user of TensorFlow 1 writes on one machine.

    python -m ps_trainer.experiments.toolkit.single_process CONFIG.json STEPS.jsonl

Model, data, initial values, optimizer and schedule equal those of a cluster's run with the same settings.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, RunError
from ps_trainer.launch import tail
from ps_trainer.launch.command import cpu_environment

_LOG_LINES = 40


def config_of(settings: Mapping[str, Any]) -> TrainConfig:
    """The run's configuration from JSON values of its fields.

    Raises:
        OptionError: A value is out of range, or `max_steps` is None although only it ends the loop here.
        UnknownNameError: A component is not registered.
    """
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    config = TrainConfig(**fields)
    config.check()
    if config.max_steps is None:
        raise OptionError("max_steps=None: training in one process ends by its steps alone; give a number")
    return config


def train_in_child(settings: Mapping[str, Any], folder: pathlib.Path, deadline_secs: float) -> list[dict[str, Any]]:
    """Trains in a process of its own, so that no state of an earlier training remains.

    Args:
        settings: Fields of `TrainConfig`.
        folder: Existing folder for configuration, steps and output.
        deadline_secs: Time limit.

    Returns:
        A record per step, as `train` gives it.

    Raises:
        RunError: The process failed or was too slow; the message holds the end of the output.
    """
    config_path, steps_path, output = folder / "config.json", folder / "steps.jsonl", folder / "output.txt"
    config_path.write_text(json.dumps(config_of(settings).to_json(), indent=2) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "ps_trainer.experiments.toolkit.single_process", str(config_path), str(steps_path)]
    with output.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                env=cpu_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=deadline_secs,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"not done after {deadline_secs:g} s\n{_end_of(output)}") from error
    if done.returncode:
        raise RunError(f"exit code {done.returncode}\n{_end_of(output)}")
    with steps_path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Trains in this process for `max_steps`; yields a record per step as soon as it is made.

    A record has the fields of `training/step_log.py` that apply here: local_step, t_start, t_end (seconds,
    monotonic), wall_time, loss (of the step's own batch, before its update). Settings of clusters have no effect.
    """
    import tensorflow.compat.v1 as tf

    graph, iterator, loss, train_op = _build(config)
    with tf.Session(graph=graph, config=_session_config(config)) as session:
        with graph.as_default():
            session.run([tf.global_variables_initializer(), iterator.initializer])
        step = session.make_callable([loss, train_op])
        for number in range(1, (config.max_steps or 0) + 1):
            started = time.monotonic()
            loss_v, _ = step()
            ended = time.monotonic()
            yield {
                "local_step": number,
                "t_start": started,
                "t_end": ended,
                "wall_time": time.time(),
                "loss": float(loss_v),
            }


def main(argv: Sequence[str]) -> None:
    """Trains by a configuration file; writes the steps after the last one."""
    from ps_trainer.runtime import environment

    environment.prepare(is_ps=False)
    config_path, steps_path = map(pathlib.Path, argv)
    config = config_of(json.loads(config_path.read_text(encoding="utf-8")))

    import tensorflow.compat.v1 as tf

    # TensorFlow takes thread counts from the process's first device. A graph with a dataset already makes one.
    # With other threads a product of large matrices is summed in another order, and its last bit differs.
    tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(config.inter_op_threads)
    lines = [json.dumps(record) for record in train(config)]
    steps_path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _build(config: TrainConfig) -> tuple[Any, Any, Any, Any]:
    """Graph, iterator, loss and train op."""
    import tensorflow.compat.v1 as tf

    from ps_trainer.data.pipeline.data_source import Shard
    from ps_trainer.store.trace import seeded_getter

    model = component_tables.MODELS.create(config.model, config.model_option)
    dataset = component_tables.DATASETS.create(config.dataset, config.dataset_option, data_dir=config.data_dir)
    schedule = component_tables.SCHEDULES.create(config.schedule, config.schedule_option)
    optimizers = component_tables.OPTIMIZERS.create(config.optimizer, config.optimizer_option)
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(config.seed)
        examples = dataset.train(
            shard=Shard(0, 1), batch_size=config.batch_size, seed=config.seed, num_epochs=config.num_epochs
        )
        iterator = tf.data.make_initializable_iterator(examples)
        with tf.variable_scope("", custom_getter=seeded_getter(config.seed), use_resource=True):
            loss = model.build(iterator.get_next(), training=True).loss
            global_step = tf.train.create_global_step()
        clock = global_step.read_value()
        optimizer = optimizers.create(schedule.build(config.learning_rate, clock), clock)
        train_op = optimizer.minimize(loss, global_step=global_step)
    return graph, iterator, loss, train_op


def _session_config(config: TrainConfig) -> Any:
    """The cluster's settings: equal thread counts and an unoptimized graph, so that the same kernels run."""
    import tensorflow.compat.v1 as tf

    session_config = tf.ConfigProto(
        intra_op_parallelism_threads=config.intra_op_threads, inter_op_parallelism_threads=config.inter_op_threads
    )
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    return session_config


def _end_of(output: pathlib.Path) -> str:
    return "\n".join([f"--- the end of {output}", *tail.last_lines(output, _LOG_LINES)])


if __name__ == "__main__":
    main(sys.argv[1:])
