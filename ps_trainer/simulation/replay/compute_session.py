"""`ComputeSession`: one session that computes the gradients of all virtual workers and the ps tasks' updates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.simulation.replay.gradients import Gradient, RowsGradient, Values
from ps_trainer.simulation.replay.graphs import GradientGraph, UpdateGraph, create_iterator
from ps_trainer.simulation.replay.training_setup import TrainingSetup, WorkerResult
from ps_trainer.store import fed_call
from ps_trainer.store.trace import placeholders, trace


class State:
    """Parameters with their own slots of the optimizer.

    Attributes:
        params: Trainable parameters. To change them from outside, replace the whole dict.
    """

    def __init__(self, params: Values, slots: list[np.ndarray]):
        self.params = params
        self._slots = slots


class ComputeSession:
    """Computes gradients and updates of given parameters.

    Parameters are fed and fetched as NumPy arrays, so that any number of versions and replicas can exist. The session
    has only one set of the optimizer's variables, and loads another `State` when an update needs it. Variables that the
    model itself assigns (moving averages) exist once for all workers, as on the ps tasks.

    Args:
        training: Model, dataset and optimizer.
        num_workers: Number of workers. Each has the same input pipeline as in a cluster.

    Attributes:
        specs: Specifications of the model's variables.
    """

    def __init__(self, training: TrainingSetup, num_workers: int):
        self._training = training
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device("/cpu:0"):
            tf.set_random_seed(training.seed)
            iterators = [self._create_iterator(worker, num_workers) for worker in range(num_workers)]
            model_trace = trace(
                lambda: training.model.build(placeholders(iterators[0].element_spec), training=True), training.seed
            )
            self.specs = model_trace.specs
            self._names = [spec.name for spec in self.specs if spec.trainable]
            gradients = GradientGraph(training.model, self.specs, iterators[0])
            updates = UpdateGraph(training, self.specs, gradients.kinds)
            # One gradient graph serves all workers: the fed handle selects whose next batch it reads.
            handles = [iterator.string_handle() for iterator in iterators]
            init_ops = [iterator.initializer for iterator in iterators]
            init_ops += [tf.local_variables_initializer(), tf.tables_initializer(), *updates.init_ops]
        self._session = tf.Session(graph=self._graph, config=tf.ConfigProto(device_count={"GPU": 0}))
        self._session.run(init_ops)
        self._handles = self._session.run(handles)
        initial = model_trace.initial_values()
        for name, (load_op, value) in gradients.load_untrained.items():
            self._session.run(load_op, {value: initial[name]})
        self._gradients, self._updates = gradients, updates
        self._compute = fed_call.make(self._session, gradients.fetches, gradients.feeds)
        self._apply = fed_call.make(self._session, updates.fetches, updates.feeds)
        self._learning_rate = fed_call.make(self._session, [updates.learning_rate], [updates.clock])
        self._load_params = fed_call.make(self._session, [updates.load_params_op], updates.params)
        self._load_slots = fed_call.make(self._session, [updates.load_slots_op], updates.slots)
        self._read_slots = fed_call.make(self._session, updates.slot_reads, []) if updates.slots else list
        self._first_params = {name: initial[name] for name in self._names}
        self._first_slots: list[np.ndarray] = self._read_slots()
        self._loaded: State | None = None
        self._loaded_params: Values | None = None
        self._rate_at: tuple[int, float] | None = None

    @property
    def tables(self) -> list[str]:
        """Names of the trainable embedding tables."""
        return [spec.name for spec in self.specs if spec.is_table and spec.trainable]

    def create_state(self) -> State:
        """Returns the model's initial values with initial slots."""
        return State(self._first_params, self._first_slots)

    def compute(self, worker: int, params: Mapping[str, np.ndarray]) -> WorkerResult:
        """Computes loss and gradient of a worker's next batch."""
        outputs = self._compute(self._handles[worker], *(params[name] for name in self._names))
        return self._gradients.result(outputs)

    def apply(
        self, state: State, gradient: Gradient, *, clock: int, num_applied: int | None = None, rate_factor: float = 1.0
    ) -> None:
        """Applies a gradient with the same arithmetic as `updates.apply.Applier`.

        Args:
            state: State to update; gets new `params`.
            gradient: Gradient to apply.
            clock: Value of global_step before the update, which decides the scheduled learning rate.
            num_applied: Number of updates of `state` before this one (for Adam's bias correction); None: `clock`.
            rate_factor: Factor of the learning rate.
        """
        self._load(state)
        feeds = [clock, clock if num_applied is None else num_applied, np.float32(rate_factor)]
        for name in self._updates.kinds:
            feeds += gradient[name] if isinstance(gradient[name], RowsGradient) else [gradient[name]]
        state.params = self._loaded_params = dict(zip(self._names, self._apply(*feeds), strict=True))

    def learning_rate(self, clock: int) -> float:
        """Returns the scheduled learning rate at a global_step."""
        if self._rate_at is None or self._rate_at[0] != clock:
            self._rate_at = (clock, float(self._learning_rate(clock)[0]))
        return self._rate_at[1]

    def untrained_values(self) -> Values:
        """Returns the current values of the variables that the model itself assigns."""
        return self._session.run(self._gradients.untrained)

    def close(self) -> None:
        """Closes the session."""
        self._session.close()

    def _create_iterator(self, worker: int, num_workers: int) -> tf.data.Iterator:
        examples = self._training.dataset.train(
            shard=Shard(worker, num_workers),
            batch_size=self._training.batch_size,
            seed=self._training.seed,
            num_epochs=None,
        )
        return create_iterator(examples)

    def _load(self, state: State) -> None:
        # Compared by identity, which reads no values. So a state's dict must be replaced, not changed in place.
        if state is not self._loaded and self._first_slots:
            if self._loaded is not None:
                self._loaded._slots = self._read_slots()
            self._load_slots(*state._slots)
        self._loaded = state
        if state.params is not self._loaded_params:
            self._load_params(*(state.params[name] for name in self._names))
            self._loaded_params = state.params
