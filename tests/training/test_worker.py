"""What the chief writes on the way, and leaves of a run that does not come to its end."""

from __future__ import annotations

import json

import pytest

from ps_trainer.errors import Interrupted
from tests.testing.cluster import InProcessCluster, config_of, wait_until


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


def config(tmp_path, **fields):
    return config_of("Dense", "Rows", batch_size=4, logdir=str(tmp_path), **({"max_steps": 10**9} | fields))


def summary(tmp_path):
    return json.loads((tmp_path / "summary.json").read_text())


def test_saves_on_the_way_without_a_target_to_look_at(cluster, tmp_path):
    (outcome,) = cluster.run(config(tmp_path, max_steps=5, save_checkpoint_steps=2))
    assert outcome.code == 0
    assert {path.name for path in (tmp_path / "checkpoints").glob("*.index")} >= {
        f"model.ckpt-{step}.index" for step in (2, 4, 5)
    }


def test_of_an_interrupted_run_the_summary_says_so(cluster, tmp_path):
    call = cluster.start(config(tmp_path), 0)
    wait_until(lambda: call.made and len(call.made[-1].losses) > 3)
    call.stop.request(Interrupted(15))
    assert isinstance(cluster.finish_call(call).error, Interrupted)
    assert summary(tmp_path)["status"] == "interrupted"
