"""Assembles the graph of one worker: data, pull, model, gradient, push and apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.data.base import Shard
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.state import StoredState
from ps_trainer.store.trace import ModelTrace, trace
from ps_trainer.training.components import Components
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.base import RuleContext, TrainStep


class TrainGraph(NamedTuple):
    """One worker's graph.

    Attributes:
        graph: the graph.
        current_step: int64 scalar, global_step at present.
        loss: float scalar on the worker, of the step's own batch.
        step: the step's nodes.
        fetches: what a step runs: global_step, staleness, loss, and ops.
        join_ops: ops to run one after the other, once per worker, before the first step.
        store: the parameters.
        state: what a checkpoint holds.
        model_trace: the model's variables and their initial values.
        init_state_op: initialises the rule's own state on the ps tasks; for the chief.
        free_op: frees the variables that the run keeps on the ps tasks; for the chief, at the end.
        scaffold: for `MonitoredTrainingSession`; initialises only what is local to this worker.
    """

    graph: tf.Graph
    current_step: tf.Tensor
    loss: tf.Tensor
    step: TrainStep
    fetches: list
    join_ops: list
    store: ParameterStore
    state: StoredState
    model_trace: ModelTrace
    init_state_op: tf.Operation
    free_op: tf.Operation
    scaffold: tf.train.Scaffold


def build(components: Components, cluster: ClusterConfig, config: TrainConfig, run_id: str) -> TrainGraph:
    """Builds the graph.

    Args:
        components: of the run.
        cluster: gives this worker's place.
        config: the run.
        run_id: names the container that holds all that the run has on the ps tasks.
    """
    graph = tf.Graph()
    with graph.as_default(), graph.container(run_id):
        tf.set_random_seed(config.seed)
        store = components.create_store(cluster)
        with tf.device(cluster.device):
            iterator = _iterator(components, cluster, config)
        model_trace = trace(lambda: components.model.build(_placeholders(iterator), training=True), config.seed)
        store.create(model_trace)
        with tf.device(cluster.device):
            batch = iterator.get_next()
            with tf.variable_scope("", custom_getter=store.model_getter):
                output = components.model.build(batch, training=True)
        gradients = store.gradients(output.loss)
        applier = Applier(store, components.optimizer, components.schedule, config.learning_rate)
        context = RuleContext(cluster.num_workers, cluster.worker_index, cluster.is_chief, config.max_steps, applier)
        step = components.rule.build(store, gradients, context)
        with tf.device(cluster.device):
            refill_ops = store.build_refill(step.applied)
        targets = [*step.targets, *refill_ops, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]
        return TrainGraph(
            graph=graph,
            current_step=store.clocks[0].read_value(),
            loss=output.loss,
            step=step,
            fetches=[step.global_step, step.staleness, output.loss, targets],
            store=store,
            state=StoredState(store, applier.slots),
            model_trace=model_trace,
            join_ops=[step.join_op, store.prime_op],
            init_state_op=tf.variables_initializer(list(step.state)),
            free_op=_free(tf.global_variables()),
            scaffold=_scaffold(store, iterator),
        )


def _iterator(components: Components, cluster: ClusterConfig, config: TrainConfig) -> tf.data.Iterator:
    examples = components.dataset.train(
        shard=Shard(cluster.worker_index, cluster.num_workers),
        batch_size=config.batch_size,
        seed=config.seed,
        num_epochs=config.num_epochs,
    )
    return tf.data.make_initializable_iterator(examples)


def _placeholders(iterator: tf.data.Iterator) -> dict[str, tf.Tensor]:
    return tf.nest.map_structure(lambda spec: tf.placeholder(spec.dtype, spec.shape), iterator.element_spec)


def _free(variables: Sequence[tf.Variable]) -> tf.Operation:
    """Destroys variables. (`tf.Session.reset` would, but closes every session on the ps task as well.)

    Queues and accumulators stay: to destroy one on which a cancelled op still waits crashes the ps task.
    """
    destroy_ops = []
    for variable in variables:
        with tf.device(variable.device):
            destroy_ops.append(tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True))
    return tf.group(*destroy_ops)


def _scaffold(store: ParameterStore, iterator: tf.data.Iterator) -> tf.train.Scaffold:
    """The chief has initialised or restored what is on the ps tasks before any worker opens its session."""
    local_init_op = tf.group(iterator.initializer, tf.local_variables_initializer(), tf.tables_initializer())
    return tf.train.Scaffold(
        init_op=tf.no_op(),
        ready_op=tf.constant([], tf.string),
        ready_for_local_init_op=tf.constant([], tf.string),
        local_init_op=local_init_op,
        summary_op=tf.constant(b""),
        # Checkpoints are ours; without this, a saver over all variables would be added to the graph.
        saver=tf.train.Saver([store.clocks[0]], sharded=False),
    )
