"""The control in real processes."""

from __future__ import annotations

import pytest

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit import clusters, local_control

SETTINGS = {"model": "mlp", "model_option": ["hidden=32"], "dataset": "digits", "batch_size": 8, "max_steps": 12}


@pytest.mark.process
def test_one_worker_with_two_ps_tasks_has_the_losses_of_one_process_to_the_last_bit(tmp_path):
    done = local_control.compare({**SETTINGS, "optimizer": "momentum", "seed": 5}, tmp_path, num_ps=2)
    assert [step.loss for step in done.local] == [step.loss for step in done.cluster.steps]
    assert done.loss_difference == 0.0
    assert done.is_equal
    assert len(done.local) == 12
    assert done.local[0].loss != done.local[-1].loss  # it learns: equal zeros would prove nothing
    assert len(done.local_ms()) == len(done.cluster_ms()) == 12 - int(0.2 * 12)


@pytest.mark.process
def test_the_control_fails_with_the_error_of_its_process(tmp_path):
    with pytest.raises(RunError, match="exit code 2\n(?s:.*)batch_size=100000"):
        local_control.compare({**SETTINGS, "batch_size": 100_000}, tmp_path)


def test_settings_become_flags_one_for_each_entry():
    assert clusters.flags_of({"seed": 3, "model_option": ["a=1", "b=2"]}) == [
        "--seed=3",
        "--model_option=a=1",
        "--model_option=b=2",
    ]
