"""Two tasks of a machine that want the same fact at the same moment: one computes it, the other waits for that one."""

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
