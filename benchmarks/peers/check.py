"""Checks that contenders compute the same: the losses of ten steps, beside those of a plain loop in one process.

    python -m benchmarks.peers.check --contenders=torch_ddp,horovod,bare_ops --workloads=deep,word2vec

The loop computes the workers' gradients by TensorFlow in this process, with nothing distributed, and subtracts their
mean. Contenders whose workers average their gradients run with two workers. `bare_ops` is asynchronous, so it
runs with one, as do `bare_ops_loop`, `bare_ops_colocated` and `paddle_ps`. Of the last one only the first loss is
compared: in its asynchronous mode, threads beside the steps decide when a step sees an update.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np

from benchmarks import arguments, peer_contenders, peer_workloads
from benchmarks.contenders import PEERS_MODE, REPOSITORY, Cell, CellJob
from benchmarks.peer_contenders import PEER_CONTENDERS
from benchmarks.peer_workloads import LEARNING_RATE, PEER_WORKLOADS
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED
from ps_trainer.launch.command import cpu_environment

NUM_STEPS = 10
AVERAGING = ("torch_ddp", "horovod")
CHECKED = (*AVERAGING, "bare_ops", "bare_ops_loop", "bare_ops_colocated", "paddle_ps")

# Sums in another order, over ten steps.
_TOLERANCE = 5e-6
_DEADLINE_SECS = 300.0


def main(argv: Sequence[str]) -> int:
    """Prints the largest relative difference of each contender and workload; returns 1 if one is too large."""
    parser = arguments.create_parser("benchmarks.peers.check", __doc__)
    parser.add_argument("--contenders", type=arguments.choices(CHECKED), default=",".join(CHECKED), help="contenders")
    parser.add_argument("--workloads", type=arguments.choices(PEER_WORKLOADS), default=",".join(PEER_WORKLOADS))
    flags = parser.parse_args(argv)
    if commands := peer_contenders.missing(flags.contenders):
        parser.error(f"--contenders: first run {'; '.join(commands)} (or name other contenders)")
    trained = {workload: peer_contenders.of_workload(workload, flags.contenders) for workload in flags.workloads}
    left_out = ", ".join(peer_contenders.left_out(flags.workloads, flags.contenders))
    if not any(trained.values()):
        parser.error(f"--contenders, --workloads: nothing to check, as none trains its workload: {left_out}")
    if left_out:
        print(f"left out, as not trained: {left_out}", file=sys.stderr)
    has_failed = False
    for workload, names in trained.items():
        for name in names:
            num_workers = 2 if name in AVERAGING else 1
            wanted = reference(workload, num_workers)
            with tempfile.TemporaryDirectory() as folder:
                got = _losses(name, workload, num_workers, pathlib.Path(folder))
            num_compared = 1 if name == "paddle_ps" else NUM_STEPS
            difference = largest_difference(got[:num_compared], wanted[:num_compared])
            is_equal = difference <= _TOLERANCE
            has_failed |= not is_equal
            print(f"{'same' if is_equal else 'DIFFERENT'}  {workload:14s} {name:18s} {difference:.1e}", flush=True)
    return EXIT_FAILED if has_failed else EXIT_DONE


def reference(workload: str, num_workers: int) -> list[float]:
    """Returns the losses of worker 0 in ten steps of a plain loop, each before its update."""
    # Here, because TensorFlow takes seconds and prints lines: a wrong flag ends the program before.
    import tensorflow.compat.v1 as tf

    from benchmarks import peer_models

    with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
        model = peer_models.PeerModel(peer_models.WorkloadOptions(workload=workload))
        losses = []
        for worker in range(num_workers):
            batch = {name: tf.constant(value) for name, value in peer_workloads.batch(workload, worker).items()}
            with tf.variable_scope("", reuse=worker > 0):
                losses.append(model.build(batch, training=True).loss)
        # Each worker's gradient by itself: the gradient of `large` does not depend on a factor of its loss.
        optimizer = tf.train.GradientDescentOptimizer(LEARNING_RATE / num_workers)
        gradients = [optimizer.compute_gradients(loss) for loss in losses]
        computed = [
            value for pairs in gradients for value in tf.nest.flatten([g for g, _ in pairs], expand_composites=True)
        ]
        with tf.control_dependencies(computed):
            train_op = tf.group(*(optimizer.apply_gradients(pairs) for pairs in gradients))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            found = []
            for _ in range(NUM_STEPS):
                found.append(float(session.run(losses[0])))
                session.run(train_op)
    return found


def largest_difference(got: Sequence[float], wanted: Sequence[float]) -> float:
    """Returns the largest difference relative to the reference; infinite for another number of losses, or a NaN."""
    if len(got) != len(wanted) or not np.isfinite(got).all():
        return float("inf")
    return float(np.max(np.abs(np.subtract(got, wanted)) / np.abs(wanted)))


def _losses(name: str, workload: str, num_workers: int, folder: pathlib.Path) -> list[float]:
    contender = PEER_CONTENDERS[name]
    hosts = tuple(f"127.0.0.1:{port}" for port in pick_free_ports(1 + num_workers))
    job = CellJob(Cell(workload, PEERS_MODE, 1, num_workers), hosts[:1], hosts[1:], folder)
    tasks: list[subprocess.Popen[bytes]] = []

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        with folder.joinpath(f"{len(tasks)}.log").open("wb") as log:
            environment = cpu_environment(os.environ)
            tasks.append(subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log))
        return tasks[-1]

    try:
        if contender.has_ps:
            start(contender.ps_command(job, 0))
        workers = []
        for index in range(num_workers):
            extra = [f"--steps={NUM_STEPS}", f"--losses_file={folder / f'losses-{index}.json'}"]
            workers.append(start([*contender.worker_command(job, index), *extra]))
        for worker in workers:
            worker.wait(_DEADLINE_SECS)
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    path = folder / "losses-0.json"
    if not path.exists():
        log = folder.joinpath(f"{len(tasks) - num_workers}.log").read_text(errors="replace")
        print(f"{name} on {workload} failed:\n{log[-2000:]}", file=sys.stderr)
        return []
    return list(json.loads(path.read_text()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
