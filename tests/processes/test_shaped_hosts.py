"""Real tasks on emulated hosts with links of limited rate; and the error on systems that cannot emulate them."""

from __future__ import annotations

import json
import signal

import pytest

from ps_trainer.launch import hosts_iproute
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

USAGE = 2
PROBLEM = hosts_iproute.probe().problem
needs_namespaces = pytest.mark.skipif(bool(PROBLEM), reason=f"no shaped hosts here: {PROBLEM}")

# Two convolutions and two dense layers on images of 8x8, halved twice by pooling.
CNN_BYTES = 4 * ((3 * 3 * 1 * 32 + 32) + (3 * 3 * 32 * 64 + 64) + (2 * 2 * 64 * 64 + 64) + (64 * 10 + 10))


def namespaces_of(pid):
    """Names of the namespaces that the launcher with this pid has made, even if it has ended."""
    return [name for name in hosts_iproute.namespaces() if name.startswith(f"ps_trainer-{pid}-")]


def test_without_support_the_launcher_says_why_before_it_makes_anything(create_run, tmp_path):
    run = create_run(env={"PATH": str(tmp_path)})  # without ip and tc
    launcher = run.start_local("--hosts=netns", "--rate=200mbit")
    assert launcher.wait(START_SECS) == USAGE
    assert launcher.log.startswith("error: --hosts=netns is not available here: it needs Linux, root")
    assert launcher.log.rstrip().endswith("Use --hosts=local instead")
    assert len(launcher.log.splitlines()) == 1
    assert not run.logdir.exists()


@needs_namespaces
def test_a_run_trains_over_shaped_links_and_reports_their_traffic(create_run):
    run = create_run(step_ms=0, flags=("--model=cnn", "--update=sync", "--max_steps=60"))
    launcher = run.start_local("--hosts=netns", "--rate=200mbit")
    launcher.wait_for_log("serving on 10.0.0.1:2222")
    made = namespaces_of(launcher.pid)
    assert launcher.wait(START_SECS) == 0
    assert "2 workers in network namespaces, ps 200 mbit/s, workers 200 mbit/s;" in launcher.log
    assert len(made) == 1 + 3  # switch, ps, two workers
    assert namespaces_of(launcher.pid) == []
    assert run.remaining() == []
    assert run.summary()["status"] == "done"
    hosts = json.loads((run.logdir / "hosts.json").read_text())["tasks"]
    # A step carries the parameters to the worker and the gradient back, beside requests and headers.
    least = 60 * CNN_BYTES
    for worker in ("worker-0", "worker-1"):
        assert least < hosts[worker]["rx_bytes"] < 1.3 * least
        assert least < hosts[worker]["tx_bytes"] < 1.3 * least
    assert 2 * least < hosts["ps-0"]["rx_bytes"] < 1.3 * 2 * least
    # At most the bytes that the rate allows in that time: both directions of the ps task's link are full-duplex.
    secs = run.time_of_state("ps-0", "^done") - run.time_of_state("ps-0", "^serving")
    assert hosts["ps-0"]["tx_bytes"] * 8 < 200e6 * secs


@needs_namespaces
@pytest.mark.parametrize("signum", repetitions([signal.SIGINT, signal.SIGTERM], first=1))
def test_signal_to_the_launcher_ends_the_tasks_with_a_checkpoint_and_removes_the_hosts(create_run, signum):
    run = create_run(num_workers=1, flags=(UNLIMITED,))
    launcher = run.start_local("--hosts=netns", "--rate=200mbit")
    run.wait_for_step(10)
    launcher.send(signum)
    assert launcher.wait(END_SECS) == 128 + signum
    assert run.remaining() == []
    assert namespaces_of(launcher.pid) == []
    assert run.checkpoint_step() >= 10


@needs_namespaces
def test_after_a_kill_of_the_launcher_the_tasks_end_and_the_next_start_removes_the_hosts(create_run):
    run = create_run(num_workers=1, flags=(UNLIMITED,))
    launcher = run.start_local("--hosts=netns", "--rate=200mbit")
    run.wait_for_step(10)
    launcher.kill()
    run.wait_until_gone(LOST_SECS)
    assert len(namespaces_of(launcher.pid)) == 1 + 2  # switch, ps, worker
    next_run = create_run(num_workers=1, flags=("--max_steps=10",))
    assert next_run.start_local("--hosts=netns").wait(START_SECS) == 0
    assert namespaces_of(launcher.pid) == []
