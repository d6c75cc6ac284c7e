"""`tf.train` for scripts that own their loop: change one import, and the script ends, recovers and says why it failed.

    from ps_trainer import tf1 as train          # was: from tensorflow.compat.v1 import train

These names are ps_trainer's, with TensorFlow's signatures; every other name is `tensorflow.compat.v1.train`'s own.

    Server                       join on a ps task ends when the job does
    replica_device_setter        takes also ps_strategy="greedy"
    SyncReplicasOptimizer        a true barrier; backup workers
    MonitoredTrainingSession     deadlines, named causes, recovery, checkpoints that a failed save cannot damage
    MonitoredSession             the same, created with a ChiefSessionCreator or WorkerSessionCreator
    Supervisor                   the same for older scripts
    SingularMonitoredSession     raises OptionError for a session in a cluster
    CheckpointSaverHook          the same checkpoints for a script that makes the hook itself
    packed                       the model's variables in a few flat ones, for faster steps
    configure                    deadlines; also as PS_TRAINER_<NAME> in the environment
"""

from __future__ import annotations

from typing import Any

from ps_trainer.runtime import environment, tensorflow_import

# TensorFlow may be imported already; gRPC reads its options at its first use, which is later.
environment.prepare(is_ps=False)
tensorflow_import.load()

import tensorflow.compat.v1 as tf  # noqa: E402 - the environment comes first

from ps_trainer.tf1 import exit_codes  # noqa: E402
from ps_trainer.tf1.monitored_session import MonitoredSession, MonitoredTrainingSession  # noqa: E402
from ps_trainer.tf1.packing import packed  # noqa: E402
from ps_trainer.tf1.placement import (  # noqa: E402
    GreedyLoadBalancingStrategy,
    byte_size_load_fn,
    replica_device_setter,
)
from ps_trainer.tf1.saving import CheckpointSaverHook  # noqa: E402
from ps_trainer.tf1.script_settings import configure  # noqa: E402
from ps_trainer.tf1.session_creators import (  # noqa: E402
    ChiefSessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from ps_trainer.tf1.supervisor import Supervisor  # noqa: E402
from ps_trainer.tf1.sync_replicas import SyncReplicasOptimizer  # noqa: E402
from ps_trainer.tf1.tasks import Server  # noqa: E402

__all__ = [
    "CheckpointSaverHook",
    "ChiefSessionCreator",
    "GreedyLoadBalancingStrategy",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "Server",
    "SingularMonitoredSession",
    "Supervisor",
    "SyncReplicasOptimizer",
    "WorkerSessionCreator",
    "byte_size_load_fn",
    "configure",
    "packed",
    "replica_device_setter",
]

exit_codes.install()


def __getattr__(name: str) -> Any:
    return getattr(tf.train, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(tf.train)})
