"""Environment variables that TensorFlow and gRPC read, set before TensorFlow is imported. Imports no TensorFlow.

A value that the user has set is kept.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping


def prepare(is_ps: bool, environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets what a task's process needs; call before TensorFlow is imported.

    Args:
        is_ps: whether the task is a parameter server, which computes on the CPU and leaves GPUs alone.
        environ: the environment.
    """
    # gRPC sends even loopback traffic to http_proxy, and its no_proxy does not help.
    options = environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    if "grpc.enable_http_proxy" not in options:
        environ["TF_GRPC_DEFAULT_OPTIONS"] = ",".join(filter(None, [options, "grpc.enable_http_proxy=0"]))
    # By default 64 threads poll completion queues, of which few have anything to do.
    environ.setdefault("TF_GRPC_WORKER_CACHE_QUEUES", "2")
    # By default some calls (CleanupGraph) wait for a task that is gone to come back: closing a session would hang.
    environ.setdefault("GRPC_FAIL_FAST", "true")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if is_ps:
        environ["CUDA_VISIBLE_DEVICES"] = ""
