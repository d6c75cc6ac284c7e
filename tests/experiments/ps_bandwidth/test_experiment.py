"""The experiment on bandwidth: its claims hold with correct links and store, and fail with broken ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.ps_bandwidth import cases as cases_module
from ps_trainer.experiments.ps_bandwidth import experiment as experiment_module
from ps_trainer.experiments.ps_bandwidth.cases import (
    Arm,
    LinkSetting,
    cases_of,
    colocated_secs,
    d2l_ratios,
    simulated_secs,
)
from ps_trainer.experiments.ps_bandwidth.claims import CLAIMS, OF_SIMULATOR
from ps_trainer.experiments.ps_bandwidth.experiment import PsBandwidth
from ps_trainer.experiments.toolkit import shaped_clusters
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster, payload_bytes_per_sec
from ps_trainer.experiments.toolkit.socket_rounds import SocketCluster
from ps_trainer.simulation import events
from ps_trainer.simulation.host_links import HostLinks
from ps_trainer.simulation.link import SharedLink
from tests.experiments.executed import drawn, findings_of, planned, refuted, results_of

M = 8_000_000


def phase(num_workers, bytes_by_ps, shared):
    """Bytes that each host sends and receives while all workers pull at once; a push has the opposite directions."""
    sent, received = {}, {}
    for ps, num_bytes in enumerate(bytes_by_ps):
        source = shared.get(f"ps-{ps}", f"ps-{ps}")
        for target in (f"worker-{worker}" for worker in range(num_workers)):
            if source != target:
                sent[source] = sent.get(source, 0) + num_bytes
                received[target] = received.get(target, 0) + num_bytes
    return sent, received


class FakeTransfer:
    """Replaces `ShapedCluster.train`: a transfer takes the time of the host with most bytes.

    Args:
        is_sharded: Whether the store divides variables between the ps tasks as it should.
        slowness: Factor on all times.
        overlaps: Whether chunks are pulled while others are pushed.
        of_bbr: Factor on the times under bbr.
        of_queues: Factor on the times of asynchronous workers with long queues.
    """

    def __init__(self, is_sharded=True, slowness=1.0, overlaps=True, of_bbr=1.3, of_queues=1.3):
        self.is_sharded = is_sharded
        self.slowness = slowness
        self.overlaps = overlaps
        self.of_bbr = of_bbr
        self.of_queues = of_queues

    def run(self, cluster):
        """Rounds of plain sockets: chunks overlap, a whole share does not."""
        n, p, unit_secs = (
            cluster.num_workers,
            cluster.num_ps,
            self.factor(cluster) / payload_bytes_per_sec(cluster.rate),
        )
        sent, received = phase(n, [cluster.num_bytes / p] * p, cluster.shared)
        both = {host: received.get(host, 0) + sent.get(host, 0) for host in {*sent, *received}}
        phases = 1 if cluster.num_chunks > 1 and self.overlaps else 2
        secs = phases * max([*sent.values(), *received.values()]) * unit_secs
        return self.done(secs, {host: (value, value) for host, value in both.items()})

    def factor(self, cluster):
        return self.of_bbr if cluster.congestion_control == "bbr" else 1.0

    def train(self, cluster, folder):
        n, p = cluster.num_workers, cluster.num_ps
        unit_secs = self.factor(cluster) / payload_bytes_per_sec(cluster.rate)
        num_bytes, is_whole = self.model(cluster)
        if cluster.settings["update"] == "all_reduce":
            each = 2 * (n - 1) / n * num_bytes
            return self.done(each * unit_secs, {f"worker-{i}": (each, each) for i in range(n)})
        shares = [num_bytes / p] * p
        if is_whole:
            shares = [0.75 * num_bytes, *[0.25 * num_bytes / (p - 1)] * (p - 1)]
        if not self.is_sharded:
            shares = [num_bytes, *[0] * (p - 1)]
        sent, received = phase(n, shares, cluster.shared)
        secs = 2 * max([*sent.values(), *received.values()]) * unit_secs
        if cluster.settings["update"] == "async":
            secs = simulated_secs(num_bytes, n, p, 1 / unit_secs)
            secs *= self.of_queues if cluster.queue_secs > 0.1 else 1.0
        both = {host: received.get(host, 0) + sent.get(host, 0) for host in {*sent, *received}}
        return self.done(secs, {host: (value, value) for host, value in both.items()})

    def done(self, secs, traffic):
        training = SimpleNamespace(steps_as_json=list, window=(0.0, 1.0))
        return SimpleNamespace(
            round_secs=self.slowness * secs,
            bytes_per_round=traffic,
            training=training,
            window=(0.0, 1.0),
            num_retransmitted=7,
            num_dropped=5,
        )

    def model(self, cluster):
        options = dict(text.split("=") for text in cluster.settings["model_option"])
        num_bytes = 4 * int(options["num_values"]) if "num_values" in options else 256 * int(options["num_rows"])
        return num_bytes, "partitioner=none" in cluster.settings.get("layout_option", ())


class Uneven(FakeTransfer):
    """Rounds that take longer with the first seed."""

    def train(self, cluster, folder):
        self.slowness = 1.6 if cluster.settings["seed"] == 0 else 1.0
        return super().train(cluster, folder)


def executed(monkeypatch, folder, wire, quick=False, seeds=(0,)):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "")
    monkeypatch.setattr(experiment_module, "_other_congestion_controls", lambda: ("bbr",))
    monkeypatch.setattr(ShapedCluster, "train", lambda cluster, folder: wire.train(cluster, folder))
    monkeypatch.setattr(SocketCluster, "run", lambda cluster: wire.run(cluster))
    experiment = PsBandwidth()
    return experiment, results_of(experiment, planned(experiment, seeds, quick=quick, level=Level.SHAPED), folder)


def test_a_correct_wire_refutes_no_claim(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer())
    findings = findings_of(experiment, results)
    assert set(findings) == {claim.key for claim in CLAIMS}
    assert set(findings.values()) == {ClaimFinding.OK}
    assert drawn(experiment.plots(results)) == ["round", "d2l", "largest_variable", "bytes"]


def test_seeds_that_disagree_leave_the_claims_about_times_undecided(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, Uneven(), seeds=range(3))
    found = findings_of(experiment, results)
    # Logarithms 0.47, 0, 0: the mean is 0.157, and t gives ± 2.92 · 0.271 / √3 = 0.457.
    assert {found[key] for key in ("ps_round", "unsharded", "partitioned")} == {ClaimFinding.UNDECIDED}
    assert {found[key] for key in ("bytes", "equals_ring")} == {ClaimFinding.OK}  # both arms differ alike


def test_the_table_has_what_a_round_loses(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(), quick=True)
    (table,) = [one for one in experiment.analyse(results).tables if one.title == "Time per round"]
    names = [column.name for column in table.columns]
    rounds = [case.setting.rounds for case in cases_of(results)]
    for name, count in (("segments sent again per round", 7), ("packets dropped per round", 5)):
        assert [row[names.index(name)] for row in table.rows] == [count / one for one in rounds]


def test_pulls_that_wait_for_pushes_refute_the_overlap(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(overlaps=False))
    assert refuted(findings_of(experiment, results)) == {"pipelined"}


def test_links_that_carry_both_directions_under_bbr_refute_the_cause(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(of_bbr=0.98))
    assert refuted(findings_of(experiment, results)) == {"congestion"}


def test_runs_under_bbr_count_for_the_comparison_only(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(of_bbr=3.0))
    assert refuted(findings_of(experiment, results)) == set()


def test_runs_with_long_queues_count_for_the_comparison_only(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(of_queues=3.0))
    assert refuted(findings_of(experiment, results)) == set()
    (table,) = [one for one in experiment.analyse(results).tables if one.title == "Time per round"]
    place = [column.name for column in table.columns].index("longest queue")
    assert {(row[0], row[place]) for row in table.rows if row[0] in ("ps", "async")} == {
        ("ps", 500),
        ("async", 50),
        ("async", 500),
    }


def test_workers_that_do_not_get_in_step_in_long_queues_refute_the_cause(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(of_queues=0.98))
    assert refuted(findings_of(experiment, results)) == {"queues"}


def test_without_bbr_nothing_is_compared_with_it(monkeypatch, tmp_path):
    monkeypatch.setattr(experiment_module, "_ALLOWED", tmp_path / "allowed")
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "")
    (tmp_path / "allowed").write_text("reno cubic\n")
    assert {run.settings.congestion_control for run in planned(PsBandwidth(), [0])} == {"reno"}
    (tmp_path / "allowed").write_text("reno bbr\n")
    assert {run.settings.congestion_control for run in planned(PsBandwidth(), [0])} == {"reno", "bbr"}


def test_the_quick_form_tests_links_ring_and_largest_variable(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(), quick=True)
    findings = findings_of(experiment, results)
    tested = ["bytes", "ps_round", "colocated", "equals_ring", "unsharded", "pipelined", "congestion"]
    assert findings == dict.fromkeys(tested, ClaimFinding.OK)


def test_a_store_with_everything_on_one_ps_task_is_refuted(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(is_sharded=False))
    assert {"bytes", "scaling", "ps_round", "colocated", "equals_ring", "partitioned", "d2l"} <= refuted(
        findings_of(experiment, results)
    )


def test_a_link_of_half_the_rate_is_refuted(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(slowness=2.0))
    findings = findings_of(experiment, results)
    assert {"ps_round", "colocated", "both_directions", "unsharded", "partitioned", "pipelined", "sockets"} <= refuted(
        findings
    )
    assert findings["bytes"] is findings["scaling"] is ClaimFinding.OK


def test_contended_runs_count_for_bytes_only(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(), quick=True)
    busy = Results(result._replace(cpu=CpuUse(0.9, 1.0, 1.0, 0.05)) for result in results)
    assert findings_of(experiment, busy) == {"bytes": ClaimFinding.OK}
    assert drawn(experiment.plots(busy)) == ["bytes"]


def test_without_shaped_hosts_the_findings_give_the_reason(monkeypatch):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "tc not found")
    experiment = PsBandwidth()
    assert planned(experiment, [0], level=Level.SHAPED) == []
    checked = [one for one in experiment.analyse(Results()).checked if one.claim in CLAIMS]
    assert {one.finding for one in checked} == {ClaimFinding.NOT_TESTABLE}
    assert all("tc not found" in one.text for one in checked)
    assert list(experiment.plots(Results())) == []


def simulated(folder, *, quick=False):
    experiment = PsBandwidth()
    runs = planned(experiment, [0], quick=quick, level=Level.VIRTUAL)
    return experiment, results_of(experiment, runs, folder)


def test_the_simulator_agrees_with_the_closed_forms_up_to_64_workers(tmp_path):
    experiment, results = simulated(tmp_path)
    assert {run.settings.n for run, *_ in results} == {2, 4, 8, 16, 32, 64}
    assert findings_of(experiment, results) == {claim.key: ClaimFinding.OK for claim in OF_SIMULATOR}
    assert drawn(experiment.plots(results)) == ["simulated_rounds"]


class HalfDuplex(HostLinks):
    """Broken links: both directions together have the bandwidth of one."""

    def _flows_by_link(self, chosen):
        flows = super()._flows_by_link(chosen)
        both = flows[: self._num_hosts] + flows[self._num_hosts :]
        return np.tile(both, 2)


class Unfair(SharedLink):
    """Broken link: each transfer has all of it."""

    def _rate(self):
        return self._capacity


@pytest.mark.parametrize(
    ("module", "name", "broken", "keys"),
    [
        (events, "HostLinks", HalfDuplex, {"simulated_colocated"}),
        (cases_module, "HostLinks", HalfDuplex, {"simulated_colocated"}),
        (events, "SharedLink", Unfair, {"simulated_ps", "simulated_async"}),
    ],
)
def test_a_broken_simulator_refutes_its_claims(monkeypatch, tmp_path, module, name, broken, keys):
    monkeypatch.setattr(module, name, broken)
    assert refuted(findings_of(*simulated(tmp_path, quick=True))) == keys


def test_asynchronous_workers_are_between_one_and_both_directions_of_a_link():
    unit_secs = M / 12e6
    assert 4 * unit_secs < simulated_secs(M, 4, 1, 12e6) < 0.8 * 2 * 4 * unit_secs


@pytest.mark.parametrize(("n", "p"), [(2, 2), (4, 4), (4, 1), (4, 2), (3, 2)])
def test_ps_tasks_on_workers_hosts_take_the_time_of_their_links_traffic(n, p):
    sent, received = phase(n, [M / p] * p, {f"ps-{i}": f"worker-{i}" for i in range(p)})
    assert colocated_secs(M, n, p, 1.0) == pytest.approx(2 * max([*sent.values(), *received.values()]))


def test_the_books_example_in_ratios(monkeypatch, tmp_path):
    _, results = executed(monkeypatch, tmp_path, FakeTransfer())
    ratios = [(published, measured.value) for _, published, measured in d2l_ratios(cases_of(results))]
    assert ratios == [(60 / 15, pytest.approx(2 * 3 / 1.5)), (80 / 15, pytest.approx(2 * 4 / 1.5)), (1, 1)]


def test_a_run_is_identified_by_the_json_of_its_setting(monkeypatch, tmp_path):
    experiment, results = executed(monkeypatch, tmp_path, FakeTransfer(), quick=True)
    assert all(isinstance(result, RunResult) for result in results)
    names = ("arm", "n", "p", "num_bytes", "rate", "rounds", "congestion_control")
    values = dict(zip(names, ("ps", 2, 1, 6_000_000, "100mbit", 5, "reno"), strict=True))
    assert results[0].run.identity()["settings"] == values
    assert results[0].run.settings == LinkSetting(Arm.PS, 2, 1, 6_000_000, "100mbit", 5)
