"""Gradients that plain sockets add up: right sums, right bytes, and no process left behind."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit import socket_rounds, socket_task
from ps_trainer.experiments.toolkit.socket_rounds import SocketCluster
from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.hosts import TaskHost

PROBLEM = hosts_iproute.probe().problem
MB = 10**6


@pytest.fixture(autouse=True)
def deadline(monkeypatch):
    monkeypatch.setattr(socket_rounds, "_DEADLINE_SECS", 30.0)


def outputs(cluster):
    """What the tasks of a cluster print, all of them on this machine without shaped links."""
    tasks = [*(f"ps-{i}" for i in range(cluster.num_ps)), *(f"worker-{i}" for i in range(cluster.num_workers))]
    placed = {
        task: TaskHost(f"127.0.0.1:{port}") for task, port in zip(tasks, pick_free_ports(len(tasks)), strict=True)
    }
    specs = cluster._specs(placed)
    with socket_rounds._processes([(placed[task], spec) for task, spec in specs.items()]) as processes:
        return [socket_rounds._output_of(process) for process in processes]


@pytest.mark.parametrize(("num_workers", "num_ps", "num_chunks"), [(3, 2, 1), (2, 2, 4), (3, 0, 1), (2, 0, 1)])
def test_every_worker_gets_the_sum_of_all_gradients_in_every_round(num_workers, num_ps, num_chunks):
    cluster = SocketCluster(
        num_workers=num_workers, num_ps=num_ps, num_bytes=4001 * 4, rate="1gbit", num_rounds=3, num_chunks=num_chunks
    )
    ends = [json.loads(text)["ends"] for text in outputs(cluster) if text]  # a task with a wrong sum fails
    assert [len(own) for own in ends] == [3] * num_workers
    assert all(own == sorted(own) for own in ends)


def test_a_wrong_sum_is_an_error():
    socket_task._check(np.full(4, 6.0, np.float32), 3)
    with pytest.raises(ValueError, match=r"a sum is 5\.0, not 6"):
        socket_task._check(np.array([6, 5, 6], np.float32), 3)


def test_a_failed_task_ends_the_run_with_its_error(monkeypatch):
    monkeypatch.setattr(socket_rounds, "_MODULE", "ps_trainer.no_such_module")
    cluster = SocketCluster(num_workers=1, num_ps=1, num_bytes=400, rate="1gbit", num_rounds=1)
    with pytest.raises(RunError, match="No module named"):
        outputs(cluster)


def test_a_task_that_loses_its_partner_ends_with_an_error():
    (port,) = pick_free_ports(1)
    common = {"num_workers": 1, "num_rounds": 1, "num_values": 100_000, "num_chunks": 1}
    ps = {"job": "ps", "address": f"127.0.0.1:{port}", **common}
    with socket_rounds._processes([(TaskHost(""), ps)]) as (process,):
        connection = socket_task._connect(socket_task.Address("127.0.0.1", port))
        connection.sendall(b"some bytes")
        connection.close()
        with pytest.raises(RunError, match="the other task has ended"):
            socket_rounds._output_of(process)


@pytest.mark.skipif(bool(PROBLEM), reason=f"no shaped hosts here: {PROBLEM}")
def test_each_host_moves_the_bytes_of_its_task():
    done = SocketCluster(num_workers=2, num_ps=2, num_bytes=2 * MB, rate="100mbit", num_rounds=8, num_chunks=4).run()
    for received, sent in done.bytes_per_round.values():
        assert received == pytest.approx(2 * MB, rel=0.25)  # between counters that are read four times a second
        assert sent == pytest.approx(2 * MB, rel=0.25)
    assert done.round_secs > 2 * MB / (100e6 / 8)


def test_the_task_is_a_script_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", socket_rounds._MODULE, "{}"], capture_output=True, text=True, check=False
    )
    assert done.returncode and "KeyError: 'job'" in done.stderr
