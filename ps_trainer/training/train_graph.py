"""`TrainGraph`: one worker's graph, as `graph.py` assembles it and the rest of `training/` uses it."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.held_state import HeldState
from ps_trainer.checkpoints.stored_state import StoredState
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.trace import ModelTrace
from ps_trainer.training.graph_parts.multi_step_graph import MultiStepGraph
from ps_trainer.training.graph_parts.shard_reader import ShardReader
from ps_trainer.training.graph_parts.step_calls import CallLimits
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from ps_trainer.training.graph_parts.straggler import Straggler
from ps_trainer.training.graph_parts.worker_state_saver import OwnVariables
from ps_trainer.updates.base import TrainStep


class TrainGraph(NamedTuple):
    """One worker's graph, and its ops in the order in which they run.

        chief                     every worker            when
        ─────                     ────────────            ────
        init_state_op                                     before any worker joins
                                  scaffold                when the session of the steps is opened
                                  join_ops, current_step  when the worker joins
                                  begin_data_ops          when the worker's own state is restored
                                  fetches[phase]          in every step; the update rule chooses the phase
                                  call                    in place of it, if several steps are one call
                                  count_exchanged_op      after the exchange that follows the step, if there is one
        publish_counts_op                                 before a save
        free_op                                           at the end of the run

    Attributes:
        graph: Graph that holds everything below.
        step: Step as the update rule built it, with its own ops (`updates/base.py` draws their order).
        store: Parameter store.
        state: Contents of a checkpoint.
        held_state: Holds the state for a save beside the steps; None except on the chief.
        model_trace: Variables of the model, and their initial values.
        own_variables: Variables of this worker that are saved beside the checkpoints; None if there are none.
        straggler: Delay of this worker's steps, to be started before the first one; None if there is none.
        shard_reader: Reader that asks for this worker's shards, to be connected before the session is opened; None
            under `--sharding=static`.
        init_state_op: Op that initialises the rule's own state on the ps tasks.
        scaffold: Scaffold for `MonitoredTrainingSession`, which initialises only what is local to this worker.
        join_ops: Ops to run one after the other, with `step.join_feeds`.
        current_step: Current value of global_step, int64 scalar.
        begin_data_ops: Ops to run one after the other, which start the input at the place from which this worker
            continues to read.
        fetches: Graph nodes of a step, for each phase.
        call: Ops of a call that makes several steps; None if each step is a separate call.
        call_limits: How long a call lasts at most.
        count_exchanged_op: Op that counts the step's batch; None if the step counts it, or `publish_counts_op` does.
        publish_counts_op: Op that counts the batches of all exchanges since it last ran; None if each worker counts.
        free_op: Op that frees the variables of the run on the ps tasks.
        sent_bytes: Bytes that this worker has pushed, as computed; int64 scalar.
    """

    graph: tf.Graph
    step: TrainStep
    store: ParameterStore
    state: StoredState
    held_state: HeldState | None
    model_trace: ModelTrace
    own_variables: OwnVariables | None
    straggler: Straggler | None
    shard_reader: ShardReader | None
    init_state_op: tf.Operation
    scaffold: tf.train.Scaffold
    join_ops: list[tf.Operation]
    current_step: tf.Tensor
    begin_data_ops: list[tf.Operation]
    fetches: list[StepFetches]
    call: MultiStepGraph | None
    call_limits: CallLimits
    count_exchanged_op: tf.Operation | None
    publish_counts_op: tf.Operation | None
    free_op: tf.Operation
    sent_bytes: tf.Tensor
