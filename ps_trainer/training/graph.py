"""Assembles the graph of one worker: data, pull, model, gradient, push and apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import StoredState
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.data_source import Shard
from ps_trainer.disturbances.straggler import Straggler
from ps_trainer.disturbances.straggler import create as create_straggler
from ps_trainer.gradients.wire import Wire
from ps_trainer.store.base import Gradient, ParameterStore
from ps_trainer.store.trace import STAGE_DEVICES, ModelTrace, derive_seed
from ps_trainer.training import shard_reader
from ps_trainer.training.after_pushes import AfterPushes
from ps_trainer.training.components import Components
from ps_trainer.training.position import BatchCounter, create_position
from ps_trainer.training.push_counts import PushCounts
from ps_trainer.updates import exclusive
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.base import RuleContext, TrainStep
from ps_trainer.updates.push import Push


class TrainGraph(NamedTuple):
    """One worker's graph.

    Attributes:
        graph: the graph.
        current_step: int64 scalar, global_step at present.
        loss: float scalar on the worker, of the step's own batch.
        step: the step as the update rule builds it.
        fetches: for each phase what a step runs: global_step, staleness, loss, times, counts, and ops. The times,
            seconds since the epoch, are empty unless steps are logged: gradient held, update made (`step_log.py`). The
            counts are what `PushCounts.build` gives; empty without `worker_state`.
        join_ops: ops to run one after the other, once per worker, before the first step.
        store: the parameters.
        state: what a checkpoint holds.
        worker_state: variables of this worker that are saved beside the checkpoints.
        push_counts: of the pushes to which they belong; None where there are none.
        after_pushes: what they were after this worker's last pushes; None where there are none.
        sent_bytes: bytes that this worker has pushed, as computed; int64 scalar.
        model_trace: the model's variables and their initial values.
        init_state_op: initialises the rule's own state on the ps tasks; for the chief.
        free_op: frees the variables that the run keeps on the ps tasks; for the chief, at the end.
        begin_data_op: makes the input begin where this worker goes on reading; to be run when its state is restored,
            before its first step.
        count_exchanged_op: counts the step's batch, to be run when the rule's exchange has taken it in; None where the
            step counts, or `publish_counts_op` does.
        publish_counts_op: counts what the rule's exchange has taken in, for the chief to run before it saves; None
            where each worker counts.
        scaffold: for `MonitoredTrainingSession`; initialises only what is local to this worker.
        straggler: what delays this worker's steps, if anything; to be started before the first one.
        shard_reader: asks for this worker's shards, where they are dealt out as the run goes; to be connected before
            the session is opened.
    """

    graph: tf.Graph
    current_step: tf.Tensor
    loss: tf.Tensor
    step: TrainStep
    fetches: list
    join_ops: list
    store: ParameterStore
    state: StoredState
    worker_state: list[tf.Variable]
    push_counts: PushCounts | None
    after_pushes: AfterPushes | None
    sent_bytes: tf.Tensor
    model_trace: ModelTrace
    init_state_op: tf.Operation
    free_op: tf.Operation
    begin_data_op: tf.Operation
    count_exchanged_op: tf.Operation | None
    publish_counts_op: tf.Operation | None
    scaffold: tf.train.Scaffold
    straggler: Straggler | None
    shard_reader: shard_reader.ShardReader | None


def build(
    components: Components,
    cluster: ClusterConfig,
    config: TrainConfig,
    run_id: str,
    *,
    start: str = "",
    joining: int = 1,
    shard_record: Mapping[str, Any] | None = None,
) -> TrainGraph:
    """Builds the graph.

    Args:
        components: of the run.
        cluster: gives the place of this worker, which trains.
        config: the run.
        run_id: names the container that holds all that the run has on the ps tasks.
        start: names this start of the worker, so that it does not draw the random numbers of its first steps again
            (dropout, masks, negative samples); empty for the first one, in a run from step 0.
        joining: see `RuleContext`.
        shard_record: see `shards.plan_of`.
    """
    graph = tf.Graph()
    group = group_of(cluster, components.num_stages)
    cluster = group.cluster
    with graph.as_default(), graph.container(run_id):
        tf.set_random_seed(config.seed)
        store = components.create_store(group, config)
        plan = shard_reader.plan_of(components.dataset, config, cluster.num_workers, shard_record)
        reader = shard_reader.ShardReader(plan) if plan is not None else None
        if plan is not None:
            counts, amount = shard_reader.create_counts(plan, store.ps_device(0)), 1
        else:
            counts, amount = [create_position(cluster.num_workers, store.ps_device(0))], config.batch_size
        counter = BatchCounter(counts[0].variable, amount, store)
        with tf.device(cluster.device):
            iterator = _iterator(components, cluster, config, reader, counter)
        model_trace = components.trace_model()
        store.create(model_trace, components.optimizers.index_of)
        with tf.device(cluster.device):
            place, batch = ([cluster.worker_index], iterator.get_next()) if reader is None else iterator.get_next()
            if components.num_stages > 1:
                tf.get_collection_ref(STAGE_DEVICES).extend(group.devices)
            # Data keep the run's seed: all workers deal out one order. Initial values come from the trace.
            tf.set_random_seed(_model_seed(config.seed, cluster.worker_index, start))
            with tf.variable_scope("", custom_getter=store.model_getter):
                output = components.model.build(batch, training=True)
        gradients = store.gradients(output.loss)
        straggler = _straggler(components, cluster, config, run_id)
        if straggler is not None:
            gradients = straggler.hold_back(gradients)
        applier = Applier(store, components.optimizers, components.schedule)
        push = Push(store, _wire(components, cluster, config, store))
        context = RuleContext(
            cluster.num_workers,
            cluster.worker_index,
            cluster.is_chief,
            config.max_steps,
            applier,
            push,
            run_id,
            joining,
        )
        step = components.rule.build(store, gradients, context)
        count_ops = counter.build(step, place, tf.nest.flatten(batch)[0])
        # Shards that are dealt out as the run goes may be another worker's when this one takes up its state.
        worker_state = [*step.worker_state, *push.state, *(counter.saved(step) if reader is None else [])]
        push_counts = after_pushes = None
        if worker_state:
            after_pushes = AfterPushes(worker_state)
            push_counts = PushCounts(
                cluster.num_workers,
                cluster.worker_index,
                store.ps_device(0),
                is_in_lockstep=step.exchange is not None,
            )
            counts = [*counts, push_counts.count]
        has_exchange = step.exchange is not None
        return TrainGraph(
            graph=graph,
            current_step=store.clocks[0].read_value(),
            loss=output.loss,
            step=step,
            fetches=_fetches(
                store, step, output.loss, gradients if config.step_log else None, count_ops, push_counts, after_pushes
            ),
            store=store,
            state=StoredState(store, applier.slots, counts),
            model_trace=model_trace,
            worker_state=worker_state,
            push_counts=push_counts,
            after_pushes=after_pushes,
            sent_bytes=push.sent_bytes.read_value(),
            join_ops=_join_ops(store, step),
            init_state_op=tf.group(tf.variables_initializer(list(step.state)), *exclusive.initializers()),
            free_op=_free(tf.global_variables()),
            begin_data_op=iterator.initializer,
            count_exchanged_op=counter.count_exchanged() if has_exchange and reader is not None else None,
            publish_counts_op=counter.publish(step.exchange) if has_exchange and reader is None else None,
            scaffold=_scaffold(store),
            straggler=straggler,
            shard_reader=reader,
        )


def _model_seed(seed: int, worker_index: int, start: str) -> int:
    """The graph's seed for the model's ops: the run's own for a worker 0 that starts at step 0."""
    return derive_seed(seed, f"worker {worker_index} {start}") if worker_index or start else seed


def _straggler(components: Components, cluster: ClusterConfig, config: TrainConfig, run_id: str) -> Straggler | None:
    return create_straggler(
        components.stragglers,
        seed=config.seed,
        worker_index=cluster.worker_index,
        device=cluster.device,
        container=run_id,
    )


def _wire(components: Components, cluster: ClusterConfig, config: TrainConfig, store: ParameterStore) -> Wire:
    return Wire(
        components.transforms,
        num_workers=cluster.num_workers,
        worker_index=cluster.worker_index,
        worker_device=cluster.device,
        ps_device=store.ps_device,
        seed=config.seed,
    )


def _fetches(
    store: ParameterStore,
    step: TrainStep,
    loss: tf.Tensor,
    timed: Sequence[Gradient] | None,
    count_ops: Sequence[Sequence[tf.Operation]],
    push_counts: PushCounts | None,
    after_pushes: AfterPushes | None,
) -> list[list]:
    """See `TrainGraph.fetches`; `timed` are the gradients whose time is wanted, `count_ops` are for each phase."""
    fetches = []
    with tf.device(store.worker_device):
        computed = _time_after([gradient.value for gradient in timed]) if timed is not None else None
        for phase, count in zip(step.phases, count_ops, strict=True):
            times = [] if computed is None else [computed, _time_after([phase.global_step])]
            if store.keeps_replica:
                pull_ops = []
            elif phase.applied is None:
                pull_ops = store.build_hold()
            else:
                snapshot = store.read(phase.applied) if phase.pulled is None else store.joined(phase.pulled)
                pull_ops = store.build_pull(snapshot, step.on_pull)
            targets = [*phase.targets, *pull_ops, *count]
            if not phase.is_local:
                targets += tf.get_collection(tf.GraphKeys.UPDATE_OPS)
            counts = push_counts.build(phase) if push_counts is not None else []
            if counts:
                targets.append(after_pushes.build([phase.global_step, phase.staleness, loss, *targets]))
            fetches.append([phase.global_step, phase.staleness, loss, times, counts, targets])
    return fetches


def _time_after(values: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """The time, in seconds since the epoch, at which all values are there."""
    with tf.control_dependencies([getattr(value, "values", value) for value in values]):
        return tf.timestamp()


def _join_ops(store: ParameterStore, step: TrainStep) -> list[tf.Operation]:
    ops = [step.join_op] if step.join_op is not None else []
    with tf.device(store.worker_device):
        return ops if store.keeps_replica else [*ops, store.build_prime(step.on_pull)]


def _iterator(
    components: Components,
    cluster: ClusterConfig,
    config: TrainConfig,
    reader: shard_reader.ShardReader | None,
    counter: BatchCounter,
) -> tf.data.Iterator:
    if reader is not None:
        examples = components.dataset.train_leased(reader.leases(), reader.plan)
    else:
        examples = components.dataset.train(
            shard=Shard(cluster.worker_index, cluster.num_workers),
            batch_size=config.batch_size,
            seed=config.seed,
            num_epochs=config.num_epochs,
            start=counter.start(cluster.worker_index),
        )
    options = tf.data.Options()
    # The thread that tunes a pipeline may miss its cancellation (TensorFlow tells it before it marks it), and then
    # sleeps on for up to a minute, in which the session cannot be closed. Untuned, `AUTOTUNE` means all of the threads.
    options.autotune.enabled = False
    return tf.data.make_initializable_iterator(examples.with_options(options))


def _free(variables: Sequence[tf.Variable]) -> tf.Operation:
    """Destroys variables, where `tf.Session.reset` would close every session on the ps task as well.

    Queues and accumulators stay: to destroy one on which a cancelled op still waits crashes the ps task.
    """
    destroy_ops = []
    for variable in variables:
        with tf.device(variable.device):
            destroy_ops.append(tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True))
    return tf.group(*destroy_ops)


def _scaffold(store: ParameterStore) -> tf.train.Scaffold:
    """The chief has initialised or restored what is on the ps tasks before any worker opens its session."""
    local_init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    return tf.train.Scaffold(
        init_op=tf.no_op(),
        ready_op=tf.constant([], tf.string),
        ready_for_local_init_op=tf.constant([], tf.string),
        local_init_op=local_init_op,
        summary_op=tf.constant(b""),
        # Checkpoints are ours; without this, a saver over all variables would be added to the graph.
        saver=tf.train.Saver([store.clocks[0]], sharded=False),
    )
