"""The parameter-server script that users of TensorFlow 1 wrote by hand, as a baseline: the classes of `tf.train` alone.

Between-graph replication, `replica_device_setter`, `MonitoredTrainingSession`, and `SyncReplicasOptimizer` with its
defaults if gradients are averaged. Model, data, initial values and delays are those of a run of ps_trainer with the
same flags, so that both can be compared. Beyond the canonical form, it has device filters and a short grace period,
without which it would wait for minutes at its start and end, and it logs its steps. Workers that average gradients
begin together: by default a worker waits 30 s if it starts before the chief, and a chief that starts early trains
alone.

    python -m ps_trainer.experiments.toolkit.stock_script --ps_hosts=localhost:2222 \
        --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0 --folder=runs/stock
    (and likewise --job_name=worker --task_index=1, and --job_name=ps --task_index=0, which never ends)
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.disturbances import delays
from ps_trainer.metrics.step_record import StepRecord
from ps_trainer.store.trace import seeded_getter

_START_SECS = 300.0
_POLL_SECS = 0.02

_Gradients = Sequence[tuple[tf.Tensor, tf.Variable]]


def main() -> None:
    """Runs one task."""
    flags = _parse_flags()
    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index, config=threads)
    if flags.job_name == "ps":
        server.join()
    else:
        _train(flags, cluster, server)


def _parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True, help="host:port,host:port,…")
    parser.add_argument("--worker_hosts", required=True, help="host:port,host:port,…")
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", required=True, type=int)
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder for the logs of steps")
    parser.add_argument("--model", default="softmax")
    parser.add_argument("--model_option", action="append", default=[])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--max_steps", type=int, default=100, help="global_step at which training ends")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replicas_to_aggregate", type=int, default=0, help="gradients of an update; 0: asynchronous")
    parser.add_argument("--straggler", action="append", default=[], help="delay of each step, from its parameters on")
    return parser.parse_args()


def _train(flags: argparse.Namespace, cluster: tf.train.ClusterSpec, server: tf.train.Server) -> None:
    is_chief, num_workers = flags.task_index == 0, cluster.num_tasks("worker")
    worker_device = f"/job:worker/task:{flags.task_index}"
    delay = _Delay(flags)
    with tf.Graph().as_default():
        tf.set_random_seed(flags.seed)
        with tf.device(tf.train.replica_device_setter(worker_device=worker_device, cluster=cluster)):
            with tf.variable_scope("", custom_getter=seeded_getter(flags.seed)):
                loss = _loss(flags, num_workers)
            global_step = tf.train.get_or_create_global_step()
            optimizer = tf.train.GradientDescentOptimizer(flags.learning_rate)
            if flags.replicas_to_aggregate:
                optimizer = tf.train.SyncReplicasOptimizer(
                    optimizer,
                    replicas_to_aggregate=flags.replicas_to_aggregate,
                    total_num_replicas=num_workers,
                )
            gradients = delay.hold_back(optimizer.compute_gradients(loss), worker_device)
            train_op = optimizer.apply_gradients(gradients, global_step=global_step)
        fetches = {"train": train_op, "loss": loss}
        hooks = [tf.train.StopAtStepHook(last_step=flags.max_steps)]
        if flags.replicas_to_aggregate:
            hooks.append(optimizer.make_session_run_hook(is_chief))
            fetches |= _counts(optimizer, global_step, gradients, train_op)
        with _session(flags, server, hooks) as session:
            _make_steps(flags, session, fetches, delay)


def _loss(flags: argparse.Namespace, num_workers: int) -> tf.Tensor:
    model = component_tables.MODELS.create(flags.model, flags.model_option)
    dataset = component_tables.DATASETS.create(flags.dataset, (), data_dir=None)
    shard = Shard(flags.task_index, num_workers)
    batches = dataset.train(shard=shard, batch_size=flags.batch_size, seed=flags.seed, num_epochs=None)
    return model.build(tf.data.make_one_shot_iterator(batches).get_next(), training=True).loss


def _counts(
    optimizer: tf.train.SyncReplicasOptimizer, global_step: tf.Variable, gradients: _Gradients, train_op: tf.Operation
) -> dict[str, tf.Tensor]:
    """Returns global_step at the worker's push and after its wait, and the step of the token that it then has."""
    with tf.control_dependencies([gradient for gradient, _ in gradients]):
        at_push = tf.identity(global_step.read_value())
    with tf.control_dependencies([train_op]):
        after = tf.identity(global_step.read_value())
        token = tf.identity(optimizer._local_step.read_value())  # stamps the next gradient; the class hides it
    return {"at_push": at_push, "after": after, "token": token}


def _session(flags: argparse.Namespace, server: tf.train.Server, hooks: Sequence[tf.train.SessionRunHook]) -> Any:
    is_chief = flags.task_index == 0
    begins_together = bool(flags.replicas_to_aggregate)
    if begins_together and not is_chief:
        _wait_for([flags.folder / "ready-0"])
    session = tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        hooks=hooks,
        # Without filters a session waits until all other workers have started.
        config=tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{flags.task_index}"]),
        # By default the chief waits 120 s at the end for a thread that sits in `take_grad`.
        stop_grace_period_secs=2,
    )
    if begins_together:
        (flags.folder / f"ready-{flags.task_index}").touch()
        _wait_for([flags.folder / f"ready-{i}" for i in range(len(flags.worker_hosts.split(",")))])
    return session


def _make_steps(flags: argparse.Namespace, session: Any, fetches: dict[str, Any], delay: _Delay) -> None:
    path = flags.folder / f"steps-{flags.task_index}.jsonl"
    number = token = 0
    # Buffered by lines, because the launcher reads the file while the worker runs.
    with path.open("w", buffering=1, encoding="utf-8") as file:
        while not session.should_stop():
            started = time.monotonic()
            done = session.run(fetches)
            ended, number = time.monotonic(), number + 1
            is_late = bool(done.get("at_push", 0) > token)  # the accumulators drop such a gradient
            token = done.get("token", 0)
            # Unlike in a log of ours, the pull is a part of its own step.
            record = StepRecord(
                worker=flags.task_index,
                local_step=number,
                global_step=int(done.get("after", number)),
                staleness=None if is_late else 0,
                dropped=int(is_late),
                t_start=started,
                t_computed=None,
                t_applied=None,
                t_end=ended,
                wall_time=time.time(),
                injected_delay=delay.last_secs,
                loss=float(done["loss"]),
                examples=flags.batch_size,
                cpu_user=0.0,
                cpu_sys=0.0,
            )
            file.write(json.dumps(record.as_json()) + "\n")


class _Delay:
    """A sleep of each step until some time after its parameters have arrived; without `--straggler` there is none.

    Attributes:
        last_secs: Delay of the last step in seconds; 0 without one.
    """

    def __init__(self, flags: argparse.Namespace):
        spec = delays.spec_for([delays.parse(text) for text in flags.straggler], flags.task_index)
        self.last_secs = self._pulled_at = 0.0
        self._next: Callable[[], float] | None = None
        if spec is not None:
            self._next = spec.sampler(delays.rng_for(flags.seed, flags.task_index), flags.task_index)

    def hold_back(self, gradients: _Gradients, worker_device: str) -> _Gradients:
        """Returns the gradients, which are available once the delay is over."""
        if self._next is None:
            return gradients
        with tf.device(worker_device):
            with tf.control_dependencies([tf.identity(variable.value()) for _, variable in gradients]):
                pulled = tf.py_func(self._note, [], tf.float64)
            with tf.control_dependencies([pulled, *(gradient for gradient, _ in gradients)]):
                slept = tf.py_func(self._sleep, [], tf.float64)
            with tf.control_dependencies([slept]):
                return [(tf.identity(gradient), variable) for gradient, variable in gradients]

    def _note(self) -> np.float64:
        self._pulled_at = time.monotonic()
        return np.float64(self._pulled_at)

    def _sleep(self) -> np.float64:
        assert self._next is not None
        self.last_secs = self._next()
        time.sleep(max(0.0, self._pulled_at + self.last_secs - time.monotonic()))
        return np.float64(self.last_secs)


def _wait_for(paths: Sequence[pathlib.Path]) -> None:
    deadline = time.monotonic() + _START_SECS
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {', '.join(map(str, paths))} exist after {_START_SECS:g} s")
        time.sleep(_POLL_SECS)


if __name__ == "__main__":
    main()
