"""The soak driver: its flags, its readings of processes, and its limit of growth."""

from __future__ import annotations

import os

import pytest

from benchmarks import soak
from benchmarks.contenders import REPOSITORY
from benchmarks.soak import Sample
from ps_trainer.errors import RunError


@pytest.mark.parametrize("flag", ["--minutes=0", "--kill_every_secs=0", "--warmup_secs=3600", "--hours=1"])
def test_wrong_flags_end_with_2(tmp_path, flag):
    with pytest.raises(SystemExit) as ended:
        soak.parse_plan([f"--out_dir={tmp_path / 'out'}", flag])
    assert ended.value.code == 2


def test_a_kill_a_minute_for_an_hour(tmp_path):
    plan = soak.parse_plan([f"--out_dir={tmp_path / 'out'}"])
    assert "--fault=chaos:kills=59,roles=ps+worker+chief,seed=0,every_secs=60" in soak.flags_of(plan)


def test_counts_open_files_of_a_process():
    before = soak.num_fds(os.getpid())
    with open(os.devnull), open(os.devnull):
        assert soak.num_fds(os.getpid()) == before + 2


def samples(rss_of_ps, *, young=False):
    """One look a second at each role; `rss_of_ps` has one entry per look."""
    found = []
    for second, rss in enumerate(rss_of_ps):
        age = 1.0 if young else 100.0 + second
        found += [Sample(second, "ps-0", 7, age, rss, 10), Sample(second, "worker-1", 8, age, 50.0, 20)]
        found.append(Sample(second, "launcher", 6, age, 30.0, 4))
    return found


def test_compares_the_first_and_the_last_quarter_after_the_warm_up():
    values = [10.0] * 10 + [100.0] * 10 + [105.0] * 20 + [110.0] * 10  # 10 s of warm-up
    grown = {(one.role, one.figure): one for one in soak.growth(samples(values), warmup_secs=10)}
    assert set(grown) == {(role, figure) for role in soak.ROLES for figure in ("rss_mib", "num_fds")}
    assert grown["ps", "rss_mib"].share == pytest.approx(110 / 100 - 1)
    assert grown["workers", "rss_mib"].share == 0
    problems = soak.find_problems(list(grown.values()))
    assert problems == ["rss_mib of ps 100.0 -> 110.0 (+10.0 %)"]


def test_young_processes_do_not_count():
    assert soak.growth(samples([10.0] * 50, young=True), warmup_secs=0) == []
    problems = soak.find_problems([])
    assert [problem.partition(": no process was old enough")[0] for problem in problems] == [
        "ps",
        "workers",
        "launcher",
    ]


def test_constant_figures_are_not_a_problem():
    assert soak.find_problems(soak.growth(samples([10.0] * 50), warmup_secs=0)) == []


def test_a_run_that_ends_early_fails(tmp_path):
    found = []
    with pytest.raises(RunError, match="training ended by itself, with exit code 2"):
        soak.train_and_sample(found, 0.01, ["--no_flag"], tmp_path / "run", 120.0, cwd=REPOSITORY, environ=os.environ)
    assert {sample.task for sample in found} == {"launcher"}
