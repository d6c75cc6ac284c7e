"""Environment variables that TensorFlow and gRPC read, set before TensorFlow is imported. Imports no TensorFlow.

A value that the user has set is kept; of TF_GRPC_DEFAULT_OPTIONS, each option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from ps_trainer.cluster.findings import OK, WARNING, Finding

# In the order in which gRPC reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_CHANNEL_OPTIONS = {
    # gRPC sends even loopback traffic to http_proxy, and its no_proxy does not help.
    "grpc.enable_http_proxy": "0",
    # By default a name is looked up at most every 30 s: a task that comes back under another IP address would be looked
    # for at its old one until the others have given up.
    "grpc.dns_min_time_between_resolutions_ms": "1000",
}


def prepare(environ: MutableMapping[str, str] = os.environ, *, is_ps: bool) -> None:
    """Sets what a task's process needs; call before TensorFlow is imported.

    Args:
        environ: the environment.
        is_ps: whether the task is a parameter server, which computes on the CPU and leaves GPUs alone.
    """
    given = environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    names = {option.partition("=")[0].strip() for option in given.split(",")}
    own = [f"{name}={value}" for name, value in _CHANNEL_OPTIONS.items() if name not in names]
    environ["TF_GRPC_DEFAULT_OPTIONS"] = ",".join(filter(None, [given, *own]))
    # By default 64 threads poll completion queues, of which few have anything to do.
    environ.setdefault("TF_GRPC_WORKER_CACHE_QUEUES", "2")
    # By default some calls (CleanupGraph) wait for a task that is gone to come back: closing a session would hang.
    environ.setdefault("GRPC_FAIL_FAST", "true")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if is_ps:
        environ["CUDA_VISIBLE_DEVICES"] = ""


def proxies(environ: Mapping[str, str] = os.environ) -> Finding:
    """Whether a proxy stands between the tasks: gRPC sends even loopback traffic to one that the environment names."""
    named = [f"{name}={environ[name]}" for name in _PROXIES if environ.get(name)]
    options = environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    switch = options.replace(" ", "").partition("grpc.enable_http_proxy=")[2][:1]
    if not named:
        return Finding(OK, "proxies", "none is set")
    if switch not in ("", "0"):
        return Finding(
            WARNING,
            "proxies",
            f"{', '.join(named)} is set, and TF_GRPC_DEFAULT_OPTIONS={options} lets tasks use it: most proxies do not"
            " pass gRPC on, and then no task reaches another",
            "take grpc.enable_http_proxy out of TF_GRPC_DEFAULT_OPTIONS",
        )
    return Finding(OK, "proxies", f"{', '.join(named)} is set; tasks talk past it (grpc.enable_http_proxy=0)")
