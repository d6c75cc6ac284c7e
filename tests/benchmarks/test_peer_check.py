"""The check that contenders compute the same: its reference, its verdict and its exit code; it starts nothing here."""

from __future__ import annotations

import pytest

from benchmarks import peer_workloads
from benchmarks.peers import check, install


def losses(factor: float) -> list[float]:
    return [factor * loss for loss in (2.0, 1.5, 1.25)]


@pytest.mark.parametrize(("factor", "code", "word"), [(1 + 1e-6, 0, "same"), (1 + 1e-4, 1, "DIFFERENT")])
def test_other_losses_are_an_error(factor, code, word, monkeypatch, capsys):
    monkeypatch.setattr(check.peer_contenders, "missing", lambda names: [])
    monkeypatch.setattr(check, "reference", lambda workload, num_workers: losses(1.0))
    monkeypatch.setattr(check, "_losses", lambda *_: losses(factor))
    monkeypatch.setattr(check, "NUM_STEPS", 3)
    assert check.main(["--contenders=torch_ddp", "--workloads=deep"]) == code
    assert capsys.readouterr().out.startswith(f"{word}  deep ")


def test_only_the_first_loss_of_paddle_is_compared(monkeypatch, capsys):
    monkeypatch.setattr(check.peer_contenders, "missing", lambda names: [])
    monkeypatch.setattr(check, "reference", lambda workload, num_workers: [2.0, 1.5])
    monkeypatch.setattr(check, "_losses", lambda *_: [2.0, 2.0])
    assert check.main(["--contenders=paddle_ps", "--workloads=scalar,table"]) == 0
    assert capsys.readouterr().err == "left out, as not trained: paddle_ps on table\n"


def test_a_missing_environment_is_named_with_its_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    monkeypatch.setattr(check, "_losses", lambda *_: pytest.fail("a contender without its environment was started"))
    with pytest.raises(SystemExit) as ended:
        check.main(["--contenders=bare_ops,torch_ddp,paddle_ps"])
    assert ended.value.code == 2
    commands = "python -m benchmarks.peers.install paddle; python -m benchmarks.peers.install torch"
    message = f"--contenders: first run {commands} (or name other contenders)"
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_check_of_nothing_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(check.peer_contenders, "missing", lambda names: [])
    with pytest.raises(SystemExit) as ended:
        check.main(["--contenders=paddle_ps", "--workloads=table,large"])
    assert ended.value.code == 2
    message = "nothing to check, as none trains its workload: paddle_ps on table, paddle_ps on large"
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_reference_averages_the_workers_gradients():
    """The loss is weight · mean(features), so that each gradient is a mean, and the weight falls by a constant."""
    means = [float(peer_workloads.batch("scalar", worker)["features"].mean()) for worker in (0, 1)]
    step = peer_workloads.LEARNING_RATE * sum(means) / 2
    start = float(peer_workloads.initial("weight", [], 0.5))
    wanted = [(start - number * step) * means[0] for number in range(check.NUM_STEPS)]
    assert check.reference("scalar", 2) == pytest.approx(wanted, rel=1e-5)
