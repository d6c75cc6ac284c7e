"""The results read from a cluster's run, and one run in real processes."""

from __future__ import annotations

import json

import pytest

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit import clusters
from ps_trainer.experiments.toolkit.clusters import Cluster, Training
from tests.testing.step_records import log_of, step_record

STEPS = [
    step_record(
        worker=i % 2, local_step=i // 2 + 1, t_end=10.0 + 0.5 * i, wall_time=1e9 + 10.0 + 0.5 * i, staleness=i % 3
    )
    for i in range(10)
]


@pytest.fixture
def trained(monkeypatch):
    """Replaces the launcher: writes the given steps of each worker; returns the flags that the launcher was given."""
    given = []

    def use(steps):
        def run_local(flags, logdir, deadline_secs, preloaded):
            given.append((list(flags), logdir, deadline_secs))
            (logdir / "steps").mkdir(parents=True)
            (logdir / "summary.json").write_text(json.dumps({"global_step": 7}))
            for worker in (0, 1):
                log = log_of(step for step in steps if step.worker == worker)
                (logdir / "steps" / f"worker-{worker}.jsonl").write_text(log)
            return 12.0

        monkeypatch.setattr(clusters, "run_local", run_local)
        return given

    return use


def test_a_run_gives_its_summary_and_all_steps_in_the_order_of_time(trained, tmp_path):
    given = trained(STEPS)
    training = Cluster(num_workers=2, flags=["--max_steps=7"], deadline_secs=50.0).train(tmp_path)
    assert training == Training({"global_step": 7}, STEPS, 12.0)
    flags = ["--num_ps=1", "--num_workers=2", "--step_log", "--steps_per_call=1", "--max_steps=7"]
    assert given == [(flags, tmp_path / "cluster", 50.0)]


def test_warm_up_is_left_out_of_rates_and_counts():
    training = Training({}, STEPS, 12.0)
    assert training.warm_steps == STEPS[2:]
    assert training.window == (1e9 + 11.0, 1e9 + 14.5)
    assert training.steps_per_sec == pytest.approx(7 / 3.5)
    assert {worker: len(steps) for worker, steps in training.by_worker().items()} == {0: 4, 1: 4}


def test_a_run_with_hardly_any_step_fails(trained, tmp_path):
    trained(STEPS[:2])
    with pytest.raises(RunError, match="2 steps are too few"):
        Cluster(num_workers=2).train(tmp_path)


@pytest.mark.process
def test_a_real_cluster_logs_every_step(tmp_path):
    flags = ("--model=softmax", "--dataset=digits", "--update=async", "--learning_rate=0.01", "--max_steps=60")
    training = Cluster(num_workers=2, flags=flags, deadline_secs=120.0).train(tmp_path)
    workers = training.summary["workers"]
    assert len(training.steps) == sum(worker["local_steps"] for worker in workers.values())
    for index in (0, 1):
        own = [step for step in training.steps if step.worker == index]
        assert [step.local_step for step in own] == list(range(1, len(own) + 1))
        assert all(step.t_start <= step.t_end for step in own)
        assert all(step.loss > 0 and step.examples == 32 and step.dropped == 0 for step in own)
        counts = {int(value): count for value, count in workers[str(index)]["staleness"].items()}
        assert sum(step.staleness for step in own) == sum(value * count for value, count in counts.items())
    # Each update belongs to one worker, so the updates of the steps are all different.
    assert sorted(step.global_step for step in training.steps) == list(range(1, len(training.steps) + 1))
