"""Two tasks that want the same fact at the same moment: one computes it, the other waits for that one."""

from __future__ import annotations

import os
import subprocess
import sys

# The computing task goes on only when the other one is waiting for it.
TASK = """
import pathlib, sys, time
from ps_trainer.data.pipeline import facts_cache
from ps_trainer.data.pipeline.facts import Facts

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]


class Time:
    monotonic = time.monotonic

    @staticmethod
    def sleep(secs):
        (folder / f"{name}.waits").touch()
        time.sleep(secs)


def compute():
    (folder / f"{name}.computes").touch()
    until = time.monotonic() + 60
    while not list(folder.glob("*.waits")) and time.monotonic() < until:
        time.sleep(0.01)
    return len((folder / "text").read_bytes())


facts_cache.time = Time
print(Facts().find("size", [folder / "text"], None, compute))
"""


def test_one_of_two_processes_computes_and_the_other_waits_for_it(tmp_path):
    (tmp_path / "text").write_bytes(b"word " * 2**18)
    environ = os.environ | {"PS_TRAINER_CACHE_DIR": str(tmp_path / "cache")}
    tasks = [
        subprocess.Popen([sys.executable, "-c", TASK, str(tmp_path), name], stdout=subprocess.PIPE, env=environ)
        for name in ("a", "b")
    ]
    assert [task.communicate(timeout=120)[0] for task in tasks] == [b"1310720\n"] * 2
    (computing,) = tmp_path.glob("*.computes")
    (waiting,) = tmp_path.glob("*.waits")
    assert computing.stem != waiting.stem


# The dataset of a run whose tasks have nothing in common but its folder.
RUN_TASK = """
import pathlib, sys
from ps_trainer.config import TrainConfig
from ps_trainer.data.formats.libsvm import LibSvm
from ps_trainer.data.pipeline import line_source
from ps_trainer.training import components

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]


def noted(function, kind):
    def call(*args):
        (folder / f"{name}.{kind}").touch()
        return function(*args)

    return call


LibSvm._examine_files = noted(LibSvm._examine_files, "examines")
line_source._count_lines = noted(line_source._count_lines, "counts")
config = TrainConfig(
    model="logistic_regression",
    dataset="libsvm",
    dataset_option=("train_files=text",),
    data_dir=str(folder),
    logdir=str(folder / "run"),
)
print(components.load(config, 2).dataset.num_features)
"""


def test_tasks_with_different_caches_and_one_logdir_look_at_the_data_once(tmp_path):
    (tmp_path / "text").write_bytes(b"1 7:1\n-1 3:1\n" * 2**17)
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", RUN_TASK, str(tmp_path), name],
            stdout=subprocess.PIPE,
            env=os.environ | {"PS_TRAINER_CACHE_DIR": str(tmp_path / f"cache of {name}")},
        )
        for name in ("a", "b")
    ]
    assert [task.communicate(timeout=240)[0].split() for task in tasks] == [[b"8"]] * 2
    for kind in ("examines", "counts"):
        assert len(list(tmp_path.glob(f"*.{kind}"))) == 1
