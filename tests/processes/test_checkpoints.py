"""Checkpoints of real runs on a full or missing disk, and with files that were damaged between two runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess

import pytest

from tests.processes.hooks import FOLDER_VARIABLE
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED, wait_until, wait_until_frozen

FAILED = 1
WRONG_INPUT = 2
OFTEN = ("--save_checkpoint_secs=0.2", "--update=async")


@contextlib.contextmanager
def small_disk(folder, size):
    """A mounted file system of `size` at `folder`; skips the test where the system does not allow the mount."""
    folder.mkdir(parents=True)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def saved_steps(run):
    return sorted(
        int(path.suffixes[0][len(".ckpt-") :]) for path in (run.logdir / "checkpoints").glob("model.ckpt-*.index")
    )


def train(run, *flags):
    """Trains to the end and returns the chief."""
    ps, chief = run.start_all("--update=async", *flags)
    assert chief.wait(START_SECS) == 0
    assert ps.wait(END_SECS) == 0  # the next ps task needs its port
    return chief


def test_a_missing_disk_ends_the_run_after_some_saves_and_a_restart_continues(create_run):
    """A file takes the place of the moved folder, because that stops root's writes as well."""
    run = create_run(num_workers=1)
    checkpoints, aside = run.logdir / "checkpoints", run.logdir / "aside"
    ps, chief = run.start_all(UNLIMITED, *OFTEN)
    run.wait_for_step(10)
    wait_until(lambda: checkpoints.is_dir() and saved_steps(run), START_SECS, "no checkpoint was saved")
    checkpoints.rename(aside)
    checkpoints.write_text("")
    assert chief.wait(LOST_SECS) == FAILED
    assert [f"save {count} of --max_failed_saves" in chief.log for count in (1, 2, 3)] == [True, True, False]
    assert re.search(
        r"error: 3 consecutive saves have failed \(--max_failed_saves\): checkpoint .* could not", chief.log
    )
    assert ps.wait(END_SECS) == FAILED

    again = run.start_command("evaluate", "--model=softmax", f"--logdir={run.logdir}")
    assert again.wait(START_SECS) == WRONG_INPUT and "is not a folder" in again.log

    checkpoints.unlink()
    aside.rename(checkpoints)
    saved = saved_steps(run)[-1]
    log = train(run, f"--max_steps={saved + 20}").log
    # The disk may have gone when the next save had written everything, and had not renamed it yet.
    completed = re.findall(r"model\.ckpt-(\d+): a killed save had written it in full", log)
    newest = max([saved, *map(int, completed)])
    assert re.findall(r"restored .*model\.ckpt-(\d+), at step \1$", log, re.MULTILINE) == [str(newest)]


def test_a_full_disk_leaves_the_last_good_checkpoint_and_training_continues_for_some_saves(create_run):
    """The whole logdir is on that disk, so writes of metrics fail too, and do not end the run."""
    run = create_run(num_workers=1)
    with small_disk(run.logdir, "300k"):
        ps, chief = run.start_all(UNLIMITED, *OFTEN, "--keep_checkpoints=1000", "--max_failed_saves=5")
        assert chief.wait(START_SECS) == FAILED
        assert chief.log.count("Training continues") >= 4
        assert re.search(r"error: 5 consecutive saves have failed .*is full \([\d,]+ bytes are free.*newest", chief.log)
        assert ps.wait(END_SECS) == FAILED
        saved = saved_steps(run)
        assert not list((run.logdir / "checkpoints").glob("writing-*"))
        verify = run.start_command("checkpoint", "verify", str(run.logdir))
        assert verify.wait(START_SECS) == 0 and f"continues from model.ckpt-{saved[-1]}" in verify.log
        for step in saved[:-1]:
            for path in (run.logdir / "checkpoints").glob(f"model.ckpt-{step}.*"):
                path.unlink()
        chief = train(run, f"--max_steps={saved[-1] + 5}")
        assert f"model.ckpt-{saved[-1]}, at step {saved[-1]}" in chief.log


def test_a_disk_that_does_not_answer_ends_the_run_after_a_deadline_and_a_restart_continues(create_run, tmp_path):
    run = create_run(num_workers=1, env={FOLDER_VARIABLE: str(tmp_path)})
    hanging = ("--hook=tests.processes.hooks:HangInSave", "--heartbeat_timeout_secs=3", "--save_checkpoint_steps=5")
    ps, chief = run.start_all("--update=async", "--max_steps=30", *hanging)
    assert chief.wait(START_SECS) == FAILED
    assert re.search(r"error: the save of step 5 has not ended 1 s after .*checkpoints does not answer", chief.log)
    assert ps.wait(END_SECS) == FAILED
    assert saved_steps(run) == []
    train(run, "--max_steps=10")
    assert run.checkpoint_step() == 10


def test_a_chief_that_is_frozen_in_the_middle_of_a_save_finishes_it_when_it_thaws(create_run, tmp_path):
    run = create_run(
        flags=("--heartbeat_timeout_secs=3", "--recover_timeout_secs=90", "--hook=tests.processes.hooks:FreezeInSave"),
        env={FOLDER_VARIABLE: str(tmp_path)},
    )
    ps, chief, worker = run.start_all(UNLIMITED, *OFTEN)
    run.wait_for_step(10)
    wait_until(lambda: saved_steps(run)[-1:] > [0], START_SECS, "no checkpoint was saved")
    (tmp_path / "freeze").touch()
    wait_until_frozen(chief.pid, "the chief")
    ps.wait_for_log("worker 0 lost: no sign of life for", LOST_SECS)
    half = [path.name for path in (run.logdir / "checkpoints").glob("writing-*")]
    assert half, "the chief was not frozen in the middle of a save"
    newest = saved_steps(run)[-1]
    assert run.checkpoint_step() == newest, "the previous checkpoint is damaged"
    run.wait_for_step(run.last_step(1) + 10, workers=[1])
    reached = run.last_step(1)
    chief.send(signal.SIGCONT)
    wait_until(lambda: saved_steps(run)[-1] > reached, START_SECS, "it saves no more")
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS + 15) == 128 + signal.SIGTERM
    assert worker.wait(END_SECS + 15) == ps.wait(END_SECS + 15) == FAILED
    assert not list((run.logdir / "checkpoints").glob("writing-*"))
    assert run.checkpoint_step() == saved_steps(run)[-1]


def test_a_kill_in_the_middle_of_a_save_costs_only_that_save(create_run, tmp_path):
    """First the chief is killed, then the ps task, each while a save reads a table whose rows change."""
    run = create_run(
        flags=(
            UNLIMITED, *OFTEN, "--model=tests.testing.components:LargelyEmbedded", "--optimizer=adagrad",
            "--dataset=tests.testing.components:Rows", "--recover_timeout_secs=90",
            "--hook=tests.processes.hooks:HoldSave",
        ),
        env={FOLDER_VARIABLE: str(tmp_path)},
    )  # fmt: skip
    ps, chief, worker = run.start_all()
    newest = hold_save(run, tmp_path)
    kill(chief)
    release_save(tmp_path)
    chief = run.start_worker(0)
    chief.wait_for_log("attached to the run", LOST_SECS)
    wait_until(lambda: saved_steps(run)[-1] > newest, START_SECS, "the chief that is back saves nothing")

    newest = hold_save(run, tmp_path)
    kill(ps)
    worker.wait_for_log("ps-0 .*waiting up to 90 s for it to rejoin", LOST_SECS)
    release_save(tmp_path)
    ps = run.start_ps()
    chief.wait_for_log(f"model.ckpt-{newest}, at step {newest}", LOST_SECS)
    wait_until(lambda: saved_steps(run)[-1] > newest, START_SECS, "the run that continues saves nothing")
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS + 15) == 128 + signal.SIGTERM
    assert worker.wait(END_SECS + 15) == ps.wait(END_SECS + 15) == FAILED
    assert run.checkpoint_step() == saved_steps(run)[-1]


def hold_save(run, folder):
    """Holds up a save, whose table then changes; returns the step of the last complete one."""
    wait_until(lambda: saved_steps(run), START_SECS, "no checkpoint was saved")
    (folder / "hold").touch()
    wait_until((folder / "held").exists, START_SECS, "no save is held up")
    run.wait_for_step(run.last_step(1) + 10, workers=[1])
    return saved_steps(run)[-1]


def release_save(folder):
    for name in ("hold", "held"):
        (folder / name).unlink()


def kill(task):
    task.send(signal.SIGKILL)
    assert task.wait(END_SECS) == -signal.SIGKILL


def test_a_run_continues_from_the_newest_loadable_checkpoint_and_names_the_broken_one(create_run):
    run = create_run(num_workers=1)
    train(run, "--max_steps=10")
    train(run, "--max_steps=20")
    checkpoints = run.logdir / "checkpoints"
    broken = checkpoints / "model.ckpt-20.data-00000-of-00001"
    os.truncate(broken, broken.stat().st_size // 2)
    (checkpoints / "checkpoint").write_text("")
    chief = train(run, "--max_steps=30")
    assert re.search(r"model.ckpt-20: .* cannot be read: its data file is truncated", chief.log)
    assert "model.ckpt-10, at step 10" in chief.log
    assert run.checkpoint_step() == 30

    for path in checkpoints.glob("model.ckpt-*.index"):
        os.truncate(path, 10)
    refused = run.start_worker(0, "--max_steps=40")
    assert refused.wait(START_SECS) == WRONG_INPUT
    assert "none can be loaded" in refused.log and "--logdir to start from step 0" in refused.log
