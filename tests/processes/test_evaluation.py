"""The evaluator task and the commands that use a trained model, on one run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.launch.command import shared_server
from tests.testing.processes import START_SECS, ClusterRun


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRun]:
    """A finished run with an evaluator."""
    server = shared_server(tmp_path_factory.getbasetemp())
    with ClusterRun(tmp_path_factory.mktemp("finished"), num_workers=1, server=server) as run:
        launcher = run.start_local("--num_evaluators=1", "--save_checkpoint_steps=150", "--max_steps=300")
        assert launcher.wait(START_SECS) == 0
        yield run


def test_evaluator_evaluates_the_checkpoints_and_ends_with_the_run(finished):
    evaluations = {line["global_step"]: line["metrics"] for line in finished.metrics("evaluator-0", "eval")}
    assert set(evaluations) == {150, 300}
    assert evaluations[300] == pytest.approx(finished.summary()["metrics"])
    assert evaluations[300]["loss"] < evaluations[150]["loss"]
    assert [line["state"] for line in finished.metrics("evaluator-0", "state")][-1] == "done"
    assert finished.remaining() == []


def test_evaluate_prints_the_metrics_of_the_last_checkpoint_and_rejects_another_model(finished):
    flags = (f"--logdir={finished.logdir}", "--dataset=digits")
    fitting = finished.start_command("evaluate", *flags, "--model=softmax", log_name="evaluate-softmax")
    other = finished.start_command("evaluate", *flags, "--model=mlp", log_name="evaluate-mlp")
    assert fitting.wait(START_SECS) == 0
    figures = dict(re.findall(r"(\w+) (\d+\.\d{4})", fitting.log.splitlines()[-1]))
    assert figures == {name: f"{value:.4f}" for name, value in finished.summary()["metrics"].items()}
    assert other.wait(START_SECS) == 2
    assert "model variable" in other.log and "give the --model" in other.log


# This script does not know this package, which is not even on its path.
PLAIN = """
import sys
import numpy as np
import tensorflow as tf

saved, archive, out = sys.argv[1:]
predict = tf.saved_model.load(saved).signatures["serving_default"]
with np.load(archive) as file:
    image = tf.constant(file["image"].astype(np.float32) / 16)
assert "ps_trainer" not in sys.modules and "models" not in sys.modules
np.save(out, predict(image=image)["predictions"].numpy())
"""


def test_plain_tensorflow_predicts_the_same_from_the_exported_model(finished):
    folder = finished.folder
    images = np.random.RandomState(0).randint(0, 17, (5, 8, 8, 1), np.uint8)
    np.savez(folder / "images.npz", image=images)
    flags = (f"--logdir={finished.logdir}",)
    exported = finished.start_command("export", *flags, f"--out={folder / 'saved'}")
    predicted = finished.start_command(
        "predict", *flags, f"--input={folder / 'images.npz'}", f"--out={folder / 'ours.npy'}"
    )
    assert exported.wait(START_SECS) == 0 and predicted.wait(START_SECS) == 0
    paths = [str(folder / name) for name in ("saved", "images.npz", "theirs.npy")]
    subprocess.run([sys.executable, "-I", "-c", PLAIN, *paths], check=True, timeout=START_SECS, cwd=folder)
    ours = np.load(folder / "ours.npy")
    assert ours.shape == (5, 10)
    np.testing.assert_allclose(np.load(folder / "theirs.npy"), ours, rtol=1e-6)
    reader = tf.train.load_checkpoint(str(finished.logdir / "checkpoints" / "model.ckpt-300"))
    kernel, bias = (reader.get_tensor(f"logits/{name}") for name in ("kernel", "bias"))
    logits = (images / np.float32(16)).reshape(5, 64) @ kernel + bias
    np.testing.assert_allclose(ours, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), rtol=1e-4)
