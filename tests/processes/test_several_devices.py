"""`--devices_per_worker` in real clusters: the losses of one device, the same bytes on the wire, and early refusal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.testing.processes import START_SECS
from tests.testing.repetitions import repetitions

# Largest |difference| of a step's loss, of order 1, over few steps: float32 sums in another order.
BOUND = 1e-5
NAMES = ("push_bytes_per_step", "pull_bytes_per_step")


def trained(create_run, devices, flags, **counts):
    run = create_run(step_ms=0, flags=["--step_log", "--seed=3", *flags], **counts)
    assert run.start_local(f"--devices_per_worker={devices}").wait(START_SECS) == 0
    return run


def losses_of(run, worker):
    lines = (run.logdir / "steps" / f"worker-{worker}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize(
    "flags",
    repetitions(
        [
            ["--model=cnn", "--optimizer=momentum", "--learning_rate=0.01", "--max_steps=30"],
            ["--model=wide_deep", "--dataset=planted_clicks", "--optimizer=adagrad", "--batch_size=64"]
            + ["--dataset_option=num_train=2000", "--dataset_option=num_test=500", "--max_steps=30"],
        ],
        first=1,
    ),
    ids=lambda flags: flags[0].partition("=")[2],
)
def test_bytes_of_a_step_do_not_grow_with_the_number_of_devices(create_run, flags):
    one, four = (trained(create_run, devices, flags, num_workers=1) for devices in (1, 4))
    np.testing.assert_allclose(losses_of(four, 0)[:20], losses_of(one, 0)[:20], rtol=0, atol=BOUND)
    expected, figures = one.summary()["workers"]["0"], four.summary()["workers"]["0"]
    assert figures["push_bytes_computed"] == expected["push_bytes_computed"] > 0
    for name in NAMES:
        assert figures[name] == pytest.approx(expected[name], rel=0.02)


def test_workers_with_several_devices_train_together(create_run):
    flags = ["--model=mlp", "--update=sync", "--optimizer=adam", "--learning_rate=0.001", "--max_steps=20"]
    one, two = (trained(create_run, devices, flags, num_workers=2) for devices in (1, 2))
    for worker in (0, 1):
        np.testing.assert_allclose(losses_of(two, worker), losses_of(one, worker), rtol=0, atol=BOUND)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--devices_per_worker=3"], "batch_size=32 is not a multiple of it; give --batch_size=30 or --batch_size=33"),
        (["--devices_per_worker=0"], "devices_per_worker must be at least 1"),
        (["--devices_per_worker=2", "--sharding=dynamic"], "use --sharding=static"),
    ],
)
def test_a_batch_that_cannot_be_divided_ends_with_2_before_anything_starts(create_run, flags, reason):
    run = create_run(step_ms=0)
    launcher = run.start_local(*flags)
    assert launcher.wait(START_SECS) == 2
    (line,) = [line for line in launcher.log.splitlines() if line.startswith("error: ")]
    assert reason in line
    assert not run.logdir.exists()
