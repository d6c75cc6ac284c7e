"""Imports TensorFlow in less time. Imports no TensorFlow itself."""

from __future__ import annotations

import gc
import importlib
import sys

# At the end of its own import TensorFlow imports these modules, and with them all of Keras and, if it is installed,
# matplotlib: a fifth of the CPU time. It continues without them, and `tf.keras` imports Keras at its first use.
_EAGER = ("keras.src.optimizers", "tf_keras.src.optimizers")


def load() -> None:
    """Imports TensorFlow unless that is done, without Keras and without garbage collections.

    Set the environment first: TensorFlow and gRPC read it when they are loaded.
    """
    if "tensorflow" in sys.modules:
        return
    blocked = [name for name in _EAGER if name not in sys.modules]
    collects = gc.isenabled()
    gc.disable()  # an import leaves little garbage, and each collection looks at all of the new objects
    for name in blocked:
        sys.modules[name] = None  # type: ignore[assignment]  # stands for a module that cannot be imported
    try:
        importlib.import_module("tensorflow")
    finally:
        for name in blocked:
            del sys.modules[name]
        if collects:
            gc.enable()
