"""Tests of ps_trainer.cli.simulate: from flags to a run, its printed text and its files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from ps_trainer.cli import main, simulate
from ps_trainer.errors import OptionError


def run(*args: str) -> int:
    return main.main(["ps_trainer", "simulate", *args])


def test_prints_the_workers_schedule(capsys):
    rule = ["--update=ssp", "--update_option=staleness=2"]
    assert run("--num_workers=6", "--compute=exp", "--max_updates=500", *rule) == 0
    text = capsys.readouterr().out
    assert text.startswith("6 workers, 1 ps, ssp staleness=2, compute exp\nvirtual time (level L0), seed 0\n")
    assert "400 updates, without the first 100" in text
    assert "throughput" in text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ("async", [])),
        (["--backup_workers=2"], ("backup", ["backup_workers=2"])),
        (["--backup_workers=2", "--update=sync"], ("sync", ["replicas_to_aggregate=6"])),
        (["--backup_workers=2", "--update=token_queue"], ("token_queue", ["replicas_to_aggregate=6"])),
        (["--backup_workers=2", "--update=stock_sync"], ("stock_sync", ["replicas_to_aggregate=6"])),
        (["--backup_workers=2", "--update=k_sync"], ("k_sync", ["k=6"])),
        (["--backup_workers=0"], ("backup", ["backup_workers=0"])),
    ],
)
def test_backup_workers_become_the_rules_own_option(args, expected):
    fields = dict(arg.removeprefix("--").split("=") for arg in args)
    if "backup_workers" in fields:
        fields["backup_workers"] = int(fields["backup_workers"])
    assert simulate.update_of(simulate.SimulateFlags(num_workers=8, **fields)) == expected


def test_backup_workers_need_a_rule_that_has_them():
    with pytest.raises(OptionError, match="--update=async has no backup workers; use one of backup, sync"):
        simulate.update_of(simulate.SimulateFlags(update="async", backup_workers=1))
    with pytest.raises(OptionError, match="give 0 to 7"):
        simulate.update_of(simulate.SimulateFlags(num_workers=8, backup_workers=8))


def test_writes_figures_tables_and_their_origin(tmp_path, capsys):
    args = [
        "--num_workers=3",
        "--backup_workers=1",
        "--max_updates=50",
        "--seed=4",
        f"--out_dir={tmp_path}/a/b",
        "--steps",
    ]
    assert run(*args, "--compute=exp", "--compute=exp:worker=2,mean_ms=900") == 0
    folder = tmp_path / "a" / "b"
    assert f"written to {folder}" in capsys.readouterr().out
    result = json.loads((folder / "summary.json").read_text())
    assert result["level"] == "L0 virtual time"
    assert result["settings"]["update_option"] == ["backup_workers=1"]
    assert result["settings"]["compute"] == ["exp", "exp:worker=2,mean_ms=900"]
    assert (result["settings"]["seed"], result["settings"]["ps_bytes_per_sec"]) == (4, "inf")
    assert result["provenance"]["command"].startswith("ps_trainer simulate --num_workers=3")
    assert "numpy" in result["provenance"]["versions"]

    steps = list(csv.DictReader((folder / "steps.csv").open()))
    used = [step for step in steps if step["gs_applied"]]
    assert len(used) == 2 * 50 and int(used[-1]["gs_applied"]) == 50
    assert {step["dropped"] for step in steps if not step["gs_applied"]} <= {"1"}
    assert float(used[-1]["t_push_done"]) >= float(used[-1]["t_compute_done"]) >= float(used[-1]["t_start"])
    workers = list(csv.DictReader((folder / "workers.csv").open()))
    assert sum(int(worker["used"]) for worker in workers) == result["summary"]["gradients_used"] == 2 * 40
    (row,) = csv.DictReader((folder / "staleness.csv").open())
    assert row == {"staleness": "0", "gradients": "80"}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--compute=exq"], "--compute=exq: unknown delay distribution; did you mean exp"),
        (["--compute=exp:mean_ms=0"], "mean_ms=0: mean_ms must be above 0"),
        (["--update=hybrid"], "--update=hybrid: cannot be simulated; choose from async, downpour"),
        (["--update=asink"], "--update=asink: unknown update rule; did you mean async? known: async, downpour"),
        (["--max_updates=0"], "--max_updates=0: max_updates must be at least 1"),
        (["--num_workers=0"], "--num_workers=0: num_workers must be at least 1"),
        (["--steps"], "add --out_dir="),
        (["--workers=3"], "did you mean --num_workers?"),
        (["--out_dir=/dev/null/x"], "--out_dir=/dev/null/x cannot be made"),
    ],
)
def test_rejects_wrong_input_in_one_line(capsys, args, expected):
    assert run(*args) == 2
    captured = capsys.readouterr().err
    assert captured.startswith("error: ") and captured.count("\n") == 1
    assert expected in captured


def test_imports_no_tensorflow():
    code = (
        "import sys; from ps_trainer.cli import main;"
        " main.main(['ps_trainer', 'simulate', '--max_updates=20', '--num_workers=30', '--backup_workers=2']);"
        " sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stdout=subprocess.DEVNULL)
