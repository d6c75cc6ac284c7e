"""Clusters on shaped hosts: their flags, the figures from their steps, and their ends; one of them is real."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from ps_trainer.errors import Interrupted, RunError, UsageError
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.null_step import experiment as null_step
from ps_trainer.experiments.null_step.cases import Curve
from ps_trainer.experiments.ps_bandwidth import experiment as ps_bandwidth
from ps_trainer.experiments.scaling_curve import experiment as scaling_curve
from ps_trainer.experiments.toolkit import shaped_clusters
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster, ShapedTraining
from ps_trainer.experiments.toolkit.shaped_hosts import BytesPerSec
from ps_trainer.store.packed import default_piece_bytes, piece_sizes
from tests.testing.step_records import log_of, step_record

needs_namespaces = pytest.mark.skipif(
    bool(shaped_clusters.why_not()), reason=f"no shaped hosts here: {shaped_clusters.why_not()}"
)


def step(worker, t_end):
    return step_record(worker=worker, t_end=t_end, wall_time=1000 + t_end)


def training_of(*ends_by_worker):
    steps = sorted(
        (step(worker, t_end) for worker, ends in enumerate(ends_by_worker) for t_end in ends), key=lambda s: s.t_end
    )
    return Training({}, steps, 10.0)


def test_a_round_of_synchronous_workers_is_a_step():
    done = ShapedTraining(training_of([1, 3, 5, 7, 9], [1.1, 3.1, 5.1, 7.1, 9.1]), {"ps-0": BytesPerSec(5.0, 3.0)})
    assert done.round_secs == pytest.approx(2.0)
    assert done.bytes_per_round == {"ps-0": pytest.approx((10.0, 6.0))}


def test_a_round_of_other_workers_is_n_divided_by_their_rate():
    done = ShapedTraining(training_of([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 4, 8]), {})
    assert done.step_secs == {0: [1] * 7, 1: [4]}  # the first 20 %, both at 0, are left out
    assert done.round_secs == pytest.approx(2 / (1 / 1 + 1 / 4))


def test_payload_is_the_share_of_full_frames_that_tcp_carries():
    assert shaped_clusters.payload_bytes_per_sec("200mbit") == pytest.approx(25e6 * 1448 / 1514)


def launched(monkeypatch, code, hosts_traffic=None):
    """A `local.run` that writes the files of two steps and returns a code; the fixture gives its arguments."""
    given = {}

    def run(cluster, *, console, **others):
        given.update(dataclasses.asdict(cluster), config=cluster.config)
        console.print("what it said")
        logdir = given["logdir"] = cluster.config.logdir
        steps = shaped_clusters.pathlib.Path(logdir) / "steps"
        steps.mkdir()
        (steps / "worker-0.jsonl").write_text(log_of(step(0, float(i)) for i in range(5)))
        (steps.parent / "summary.json").write_text("{}")
        return code

    monkeypatch.setattr(shaped_clusters.local, "run", run)
    monkeypatch.setattr(shaped_clusters.MeteredHosts, "between", lambda hosts, start, end: {"window": (start, end)})
    return given


def test_flags_and_configuration_agree(monkeypatch, tmp_path):
    given = launched(monkeypatch, 0)
    cluster = ShapedCluster(
        num_workers=3, num_ps=2, rate="150mbit", settings={**shaped_clusters.dense_model(8_000_000), "update": "sync"}
    )
    done = cluster.train(tmp_path)
    assert (given["num_workers"], given["num_ps"]) == (3, 2)
    assert "--model_option=num_values=2000000" in given["train_args"]
    assert "--update=sync" in given["train_args"]
    assert given["config"].model_option == ("num_values=2000000",)
    assert given["config"].update == "sync"
    assert done.traffic == {"window": (1001.0, 1004.0)}  # without warm-up, the first of five


def test_the_share_of_a_ps_task_travels_as_one_message(monkeypatch, tmp_path):
    given = launched(monkeypatch, 0)
    model = shaped_clusters.dense_model(shaped_clusters.MOST_BYTES)
    ShapedCluster(num_workers=1, num_ps=1, rate="150mbit", settings=model).train(tmp_path)
    (option,) = given["config"].layout_option
    name, _, max_bytes = option.partition("=")
    num_values = shaped_clusters.MOST_BYTES // 4
    assert name == "max_piece_bytes"
    assert piece_sizes([num_values], int(max_bytes) // 4) == [num_values]
    assert len(piece_sizes([num_values // 64] * 64, int(max_bytes) // 4)) == 1
    by_default = default_piece_bytes(shaped_clusters.MOST_BYTES, spans_hosts=True)
    assert len(piece_sizes([num_values // 64] * 64, by_default // 4)) > 1


@pytest.mark.parametrize(
    ("part", "bytes_and_ps"),
    [
        (null_step.RealSteps(), lambda one: (one.megabytes * 1e6 * (one.curve is Curve.DENSE), one.p)),
        (scaling_curve.OurScale(), lambda one: (one.cluster.num_bytes, one.cluster.p)),
        (ps_bandwidth.ShapedLinks(), lambda one: (one.num_bytes, max(1, one.p))),
    ],
)
def test_no_experiment_has_larger_shares(monkeypatch, part, bytes_and_ps):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "")
    shaped = [
        run.settings for quick in (True, False) for run in part.runs([0], quick=quick) if run.level is Level.SHAPED
    ]
    assert shaped
    assert all(num_bytes / p <= shaped_clusters.MOST_BYTES for num_bytes, p in map(bytes_and_ps, shaped))


@pytest.mark.parametrize("settings", [{"update": "nonsense"}, {"batch_size": 0}])
def test_wrong_settings_are_rejected_before_anything_starts(monkeypatch, tmp_path, settings):
    given = launched(monkeypatch, 0)
    with pytest.raises(UsageError):
        ShapedCluster(num_workers=1, num_ps=1, rate="150mbit", settings=settings).train(tmp_path)
    assert not given


def test_a_failed_run_reports_its_output(monkeypatch, tmp_path):
    launched(monkeypatch, 1)
    with pytest.raises(RunError, match="(?s)exit code 1.*what it said"):
        ShapedCluster(num_workers=1, num_ps=1, rate="150mbit").train(tmp_path)


def test_a_signal_is_not_a_failure_of_the_run(monkeypatch, tmp_path):
    launched(monkeypatch, 128 + signal.SIGINT)
    with pytest.raises(Interrupted):
        ShapedCluster(num_workers=1, num_ps=1, rate="150mbit").train(tmp_path)


@pytest.mark.process
@needs_namespaces
def test_traffic_between_tasks_on_one_host_does_not_use_the_link(tmp_path):
    settings = {**shaped_clusters.dense_model(1_000_000), "update": "sync", "max_steps": 8}
    cluster = ShapedCluster(
        num_workers=2, num_ps=1, rate="400mbit", shared={"ps-0": "worker-0"},
        settings={**settings, "straggler": ("det:mean_ms=100",)},
    )  # fmt: skip
    done = cluster.train(tmp_path)
    assert set(done.traffic) == {"worker-0", "worker-1"}
    for host, other in (("worker-0", "worker-1"), ("worker-1", "worker-0")):
        # One of two workers pulls and pushes its megabyte over the link, the other one stays on its own host.
        assert done.bytes_per_round[host].received == pytest.approx(done.bytes_per_round[other].sent, rel=0.02)
        assert done.bytes_per_round[host].received == pytest.approx(1_000_000, rel=0.2)
