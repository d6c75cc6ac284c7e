"""The check that contenders compute the same: its reference, its verdict and its exit code; it starts nothing here."""

from __future__ import annotations

import pytest

from benchmarks import peer_workloads
from benchmarks.peers import check


def losses(factor: float) -> list[float]:
    return [factor * loss for loss in (2.0, 1.5, 1.25)]


@pytest.mark.parametrize(("factor", "code", "word"), [(1 + 1e-6, 0, "same"), (1 + 1e-4, 1, "DIFFERENT")])
def test_other_losses_are_an_error(factor, code, word, monkeypatch, capsys):
    monkeypatch.setattr(check, "reference", lambda workload, num_workers: losses(1.0))
    monkeypatch.setattr(check, "_losses", lambda *_: losses(factor))
    monkeypatch.setattr(check, "NUM_STEPS", 3)
    assert check.main(["--contenders=torch_ddp", "--workloads=deep"]) == code
    assert capsys.readouterr().out.startswith(f"{word}  deep ")


def test_only_the_first_loss_of_paddle_is_compared(monkeypatch):
    monkeypatch.setattr(check, "reference", lambda workload, num_workers: [2.0, 1.5])
    monkeypatch.setattr(check, "_losses", lambda *_: [2.0, 2.0])
    assert check.main(["--contenders=paddle_ps", "--workloads=scalar,table"]) == 0  # it does not train the table


def test_the_reference_averages_the_workers_gradients():
    """The loss is weight · mean(features), so that each gradient is a mean, and the weight falls by a constant."""
    means = [float(peer_workloads.batch("scalar", worker)["features"].mean()) for worker in (0, 1)]
    step = peer_workloads.LEARNING_RATE * sum(means) / 2
    start = float(peer_workloads.initial("weight", [], 0.5))
    wanted = [(start - number * step) * means[0] for number in range(check.NUM_STEPS)]
    assert check.reference("scalar", 2) == pytest.approx(wanted, rel=1e-5)
