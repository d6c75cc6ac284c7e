"""TF1-style parameter-server training on today's TensorFlow.

`ps_trainer.train`, `LocalCluster`, `join` and the other names of the Python API are imported when they are first used.
They need TensorFlow, which the commands import later or not at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps_trainer.api.callbacks import Step as Step
    from ps_trainer.api.callbacks import StopTraining as StopTraining
    from ps_trainer.api.cluster import LocalCluster as LocalCluster
    from ps_trainer.api.cluster import train as train
    from ps_trainer.api.job import Job as Job
    from ps_trainer.api.join_cluster import join as join
    from ps_trainer.api.model_fn import EstimatorSpec as EstimatorSpec
    from ps_trainer.api.model_fn import ModeKeys as ModeKeys
    from ps_trainer.api.model_fn import from_model_fn as from_model_fn
    from ps_trainer.api.result import Result as Result
    from ps_trainer.errors import ArgumentError as ArgumentError
    from ps_trainer.errors import ArgumentTypeError as ArgumentTypeError
    from ps_trainer.errors import TrainingError as TrainingError

__version__ = "0.1.0"

# Name -> module that has it.
_EXPORTS = {
    "train": "ps_trainer.api.cluster",
    "LocalCluster": "ps_trainer.api.cluster",
    "join": "ps_trainer.api.join_cluster",
    "from_model_fn": "ps_trainer.api.model_fn",
    "EstimatorSpec": "ps_trainer.api.model_fn",
    "ModeKeys": "ps_trainer.api.model_fn",
    "Step": "ps_trainer.api.callbacks",
    "StopTraining": "ps_trainer.api.callbacks",
    "Job": "ps_trainer.api.job",
    "Result": "ps_trainer.api.result",
    "TrainingError": "ps_trainer.errors",
    "ArgumentError": "ps_trainer.errors",
    "ArgumentTypeError": "ps_trainer.errors",
}


API = tuple(_EXPORTS)
"""Names of the Python API."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'ps_trainer' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
