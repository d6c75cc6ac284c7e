"""A task of Paddle's parameter server, `a_sync`: a worker's communicator sends gradients and fetches parameters.

    python -m benchmarks.peers.paddle_peer --ps_hosts=… --worker_hosts=… --job_name=worker --task_index=0

In this mode a step waits for no message: threads beside it merge and send gradients, and fetch parameters now and then.
It runs in a separate environment (`python -m benchmarks.peers.install paddle`), in the repository's root.
"""

from __future__ import annotations

import argparse
import itertools
import os
from typing import Any

import numpy as np
import paddle
from paddle.distributed import fleet

from benchmarks import peer_workloads
from benchmarks.peers.step_reporter import StepReporter

WORKLOADS = ("deep", "wide", "mlp", "scalar")
_initial: dict[str, np.ndarray] = {}  # by name, of the parameters that were made
_WIDTHS = {"deep": [64] * 41, "wide": [512] * 5, "mlp": [784, 256, 256, 10]}


def main() -> None:
    """Runs one task."""
    flags = _parse_flags()
    _set_environment(flags)
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker())
    batch = peer_workloads.batch(flags.workload, flags.task_index if flags.job_name == "worker" else 0)
    loss = _build(flags.workload, batch)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = paddle.optimizer.SGD(learning_rate=peer_workloads.LEARNING_RATE)
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    if flags.job_name == "ps":
        fleet.init_server()
        fleet.run_server()
    else:
        _train(flags, batch, loss)


def _parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", required=True, type=int)
    parser.add_argument("--workload", default="deep", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--report_file")
    parser.add_argument("--losses_file")
    return parser.parse_args()


def _set_environment(flags: argparse.Namespace) -> None:
    hosts = flags.ps_hosts if flags.job_name == "ps" else flags.worker_hosts
    host, _, port = hosts.split(",")[flags.task_index].rpartition(":")
    os.environ |= {
        "PADDLE_PSERVERS_IP_PORT_LIST": flags.ps_hosts,
        "PADDLE_TRAINER_ENDPOINTS": flags.worker_hosts,
        "PADDLE_TRAINERS_NUM": str(len(flags.worker_hosts.split(","))),
        "TRAINING_ROLE": "PSERVER" if flags.job_name == "ps" else "TRAINER",
        "PADDLE_TRAINER_ID": str(flags.task_index),
        "POD_IP": host,
        "PADDLE_PORT": port,
    }


def _train(flags: argparse.Namespace, batch: peer_workloads.Batch, loss: Any) -> None:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    for name, value in _initial.items():
        paddle.static.global_scope().find_var(name).get_tensor().set(value, paddle.CPUPlace())
    fleet.init_worker()  # the first worker's values go to the ps tasks
    report = StepReporter(flags.report_file, flags.losses_file)
    program = paddle.static.default_main_program()
    for _ in range(flags.steps):
        (value,) = executor.run(program, feed=batch, fetch_list=[loss])
        report.count_step(float(value))
    report.close()
    fleet.stop_worker()


def _build(workload: str, batch: peer_workloads.Batch) -> Any:
    inputs = {name: paddle.static.data(name, list(v.shape), str(v.dtype)) for name, v in batch.items()}
    if workload == "scalar":
        return paddle.mean(_value("weight", [1], 0.5, shaped=[]) * inputs["features"])
    x, widths = inputs["features"], _WIDTHS[workload]
    for number, (size, units) in enumerate(itertools.pairwise(widths)):
        kernel = _value(f"layer{number}_kernel", [size, units], (6 / (size + units)) ** 0.5)
        x = paddle.matmul(x, kernel) + _value(f"layer{number}_bias", [units], 0.0)
        if number < len(widths) - 2:
            x = paddle.nn.functional.relu(x)
    return paddle.nn.functional.cross_entropy(x, inputs["label"])


def _value(name: str, shape: list[int], scale: float, shaped: list[int] | None = None) -> Any:
    _initial[name] = peer_workloads.initial(name, shape if shaped is None else shaped, scale).reshape(shape)
    # The parameter server crashes if it is to begin with given values. So the first worker sets them in `_train`.
    initializer = paddle.nn.initializer.Constant(0.0)
    return paddle.static.create_parameter(shape, "float32", name=name, default_initializer=initializer)


if __name__ == "__main__":
    main()
