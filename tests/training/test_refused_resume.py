"""A run that is refused because of its settings leaves the files of the run in its folder as they were."""

from __future__ import annotations

import json

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from tests.testing.cluster import InProcessCluster


def test_the_records_and_the_result_survive_a_run_with_another_model(tmp_path):
    def config(**settings):
        return TrainConfig(model="mlp", dataset="digits", logdir=str(tmp_path), recover_timeout_secs=0.0, **settings)

    with InProcessCluster(1, 1) as cluster:
        cluster.run(config(model_option=("hidden=4",), max_steps=2))
    before = {name: (tmp_path / name).read_bytes() for name in ("config.json", "dataset.json", "summary.json")}
    assert "hidden=4" in json.loads(before["config.json"])["train"]["model_option"]
    with InProcessCluster(1, 1, is_new=True) as cluster, pytest.raises(CheckpointError, match="has the shape"):
        cluster.run(config(model_option=("hidden=5",), max_steps=4))
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
