"""The control in real processes, and the failures of the single process."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError, RunError
from ps_trainer.experiments.toolkit import clusters, local_control, single_process

SETTINGS = {"model": "mlp", "model_option": ["hidden=32"], "dataset": "digits", "batch_size": 8, "max_steps": 12}


def test_one_worker_with_two_ps_tasks_has_the_losses_of_one_process_to_the_last_bit(tmp_path):
    done = local_control.compare({**SETTINGS, "optimizer": "momentum", "seed": 5}, tmp_path, num_ps=2)
    assert [step["loss"] for step in done.local] == [step["loss"] for step in done.cluster.steps]
    assert done.loss_difference == 0.0
    assert done.is_equal
    assert len(done.local) == 12
    assert done.local[0]["loss"] != done.local[-1]["loss"]  # it learns: equal zeros would prove nothing
    assert len(done.local_ms()) == len(done.cluster_ms()) == 12 - int(0.2 * 12)


def test_a_failed_child_reports_its_error(tmp_path):
    with pytest.raises(RunError, match="exit code 1\n.*dataset has 1437|batch_size=100000"):
        single_process.train_in_child({**SETTINGS, "batch_size": 100_000}, tmp_path, 100.0)


def test_a_slow_child_is_ended(tmp_path):
    with pytest.raises(RunError, match="not done after 0.01 s"):
        single_process.train_in_child(SETTINGS, tmp_path, 0.01)


def test_a_number_of_steps_is_required_because_nothing_else_ends_the_run():
    with pytest.raises(OptionError, match="max_steps=None"):
        single_process.config_of({**SETTINGS, "max_steps": None, "num_epochs": 1})


def test_settings_become_flags_one_for_each_entry():
    assert clusters.flags_of({"seed": 3, "model_option": ["a=1", "b=2"]}) == [
        "--seed=3",
        "--model_option=a=1",
        "--model_option=b=2",
    ]
