"""Oracle: the training loop that a user of TensorFlow 1 writes on one machine, without any part of the runtime.

Model, data, initial values, optimizer and schedule equal those of a run with the same settings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.store.trace import seeded_getter


def config_of(settings: Mapping[str, Any]) -> TrainConfig:
    """The run's configuration from JSON values of its fields."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    config = TrainConfig(**fields)
    config.check()
    return config


def train(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Trains in this process for `max_steps`; yields a record per step as soon as it is made.

    A record has some fields of `StepRecord`: local_step, t_start, t_end (seconds, monotonic), wall_time, loss (of the
    batch, before its update).
    """
    graph, iterator, loss, train_op = _build(config)
    session_config = tf.ConfigProto()
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Session(graph=graph, config=session_config) as session:
        with graph.as_default():
            session.run([tf.global_variables_initializer(), iterator.initializer])
        step = session.make_callable([loss, train_op])
        for number in range(1, (config.max_steps or 0) + 1):
            started = time.monotonic()
            loss_v, _ = step()
            yield {
                "local_step": number,
                "t_start": started,
                "t_end": time.monotonic(),
                "wall_time": time.time(),
                "loss": float(loss_v),
            }


def _build(config: TrainConfig) -> tuple[Any, Any, Any, Any]:
    """Graph, iterator, loss and train op."""
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
