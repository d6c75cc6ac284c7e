"""The hand-written TF1 parameter-server script, as people have copied it since TensorFlow 1.0.

Between-graph replication, `replica_device_setter`, `MonitoredTrainingSession`, and for `--sync` `SyncReplicasOptimizer`
with its defaults. Of `ps_trainer` it uses only the graph and input of `benchmarks.workloads`, and the name of a
worker's part of the data. With `--classes=drop_in` the classes are those of `ps_trainer.tf1`, and with `drop_in_packed`
the model is built within `train.packed()`. Beyond the canonical form it has only what costs no time in a step. Device
filters and a short grace period let it start and end, and it reports its step rate.

    python -m benchmarks.peers.stock_tf1 --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 \
        --job_name=worker --task_index=0 --workload=deep --steps=2000
    (and likewise --job_name=worker --task_index=1, and --job_name=ps --task_index=0, which never ends)

A worker appends to `--report_file`, about once a second, `{"kind":"train","wall_time":…,"local_step":…}`,
and at its end prints `{"task":…,"steps":…,"seconds":…,"steps_per_sec":…,"cpu_secs_per_step":…}` over its steady
state, that is without its first two seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import resource
import time
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks import contenders, peer_models, workloads
from benchmarks.contenders import CLASSES
from benchmarks.peer_workloads import PEER_WORKLOADS
from ps_trainer.data.pipeline.shard import Shard

_WARMUP_SECS = 2.0
_REPORT_SECS = 1.0


def main() -> None:
    """Runs one task."""
    flags = _parse_flags()
    # Imported only here: the stock script must not get the environment variables that ps_trainer sets.
    train: Any = tf.train if flags.classes == "stock" else importlib.import_module("ps_trainer.tf1")
    cluster = train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    else:
        _train(flags, train, cluster, server)


def _parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True, help="host:port,host:port,…")
    parser.add_argument("--worker_hosts", required=True, help="host:port,host:port,…")
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", required=True, type=int)
    parser.add_argument("--workload", default="deep", choices=sorted({*workloads.WORKLOADS, *PEER_WORKLOADS}))
    parser.add_argument("--peers", action="store_true", help="start from the values from which peers start")
    parser.add_argument(
        "--classes", default=CLASSES[0], choices=CLASSES, help="origin of the classes that the script uses"
    )
    parser.add_argument("--sync", action="store_true", help="aggregate the gradients of all workers in each step")
    parser.add_argument("--steps", type=int, default=1000, help="global_step at which training ends")
    parser.add_argument("--report_file", help="file for a line per second")
    return parser.parse_args()


def _train(flags: argparse.Namespace, train: Any, cluster: tf.train.ClusterSpec, server: tf.train.Server) -> None:
    is_chief = flags.task_index == 0
    num_workers = cluster.num_tasks("worker")
    model, data, batch_size = _model_and_data(flags)

    with tf.Graph().as_default():
        worker_device = f"/job:worker/task:{flags.task_index}"
        with tf.device(train.replica_device_setter(worker_device=worker_device, cluster=cluster)):
            shard = Shard(flags.task_index, num_workers)
            batches = data.train(shard=shard, batch_size=batch_size, seed=0)
            batch = tf.data.make_one_shot_iterator(batches).get_next()
            with train.packed() if flags.classes == "drop_in_packed" else contextlib.nullcontext():
                loss = model.build(batch, training=True).loss
            global_step = train.get_or_create_global_step()
            optimizer = train.GradientDescentOptimizer(contenders.LEARNING_RATE)
            if flags.sync:
                optimizer = train.SyncReplicasOptimizer(
                    optimizer, replicas_to_aggregate=num_workers, total_num_replicas=num_workers
                )
            train_op = optimizer.minimize(loss, global_step=global_step)

        hooks = [train.StopAtStepHook(last_step=flags.steps)]
        if flags.sync:
            hooks.append(optimizer.make_session_run_hook(is_chief))
        # Without filters a session waits until all other workers have started.
        config = tf.ConfigProto(device_filters=["/job:ps", worker_device])
        rate = _StepRate(flags.report_file)
        with train.MonitoredTrainingSession(
            master=server.target,
            is_chief=is_chief,
            checkpoint_dir=None,
            hooks=hooks,
            config=config,
            # By default the chief of a sync run waits 120 s at the end for a thread that sits in `take_grad`.
            stop_grace_period_secs=2,
        ) as sess:
            while not sess.should_stop():
                sess.run(train_op)
                rate.count_step()
    print(json.dumps({"task": f"worker-{flags.task_index}", **rate.summary()}), flush=True)


def _model_and_data(flags: argparse.Namespace) -> tuple[Any, Any, int]:
    """Returns model, input and size of a batch."""
    if not flags.peers:
        model = workloads.WORKLOADS[flags.workload]()
        options = workloads.RandomInput.Options(width=model.size.width)
        return model, workloads.RandomInput(options), contenders.BATCH_SIZE
    given = peer_models.WorkloadOptions(workload=flags.workload)
    return peer_models.PeerModel(given), peer_models.PeerInput(given), PEER_WORKLOADS[flags.workload].batch_size


class _StepRate:
    """Counts steps: a line per second to a file, and the mean of the steady state."""

    def __init__(self, path: str | None):
        # Buffered by lines, because the benchmark reads the file while the worker runs.
        self._file = open(path, "a", buffering=1, encoding="utf-8") if path else None  # noqa: SIM115
        self._step = 0
        self._first_secs = 0.0
        self._start: tuple[int, float, float] | None = None  # step, time, CPU time
        self._end = (0, 0.0, 0.0)
        self._next_report_secs = 0.0

    def count_step(self) -> None:
        """Counts a step."""
        now = time.time()
        self._step += 1
        if self._step == 1:
            self._first_secs = now
        if now < self._next_report_secs:
            return
        self._next_report_secs = now + _REPORT_SECS
        self._end = (self._step, now, _cpu_secs())
        if self._start is None and now - self._first_secs >= _WARMUP_SECS:
            self._start = self._end
        if self._file:
            self._file.write(json.dumps({"kind": "train", "wall_time": now, "local_step": self._step}) + "\n")

    def summary(self) -> dict[str, float | None]:
        """Returns the steps, seconds and CPU seconds of the steady state; rates are None if it was too short."""
        start = self._start or self._end
        steps, secs, cpu_secs = (end - begin for end, begin in zip(self._end, start, strict=True))
        return {
            "steps": steps,
            "seconds": secs,
            "steps_per_sec": steps / secs if steps else None,
            "cpu_secs_per_step": cpu_secs / steps if steps else None,
        }


def _cpu_secs() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
