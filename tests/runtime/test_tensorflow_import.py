"""TensorFlow is imported without Keras, which `tf.keras` imports when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, sys
from ps_trainer.runtime import tensorflow_import

{before}
tensorflow_import.load()
tensorflow_import.load()
import tensorflow as tf
eager = [name for name in ("keras", "tf_keras", "matplotlib") if name in sys.modules]
print(eager, gc.isenabled(), tf.keras.layers.Dense(3)(tf.zeros([2, 4])).shape, tf.optimizers.SGD.__name__)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("before", "printed"),
    [
        ("", "[] True (2, 3) SGD"),
        pytest.param("gc.disable()", "[] False (2, 3) SGD", marks=pytest.mark.full),
        ("import keras.src.optimizers as used", "True (2, 3) SGD"),
    ],
    ids=["first", "without_collections", "after_keras"],
)
def test_keras_and_collections_are_as_with_a_plain_import(before, printed):
    command = [sys.executable, "-c", SCRIPT.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith(printed), done.stderr[-2000:]


@pytest.mark.process
def test_an_import_that_fails_leaves_nothing_blocked(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no kernel')")
    script = f"""
import gc, sys
from ps_trainer.runtime import tensorflow_import
sys.path.insert(0, {str(tmp_path)!r})
try:
    tensorflow_import.load()
except ImportError as error:
    print(error, gc.isenabled(), [name for name, module in sys.modules.items() if module is None])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "no kernel True []\n", done.stderr[-2000:]
