"""Every update rule and gradient transform trains in real processes, with the settings of the published tables."""

from __future__ import annotations

import json
import pathlib

import pytest

from benchmarks import leftovers
from benchmarks.settings import RULES, TRANSFORMS, TrainingSetting
from benchmarks.training_outcome import TrainingOutcome, outcome
from ps_trainer import component_tables
from ps_trainer.launch.command import run_local, shared_server
from tests.testing.processes import END_SECS
from tests.testing.repetitions import representatives

DONE_SECS = 300.0  # a run takes 10 to 20 s of two free cores

# Two convolutions and two dense layers on images of 8x8, halved twice by pooling; float32.
CNN_PARAMETERS = (3 * 3 * 1 * 32 + 32) + (3 * 3 * 32 * 64 + 64) + (2 * 2 * 64 * 64 + 64) + (64 * 10 + 10)
CNN_BYTES = 4 * CNN_PARAMETERS

# One worker, so that a test is short. After that number of steps the slowest transform is right on 90 % of the test
# digits; 300 steps are 6.7 passes over the training digits. A guess is right on 10 %.
TRANSFORM_STEPS = 300
TRANSFORM_ACCURACY = 0.85


@pytest.fixture(scope="module", autouse=True)
def fork_server(tmp_path_factory):
    """The fork server of all launchers; its own output is not in the folder of a run."""
    shared_server(tmp_path_factory.mktemp("server"))


def run_to_its_end(folder: pathlib.Path, setting: TrainingSetting, *flags: str) -> TrainingOutcome:
    """Trains by the launcher, which must end with 0 and leave no process behind.

    All these tests share one process that has imported TensorFlow, from which the launcher is forked.
    """
    # The last value of a repeated flag counts.
    wall_secs = run_local([*setting.flags, *flags], folder, DONE_SECS, preloaded=True)
    assert leftovers.processes(folder, END_SECS) == []
    return outcome(json.loads((folder / "summary.json").read_text()), wall_secs)


# `test_examples.py` and the test below train real clusters to an accuracy; tests/updates/ compares each rule with its
# oracle, on real servers.
@pytest.mark.full
@pytest.mark.parametrize("rule", component_tables.UPDATES.names())
def test_rule_trains_to_96_percent_of_the_test_digits(tmp_path, rule):
    assert rule in RULES, f"update rule {rule!r} has no setting in benchmarks/settings.py"
    setting = RULES[rule]
    result = run_to_its_end(tmp_path, setting)
    assert result.accuracy >= 0.96
    assert result.global_step >= setting.max_steps
    assert len(result.local_steps) == setting.num_workers
    assert all(result.local_steps)


# `test_traffic.py` shows the bytes without a lossy transform; tests/gradients/ compares each transform with its oracle.
@pytest.mark.parametrize("transform", representatives(component_tables.GRADIENT_TRANSFORMS.names(), ["qsgd"]))
def test_transform_trains_and_a_lossy_one_sends_fewer_bytes(tmp_path, transform):
    assert transform in TRANSFORMS, f"gradient transform {transform!r} has no setting in benchmarks/settings.py"
    setting = TRANSFORMS[transform]
    flags = ("--num_workers=1", f"--max_steps={TRANSFORM_STEPS}")
    result = run_to_its_end(tmp_path, setting, *flags)
    assert result.accuracy >= TRANSFORM_ACCURACY
    assert result.global_step == TRANSFORM_STEPS
    if setting.least_factor > 1:
        assert result.push_bytes_per_step < CNN_BYTES / setting.least_factor
    else:
        assert result.push_bytes_per_step > CNN_BYTES
