"""One process (`local --num_ps=0`) trains like one worker with one ps task, and keeps the same contract."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import signal

import numpy as np
import pytest

from tests.processes.hooks import FOLDER_VARIABLE
from tests.processes.stuck_data import NUM_BATCHES
from tests.testing.processes import END_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip

ALONE = {"num_ps": 0, "num_workers": 1}
BESIDE_A_PS = {"num_ps": 1, "num_workers": 1}
LISTENING = "0A"  # state of a socket in /proc/net/tcp
STEPS = 12


def losses_of(run, worker=0):
    """The losses of all steps, with every digit."""
    lines = (run.logdir / "steps" / f"worker-{worker}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def values_of(run):
    """Every tensor of the newest checkpoint, except what names the run."""
    reader = tf.train.load_checkpoint(str(run.logdir / "checkpoints"))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("data/")]
    return {name: reader.get_tensor(name) for name in sorted(names) if "pushes" not in name}


def trained(create_run, flags, **counts):
    """A run that is done."""
    run = create_run(step_ms=0, flags=["--step_log", "--batch_size=16", "--seed=3", *flags], **counts)
    assert run.start_local().wait(START_SECS) == 0
    return run


@pytest.mark.parametrize(
    "flags",
    repetitions(
        [
            ["--model=mlp", "--model_option=dropout=0.5", "--optimizer=momentum"],
            ["--model=word2vec", "--dataset=planted_synonyms", "--optimizer=adagrad"],
            ["--model=cnn", "--optimizer=adam", "--learning_rate=0.001", "--layout=per_variable"],
            ["--model=resnet", "--model_option=depth=8", "--update=sync", "--gradient_transform=top_k:ratio=0.1"],
        ],
        first=1,
    ),
    ids=lambda flags: flags[0].partition("=")[2],
)
def test_each_loss_and_the_final_state_equal_those_of_one_worker_with_one_ps_to_the_last_bit(create_run, flags):
    alone, beside = (trained(create_run, [*flags, f"--max_steps={STEPS}"], **c) for c in (ALONE, BESIDE_A_PS))
    assert losses_of(alone) == losses_of(beside)
    assert len(set(losses_of(alone))) > STEPS / 2  # it learns: equal zeros would prove nothing
    expected = values_of(beside)
    assert values_of(alone).keys() == expected.keys()
    for name, value in values_of(alone).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    summary, other = alone.summary(), beside.summary()
    assert summary["metrics"] == other["metrics"]
    assert summary.keys() == other.keys()
    assert summary["workers"]["0"].keys() == other["workers"]["0"].keys()
    assert summary["workers"]["0"]["staleness"] == other["workers"]["0"]["staleness"]
    assert summary["workers"]["0"]["push_bytes_per_step"] == summary["workers"]["0"]["pull_bytes_per_step"] == 0


@pytest.mark.parametrize("first", [ALONE, BESIDE_A_PS], ids=["from_one_process", "from_a_cluster"])
def test_a_checkpoint_goes_both_ways_between_one_process_and_a_cluster(create_run, first):
    flags = ["--model=mlp", "--optimizer=adam", "--learning_rate=0.001"]
    second = BESIDE_A_PS if first is ALONE else ALONE
    same = trained(create_run, [*flags, "--max_steps=8"], **first)
    again = create_run(step_ms=0, flags=["--step_log", "--batch_size=16", "--seed=3", *flags], **second)
    shutil.copytree(same.logdir, again.logdir)
    for run in (again, same):
        assert run.start_local("--max_steps=16").wait(START_SECS) == 0
    assert again.time_of_state("worker-0", r"^restored .*model\.ckpt-8, at step 8$")
    assert losses_of(again) == losses_of(same)
    for name, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(same)[name], err_msg=name)


def sockets_of(pid):
    """States of the TCP sockets of a process."""
    links = [path.readlink() for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    inodes = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", str(link)))}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]
    ]
    return [fields[3] for fields in lines if fields[9] in inodes]


def test_sigterm_saves_a_checkpoint_and_no_socket_was_ever_opened(create_run):
    run = create_run(**ALONE)
    launcher = run.start_local(UNLIMITED)
    run.wait_for_step(10)
    assert sum(sockets_of(pid).count(LISTENING) for pid in run.remaining()) == 0
    assert [sockets_of(pid) for pid in run.remaining()] == [[] for _ in run.remaining()]
    launcher.send(signal.SIGTERM)
    assert launcher.wait(END_SECS) == 128 + signal.SIGTERM
    assert run.remaining() == []
    step = run.checkpoint_step()
    assert step >= 10
    assert run.summary()["status"] == "interrupted"
    assert run.start_local(f"--max_steps={step + 5}").wait(START_SECS) == 0
    assert run.time_of_state("worker-0", rf"^restored .*model\.ckpt-{step}, at step {step}$")
    assert run.summary()["global_step"] == step + 5


def test_ctrl_c_to_a_task_that_trains_alone_saves_a_checkpoint(create_run):
    run = create_run(**ALONE)
    flags = ["--alone", UNLIMITED, "--model=softmax", "--report_secs=0.2", f"--logdir={run.logdir}"]
    task = run.start_command("task", *flags)
    run.wait_for_step(10)
    task.send(signal.SIGINT)
    assert task.wait(END_SECS) == 128 + signal.SIGINT
    assert run.checkpoint_step() >= 10


@pytest.mark.parametrize("counts", [ALONE, BESIDE_A_PS], ids=["one_process", "cluster"])
def test_sigterm_while_a_step_waits_for_data_saves_a_checkpoint(create_run, counts):
    # Each step takes longer than the interval of the reports, so the last step before the silence is reported.
    run = create_run(step_ms=250, flags=["--dataset=tests.processes.stuck_data:Stuck"], **counts)
    task = run.start_local(UNLIMITED)
    run.wait_for_step(NUM_BATCHES)
    task.send(signal.SIGTERM)
    assert task.wait(END_SECS) == 128 + signal.SIGTERM
    assert run.checkpoint_step() == NUM_BATCHES
    assert run.summary()["status"] == "interrupted"


def test_a_killed_process_is_restarted_from_its_checkpoint(create_run):
    run = create_run(flags=["--save_checkpoint_steps=5", "--recover_timeout_secs=60"], **ALONE)
    launcher = run.start_local("--max_steps=30", "--max_restarts=1", "--fault=kill:worker:0@step=12")
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["restarts"] == {"worker-0": 1}
    assert run.summary()["global_step"] == 30
    assert run.time_of_state("worker-0", r"^restored .*, at step [1-9]\d*$")


def test_hooks_target_metric_and_the_end_of_the_data_work_as_in_a_cluster(create_run, tmp_path):
    hooked = create_run(
        flags=("--hook=tests.processes.hooks:StopOnRequest", UNLIMITED), env={FOLDER_VARIABLE: str(tmp_path)}, **ALONE
    )
    launcher = hooked.start_local()
    hooked.wait_for_step(5)
    (tmp_path / "stop").touch()
    assert launcher.wait(START_SECS) == 0
    assert hooked.summary()["status"] == "done"
    target = create_run(
        step_ms=0, flags=(UNLIMITED, "--target_metric=accuracy>=0.5", "--save_checkpoint_steps=20"), **ALONE
    )
    assert target.start_local().wait(START_SECS) == 0
    assert target.summary()["metrics"]["accuracy"] >= 0.5
    epoch = create_run(step_ms=0, flags=("--num_epochs=1", "--max_steps=none", "--batch_size=100"), **ALONE)
    assert epoch.start_local().wait(START_SECS) == 0
    assert epoch.summary()["global_step"] == 14  # 1437 training digits in whole batches of 100


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--sharding=dynamic"], "use --sharding=static"),
        (["--placement=model_parallel"], "only one stage"),
        (["--dataset_option=size=3"], "unknown key 'size'"),
    ],
)
def test_what_makes_no_sense_in_one_process_ends_with_2_and_one_line(create_run, flags, reason):
    run = create_run(step_ms=0, **ALONE)
    launcher = run.start_local(*flags)
    assert launcher.wait(START_SECS) == 2
    (line,) = [line for line in launcher.log.splitlines() if line.startswith("error: ")]
    assert reason in line
    assert not run.logdir.exists()
