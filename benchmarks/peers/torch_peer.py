"""A worker of PyTorch: DistributedDataParallel over gloo, or Horovod over gloo; both average the workers' gradients.

    python -m benchmarks.peers.torch_peer --framework=ddp --workload=deep --rank=0 --world_size=2 --port=2222

It runs in a separate environment (`python -m benchmarks.peers.install torch`), in the repository's root.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable

import torch

from benchmarks import peer_workloads
from benchmarks.peers.step_reporter import StepReporter
from benchmarks.peers.torch_models import TorchPeerModel, tensors


def main() -> None:
    """Trains one worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework", required=True, choices=["ddp", "horovod"])
    parser.add_argument("--workload", required=True, choices=list(peer_workloads.PEER_WORKLOADS))
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--world_size", required=True, type=int)
    parser.add_argument("--port", required=True, type=int, help="port on which worker 0 brings the workers together")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--report_file")
    parser.add_argument("--losses_file")
    flags = parser.parse_args()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // flags.world_size))
    step = (_ddp_step if flags.framework == "ddp" else _horovod_step)(flags)
    report = StepReporter(flags.report_file, flags.losses_file)
    for _ in range(flags.steps):
        report.count_step(step())
    report.close()


def _ddp_step(flags: argparse.Namespace) -> Callable[[], float]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{flags.port}", rank=flags.rank, world_size=flags.world_size
    )
    model = torch.nn.parallel.DistributedDataParallel(TorchPeerModel(flags.workload))
    optimizer = torch.optim.SGD(model.parameters(), lr=peer_workloads.LEARNING_RATE)
    return _step(model, optimizer, tensors(flags.workload, flags.rank))


def _horovod_step(flags: argparse.Namespace) -> Callable[[], float]:
    # The variables that `horovodrun` would set, for workers of one machine.
    os.environ |= {
        "HOROVOD_RANK": str(flags.rank),
        "HOROVOD_SIZE": str(flags.world_size),
        "HOROVOD_LOCAL_RANK": str(flags.rank),
        "HOROVOD_LOCAL_SIZE": str(flags.world_size),
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(flags.port),
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": "127.0.0.1",
    }
    import horovod.torch as hvd

    if flags.rank == 0:
        _serve_rendezvous(flags)
    hvd.init()
    model = TorchPeerModel(flags.workload)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=peer_workloads.LEARNING_RATE),
        named_parameters=model.named_parameters(),
    )
    return _step(model, optimizer, tensors(flags.workload, flags.rank))


def _serve_rendezvous(flags: argparse.Namespace) -> None:
    """Starts the server by which Horovod's workers find each other, which `horovodrun` would start."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    # Horovod's own `RendezvousServer` chooses a port at random.
    server = RendezvousHTTPServer(("127.0.0.1", flags.port), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.init(get_host_assignments(parse_hosts(f"127.0.0.1:{flags.world_size}"), flags.world_size))


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]
) -> Callable[[], float]:
    def step() -> float:
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


if __name__ == "__main__":
    main()
