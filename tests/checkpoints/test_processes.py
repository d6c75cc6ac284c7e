"""Saves of checkpoints in real processes that are killed at any moment, limited in file size, or on a full disk."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints import writer
from ps_trainer.errors import SaveError
from tests.checkpoints.checkpoint_files import DATA, files_of, names

pytestmark = pytest.mark.process

ROOT = pathlib.Path(__file__).resolve().parents[2]


# For each line of input, a forked process prints its pid and saves steps 1 to `steps`, 4 MB each. From step 2 on,
# `limit` limits a file's bytes (0: no limit).
SAVER = """
import json, os, pathlib, resource, sys
import numpy as np
from ps_trainer.errors import SaveError
from ps_trainer.checkpoints import writer

def save(folder, steps, limit):
    for step in range(1, steps + 1):
        if limit and step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        values = {"w": np.full([1000, 1000], step, np.float32), "global_step": np.int64(step)}
        try:
            writer.write(pathlib.Path(folder), step, values, keep=10**6 if limit else 2)
            print("saved", step, flush=True)
        except SaveError as error:
            print("failed", error, flush=True)

for line in sys.stdin:
    pid = os.fork()  # no session has been made, so TensorFlow has no threads that a fork would lose
    if pid == 0:
        print(os.getpid(), flush=True)
        save(*json.loads(line))
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

# For each moment, a forked process saves steps 1 and 2 into argv[1]/<moment>. It is killed in the second save, right
# before its sync or rename call of that number (0 to 7, in the order below), or for -1 before it writes anything.
KILLED_SAVER = """
import os, pathlib, signal, sys
import numpy as np
from ps_trainer.checkpoints import durable_files, writer

def armed(function, moment):
    def call(*args):
        global calls
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return function(*args)
    return call

def save(step):
    values = {"w": np.full([100, 100], step, np.float32), "global_step": np.int64(step)}
    writer.write(pathlib.Path(sys.argv[1], str(moment)), step, values)

for moment in range(-1, 8):
    pid = os.fork()  # no session has been made yet, so TensorFlow has no threads that a fork would lose
    if pid == 0:
        save(1)
        calls = -1
        writer._write_files = armed(writer._write_files, moment)
        durable_files.sync = armed(durable_files.sync, moment)
        durable_files.os.replace = armed(os.replace, moment)
        save(2)
        os._exit(0)
    print(moment, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def savers():
    """Starts a process that saves; gives its pid and its output, which ends with "ended" and the exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", SAVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:

        def start(folder, steps, limit=0):
            print(json.dumps([str(folder), steps, limit]), file=process.stdin, flush=True)
            return int(process.stdout.readline()), process.stdout

        yield start


def test_a_limit_on_the_file_size_leaves_the_last_good_checkpoint(savers, tmp_path):
    _, output = savers(tmp_path, steps=3, limit=1_000_000)
    lines = [output.readline().rstrip() for _ in range(4)]
    assert lines[0] == "saved 1" and "File too large" in lines[1] and "model.ckpt-3" in lines[2]
    assert lines[3] == "ended 0"
    assert names(tmp_path) == sorted(["checkpoint", *files_of(1)])
    assert checkpoint_lib.latest(tmp_path).step == 1


def test_a_kill_at_any_moment_of_a_save_loses_nothing_that_was_written(tmp_path):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_SAVER, str(tmp_path)], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert killed.stdout.split() == [str(word) for moment in range(-1, 8) for word in (moment, -signal.SIGKILL)]
    for moment in range(-1, 8):
        folder = tmp_path / str(moment)
        assert len(names(folder)) > 3 or moment == -1
        writer.repair(folder)
        step = 1 if moment == -1 else 2
        assert names(folder) == sorted(["checkpoint", *files_of(*range(1, step + 1))]), moment
        assert (checkpoint_lib.latest(folder)["w"] == step).all(), moment
        assert tf.train.latest_checkpoint(str(folder)) == str(folder / f"model.ckpt-{step}"), moment


def test_repeated_kills_while_saving_always_leave_a_whole_checkpoint(savers, tmp_path):
    """The process is killed at some moment after its n-th save has begun; the step may only grow."""
    reached = 0
    for kill_after in (1, 2, 4):
        pid, output = savers(tmp_path, steps=10**6)
        saved = [output.readline() for _ in range(kill_after)]
        os.kill(pid, signal.SIGKILL)
        saved += iter(output.readline, f"ended {-signal.SIGKILL}\n")
        assert all(line.startswith("saved") for line in saved)
        writer.repair(tmp_path)
        checkpoint = checkpoint_lib.latest(tmp_path)
        assert checkpoint.step >= max(kill_after, reached)
        assert (checkpoint["w"] == checkpoint.step).all()
        assert not [name for name in names(tmp_path) if name.startswith("writing-")]
        reached = checkpoint.step


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    """A file system of 10 MB: two checkpoints of 4 MB fit, the third does not."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(mounted)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        values = {"w": np.ones([1000, 1000], np.float32)}
        for step in (1, 2):
            writer.write(mounted, step, values | {"global_step": np.int64(step)})
        for step in (3, 4):
            with pytest.raises(SaveError, match=r"is full \([\d,]+ bytes are free, 4,000,008 are needed\)"):
                writer.write(mounted, step, values | {"global_step": np.int64(step)})
        assert names(mounted) == sorted(["checkpoint", *files_of(1, 2)])
        assert checkpoint_lib.latest(mounted).step == 2
        (mounted / f"model.ckpt-1{DATA}").unlink()
        writer.write(mounted, 5, values | {"global_step": np.int64(5)})
        assert checkpoint_lib.latest(mounted).step == 5
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
