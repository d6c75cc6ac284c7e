"""Finished runs on disk: the ones that count, the ones to repeat, and writes in one piece."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import pytest

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record, from_json
from ps_trainer.experiments.harness.run_store import RunStore, lock_folder
from ps_trainer.experiments.harness.runs import Measured, Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Record):
    """Settings of a run."""

    n: int
    rates: Sequence[int] = (1, 2)
    new: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures(Record):
    """Figures of a run."""

    mean: float
    by: Mapping[str, int]


RUN = Run(key="n=4-exp", level=Level.PROCESSES, settings=Settings(n=4), seed=3)
USE = CpuUse(0.25, 1.5, 0.5)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "e04", dict.fromkeys(Level, "v1"), lambda run, values: from_json(Figures, values))


def finish(store, run=RUN, steps=()):
    store.begin(run)
    return store.finish(run, Measured(Figures(mean=3.0, by={"1": 2}), steps), 12.5, USE)


def test_a_finished_run_is_read_back(store):
    made = finish(store, steps=[{"loss": 1.0}, {"loss": 0.5}])
    found = store.find(RUN)
    assert found == (made, "", "v1")
    assert (found.result.run, found.result.wall_secs, found.result.cpu) == (RUN, 12.5, USE)
    assert found.result.figures == Figures(mean=3.0, by={"1": 2})
    assert list(found.result.steps()) == [{"loss": 1.0}, {"loss": 0.5}]


def test_a_run_that_has_only_begun_does_not_count(store):
    assert store.find(RUN) == (None, "", "")
    store.begin(RUN)
    assert store.find(RUN) == (None, "", "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"settings": Settings(n=5)}, "other settings: n was 4, now 5"),
        ({"seed": 4}, "other settings: seed was 3, now 4"),
        ({"level": Level.SHAPED}, "level was 'L2 processes on one machine', now 'L3 shaped hosts'"),
        ({"settings": Settings(n=4, new=True)}, "new was None, now True"),
    ],
)
def test_a_run_of_other_settings_does_not_count(store, change, why):
    finish(store)
    found = store.find(dataclasses.replace(RUN, **change))
    assert found.result is None
    assert why in found.why_not


def test_the_expected_time_of_a_run_does_not_matter(store):
    finish(store)
    assert store.find(dataclasses.replace(RUN, expected_secs=99.0)).result is not None


def test_a_run_of_other_code_counts_only_on_request(store):
    finish(store)
    other = dataclasses.replace(store, versions=dict.fromkeys(Level, "v2"))
    assert other.find(RUN) == (None, "measured by other code (v1, now v2)", "")
    kept = dataclasses.replace(other, keeps_versions=True).find(RUN)
    assert kept.result is not None
    assert kept.version == "v1"


def test_a_run_without_a_figure_of_this_code_does_not_count(store):
    finish(store)
    path = store.folder / "runs" / RUN.key / "result.json"
    path.write_text(path.read_text().replace('"mean"', '"average"'))
    assert store.find(RUN) == (None, "result.json is of other code: without mean", "")


@pytest.mark.parametrize(("text", "why"), [('{"format": 1, "ru', "broken"), ('{"format": 0}', "another format")])
def test_a_broken_or_foreign_result_does_not_count(store, text, why):
    finish(store)
    (store.folder / "runs" / RUN.key / "result.json").write_text(text)
    found = store.find(RUN)
    assert found.result is None
    assert why in found.why_not


def test_a_repeated_run_begins_in_an_empty_folder(store):
    finish(store)
    (store.folder / "runs" / RUN.key / "log.txt").write_text("old")
    assert list(store.begin(RUN).iterdir()) == []
    assert store.find(RUN).result is None


@pytest.mark.parametrize("key", ["a/b", "..", ".hidden", "", "a b"])
def test_a_key_that_is_not_a_file_name_is_rejected(store, key):
    with pytest.raises(ValueError, match="not a file name"):
        store.begin(dataclasses.replace(RUN, key=key))


def test_a_folder_admits_one_call_at_a_time(tmp_path):
    folder = tmp_path / "new" / "out"
    with lock_folder(folder), pytest.raises(UsageError, match="another `experiment` is at work"), lock_folder(folder):
        pass
    with lock_folder(folder):
        assert folder.is_dir()


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out_dir=.*file.*: cannot write there"), lock_folder(tmp_path / "file"):
        pass


def test_figures_are_json(store):
    finish(store)
    record = json.loads((store.folder / "runs" / RUN.key / "result.json").read_text())
    assert record["run"] == {"level": RUN.level.value, "seed": 3, "settings": {"n": 4, "rates": [1, 2]}}
    assert record["cpu"] == {
        "share": 0.25,
        "tasks_secs": 1.5,
        "others_secs": 0.5,
        "delayed_share": None,
        "network_delayed_share": None,
    }
    assert record["num_attempts"] == 1
