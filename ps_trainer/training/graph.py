"""Assembles the graph of one worker: input, pull, model, gradients, push and apply.

In this order, and by these modules:

    worker_input   the examples that this worker reads
    components     the model's variables, from one trace in a scratch graph
    store          the variables on the ps tasks, and the pull
    graph          the model, on the worker's batch and the pulled parameters; `device_parts` with several devices
    store          the gradients
    straggler      the injected delay, if any
    updates        push, apply, and the waits of the update rule
    batch_counter  the count of batches that are in an update
    step_fetches   the tensors and ops of one step
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.held_state import HeldState
from ps_trainer.checkpoints.stored_state import StoredState
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import WorkerGroup, group_of
from ps_trainer.config import TrainConfig
from ps_trainer.gradients.wire import Wire
from ps_trainer.runtime.run_record import Shards
from ps_trainer.runtime.server import compute_devices
from ps_trainer.store.base import ModelGetter, ParameterStore
from ps_trainer.store.devices import task_of
from ps_trainer.store.pieces import Gradient
from ps_trainer.store.table_lookups import TableLookups, are_by_batch
from ps_trainer.store.trace import STAGE_DEVICES, derive_seed
from ps_trainer.training.components import Components
from ps_trainer.training.graph_parts import (
    combined_rows,
    device_parts,
    look_ahead,
    next_rows,
    step_calls,
    step_fetches,
    worker_input,
)
from ps_trainer.training.graph_parts.after_pushes import AfterPushes
from ps_trainer.training.graph_parts.look_ahead import LookAhead, StepParts
from ps_trainer.training.graph_parts.multi_step_graph import MultiStepGraph
from ps_trainer.training.graph_parts.next_rows import NextRows
from ps_trainer.training.graph_parts.push_counts import PushCounts
from ps_trainer.training.graph_parts.step_calls import CallLimits
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from ps_trainer.training.graph_parts.straggler import Straggler
from ps_trainer.training.graph_parts.straggler import create as create_straggler
from ps_trainer.training.graph_parts.worker_input import WorkerInput
from ps_trainer.training.graph_parts.worker_state_saver import OwnVariables
from ps_trainer.training.train_graph import TrainGraph
from ps_trainer.updates import exclusive
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.base import RuleContext, TrainStep
from ps_trainer.updates.push import Push


def build(
    components: Components,
    cluster: ClusterConfig,
    config: TrainConfig,
    run_id: str,
    *,
    start: str = "",
    join_number: int = 1,
    shards: Shards | None = None,
    spans_hosts: bool = False,
) -> TrainGraph:
    """Builds the graph.

    Args:
        components: Components of the run.
        cluster: Cluster, with the place of this worker in it. The worker trains.
        config: Configuration of the run.
        run_id: Name of the container that holds everything that the run has on the ps tasks.
        start: Name of this start of the worker, so that it does not draw the random numbers of its first steps again
            (dropout, masks, negative samples). Empty for the first start of a run from step 0.
        join_number: Counts the times that this worker has joined the run: 1 or more, larger than at each earlier join.
        shards: Shard plan of the chief, as the run record has it; None on the chief.
        spans_hosts: Whether the tasks are on several hosts, as the run record has it.
    """
    graph = tf.Graph()
    # Each run has its own name: a late message of a run that was replaced then meets no variable of this one.
    with graph.as_default(), graph.container(run_id):
        tf.set_random_seed(config.seed)
        group = group_of(cluster, components.num_stages)
        assembly = _Assembly(
            components=components,
            group=group,
            trainer=group.trainers,
            config=config,
            run_id=run_id,
            start=start,
            join_number=join_number,
            store=components.create_store(group, config, spans_hosts=spans_hosts),
        )
        return assembly.build(shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Assembly:
    """Assembles the graph of one worker in the default graph.

    Attributes:
        components: Components of the run.
        group: Worker group for which this worker trains.
        trainer: Cluster of the workers that train, with this worker's place in it.
        config: Configuration of the run.
        run_id: Name of the run's container.
        start: Name of this start of the worker.
        join_number: Join number of this worker.
        store: Parameter store, still without variables.
    """

    components: Components
    group: WorkerGroup
    trainer: ClusterConfig
    config: TrainConfig
    run_id: str
    start: str
    join_number: int
    store: ParameterStore

    def build(self, shards: Shards | None) -> TrainGraph:
        components, store = self.components, self.store
        batches = worker_input.create(
            components.dataset, self.config, self.trainer, store, shards, in_pairs=self._may_look_ahead()
        )
        store.create(components.trace_model(), components.optimizers.index_of)
        with tf.device(self.trainer.device):
            position, batch = batches.next_batch(self.trainer.worker_index)
        loss, gradients = self._build_loss(batch)
        # The delay lies between gradient and push, where a slow machine would lose the time as well.
        straggler = self._create_straggler()
        if straggler is not None:
            gradients = straggler.hold_back(gradients)
        applier = Applier(store, components.optimizers, components.schedule)
        table_lookups = TableLookups(store.pieces, store.pull, self.trainer.device)
        push = Push(store, self._create_wire(), table_lookups)
        step = components.rule.build(store, gradients, self._create_context(applier, push))
        count_ops = batches.counter.build(step, position, tf.nest.flatten(batch)[0])
        # Under dynamic sharding another worker may read these batches before this worker restores its state.
        held = batches.counter.saved_variables(step) if batches.reader is None else []
        own_variables = self._create_own_variables([*step.worker_state, *push.state, *held], step)
        counts = [*batches.counts, own_variables.push_counts.count] if own_variables is not None else batches.counts
        initial = components.trace_model().initial_tensors() if self.trainer.is_chief else None
        state = StoredState(store, applier.slots, counts, initial)
        timed = gradients if self.config.step_log else None
        limits = step_calls.limits_of(self.config, components.rule, step, has_hooks=bool(components.hooks))
        fetches = step_fetches.build(store, step, loss, count_ops, timed=timed, own=own_variables)
        ahead, next_ops = self._look_ahead(batches, batch, table_lookups, push, step, fetches[0], limits)
        if next_ops is not None:
            fetches = [fetches[0]._replace(targets=[*fetches[0].targets, *next_ops.step_ops])]
        elif ahead is None:
            combined_rows.combine(store, table_lookups.first, push)
        begin_data_ops = [batches.iterator.initializer]
        if batches.has_pairs:  # the first pair has no batch
            begin_data_ops.append(tf.nest.flatten(batch)[0].op if next_ops is None else next_ops.first_op)
        return TrainGraph(
            graph=tf.get_default_graph(),
            step=step,
            store=store,
            current_step=store.clocks[0].read_value(),
            fetches=fetches,
            call=MultiStepGraph(fetches[0], self.trainer.device, ahead) if limits.steps > 1 else None,
            call_limits=limits,
            state=state,
            held_state=(
                HeldState(state, applier.undo_logs, self.config.heartbeat_timeout_secs)
                if self.trainer.is_chief
                else None
            ),
            model_trace=components.trace_model(),
            own_variables=own_variables,
            straggler=straggler,
            shard_reader=batches.reader,
            sent_bytes=push.sent_bytes.read_value(),
            join_ops=[*_join_ops(store, step), *([] if next_ops is None else [next_ops.clear_op])],
            init_state_op=tf.group(
                tf.variables_initializer([*step.state, *applier.undo_state]), *exclusive.initializers()
            ),
            # The logs, too: the run may have lost a ps task in the middle of a save.
            free_op=tf.group(_free(tf.global_variables()), *(log.clear() for log in applier.undo_logs.values())),
            begin_data_ops=begin_data_ops,
            count_exchanged_op=batches.count_exchanged_op(step),
            publish_counts_op=batches.publish_counts_op(step),
            scaffold=_create_scaffold(),
        )

    def _may_look_ahead(self) -> bool:
        """Returns whether a step could look up rows of the next one on another task, as far as this is known by now."""
        components, store = self.components, self.store
        holders = {store.ps_device(ps) for ps in range(store.num_ps)}
        return (
            not components.rule.acts_on_host
            and any(task_of(holder) != task_of(self.trainer.device) for holder in holders)
            and are_by_batch(components.trace_model())
        )

    def _look_ahead(
        self,
        batches: WorkerInput,
        batch: Any,
        table_lookups: TableLookups,
        push: Push,
        step: TrainStep,
        fetches: StepFetches,
        limits: CallLimits,
    ) -> tuple[LookAhead | None, NextRows | None]:
        """Plans or builds the look-ups for the next step: within calls of several steps, or between calls."""
        steps_differ = len(step.phases) > 1 or step.choose is not None or step.exchange is not None
        if not batches.has_pairs or steps_differ:
            return None, None
        devices = table_lookups.first
        dense = {device: combined_rows.small_dense_gradients(self.store, push, device) for device in devices}
        parts = StepParts(
            batch_op=tf.nest.flatten(batch)[0].op,
            look_ups=devices,
            row_gradients=push.row_gradients,
            dense_gradients=dense,
            fetches=fetches,
            phase=step.phases[0],
            worker_device=self.trainer.device,
        )
        if limits.steps > 1:
            return look_ahead.plan(parts), None
        return None, next_rows.build(parts, self.trainer.worker_index)

    def _build_loss(self, batch: Any) -> tuple[tf.Tensor, list[Gradient]]:
        """Builds the model on the pulled parameters, on one device or several; returns its loss and the gradients."""
        devices = compute_devices(self.trainer, self.config)
        if len(devices) > 1:
            return device_parts.build(self.store, devices, batch, self._build_model)
        with tf.device(self.trainer.device):
            loss = self._build_model(batch, self.store.model_getter)
        return loss, self.store.gradients(loss)

    def _build_model(self, batch: Any, getter: ModelGetter) -> tf.Tensor:
        """Builds the model with the variables that `getter` returns; returns its loss."""
        if self.components.num_stages > 1:
            tf.get_collection_ref(STAGE_DEVICES).extend(self.group.devices)
        # The input keeps the run's seed, so that all workers agree on one order. Initial values come from the trace.
        tf.set_random_seed(_model_seed(self.config.seed, self.trainer.worker_index, self.start))
        with tf.variable_scope("", custom_getter=getter):
            return self.components.model.build(batch, training=True).loss

    def _create_straggler(self) -> Straggler | None:
        return create_straggler(
            self.components.stragglers,
            seed=self.config.seed,
            worker_index=self.trainer.worker_index,
            device=self.trainer.device,
            container=self.run_id,
        )

    def _create_wire(self) -> Wire:
        return Wire(
            self.components.transforms,
            num_workers=self.trainer.num_workers,
            worker_index=self.trainer.worker_index,
            worker_device=self.trainer.device,
            ps_device=self.store.ps_device,
            seed=self.config.seed,
        )

    def _create_context(self, applier: Applier, push: Push) -> RuleContext:
        return RuleContext(
            num_workers=self.trainer.num_workers,
            worker_index=self.trainer.worker_index,
            is_chief=self.trainer.is_chief,
            max_steps=self.config.max_steps,
            applier=applier,
            push=push,
            run_id=self.run_id,
            join_number=self.join_number,
        )

    def _create_own_variables(self, variables: list[tf.Variable], step: TrainStep) -> OwnVariables | None:
        if not variables:
            return None
        after_pushes = AfterPushes(variables)
        push_counts = PushCounts(
            self.trainer.num_workers,
            self.trainer.worker_index,
            self.store.ps_device(0),
            is_in_lockstep=step.exchange is not None,
        )
        return OwnVariables(variables, push_counts, after_pushes, knows_first=not step.worker_state)


def _model_seed(seed: int, worker_index: int, start: str) -> int:
    """Returns the graph-level seed of the model's ops: the run's own seed for a worker 0 that starts at step 0."""
    return derive_seed(seed, f"worker {worker_index} {start}") if worker_index or start else seed


def _join_ops(store: ParameterStore, step: TrainStep) -> list[tf.Operation]:
    ops = [step.join_op] if step.join_op is not None else []
    with tf.device(store.worker_device):
        return ops if store.keeps_replica else [*ops, store.build_prime(step.on_pull)]


def _free(variables: Sequence[tf.Variable]) -> tf.Operation:
    """Destroys variables. `tf.Session.reset` is not a substitute: it closes every session on the ps task.

    Queues and accumulators stay: to destroy one on which a cancelled op still waits crashes the ps task.
    """
    destroy_ops = []
    for variable in variables:
        with tf.device(variable.device):
            # A ps task that was restarted does not have the variable any more.
            destroy_ops.append(tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True))
    return tf.group(*destroy_ops)


def _create_scaffold() -> tf.train.Scaffold:
    """Initialises nothing on the ps tasks: the chief has done that before any worker opens its session."""
    local_init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    return tf.train.Scaffold(
        init_op=tf.no_op(),
        # Empty lists of uninitialised variables: by default TensorFlow asks every ps task for each variable.
        ready_op=tf.constant([], tf.string),
        ready_for_local_init_op=tf.constant([], tf.string),
        local_init_op=local_init_op,
        summary_op=tf.constant(b""),
        # The chief writes the checkpoints. Without this line, TensorFlow would add a saver over all variables.
        saver=tf.train.Saver([], allow_empty=True),
    )
