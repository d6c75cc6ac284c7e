"""Sets what TensorFlow, gRPC and malloc read from a process. Imports no TensorFlow.

Values of the user are kept. In TF_GRPC_DEFAULT_OPTIONS, this holds for each option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from ps_trainer.cluster.findings import OK, WARNING, ClusterFinding
from ps_trainer.runtime import allocator

# In the order in which gRPC reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_CHANNEL_OPTIONS = {
    # gRPC sends even loopback traffic to http_proxy, and its no_proxy does not help.
    "grpc.enable_http_proxy": "0",
    # By default gRPC looks a name up at most every 30 s. When a task comes back under another IP address, the other
    # tasks would try its old address until they give up.
    "grpc.dns_min_time_between_resolutions_ms": "1000",
    # With gRPC's small windows the messages that wait for a slow link overtake each other. With a window above a
    # message's size they pass in the order in which they were sent: the first layers' parameters come first.
    "grpc.http2.lookahead_bytes": "33554432",
}


def prepare(environ: MutableMapping[str, str] = os.environ, *, is_ps: bool) -> None:
    """Sets the variables of a task's process, and its malloc. Call this before TensorFlow is imported.

    Args:
        environ: Environment of the process.
        is_ps: Whether the task is a parameter server, which computes on the CPU and must not reserve GPU memory.
    """
    given = environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    names = {option.partition("=")[0].strip() for option in given.split(",")}
    options = [f"{name}={value}" for name, value in _CHANNEL_OPTIONS.items() if name not in names]
    environ["TF_GRPC_DEFAULT_OPTIONS"] = ",".join(filter(None, [given, *options]))
    # By default 64 threads poll completion queues, and most of them are idle.
    environ.setdefault("TF_GRPC_WORKER_CACHE_QUEUES", "2")
    # By default some calls (CleanupGraph) wait until a lost task comes back, so closing a session would hang.
    environ.setdefault("GRPC_FAIL_FAST", "true")
    # By default TensorFlow uses oneDNN on CPUs with AVX-512 only. With AVX2, too, ResNet-20 takes 0.6 of the time.
    environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if is_ps:
        environ["CUDA_VISIBLE_DEVICES"] = ""
    allocator.keep_freed_memory(environ)


def proxies(environ: Mapping[str, str] = os.environ) -> ClusterFinding:
    """Checks whether gRPC sends the traffic between tasks, even on loopback, to a proxy that the environment names."""
    named = [f"{name}={environ[name]}" for name in _PROXIES if environ.get(name)]
    options = environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    switch = options.replace(" ", "").partition("grpc.enable_http_proxy=")[2][:1]
    if not named:
        return ClusterFinding(OK, "proxies", "none is set")
    # The option is empty where `prepare` has not run, as in the doctor; `prepare` sets it to 0.
    if switch not in ("", "0"):
        return ClusterFinding(
            WARNING,
            "proxies",
            f"{', '.join(named)} is set, and TF_GRPC_DEFAULT_OPTIONS={options} makes tasks use it; most proxies do not"
            " forward gRPC, so that no task would reach another",
            "remove grpc.enable_http_proxy from TF_GRPC_DEFAULT_OPTIONS",
        )
    return ClusterFinding(OK, "proxies", f"{', '.join(named)} is set; tasks bypass it (grpc.enable_http_proxy=0)")
