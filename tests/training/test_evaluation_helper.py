"""Workers that are done help the chief to evaluate, on real servers in this process."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from ps_trainer.errors import Interrupted
from ps_trainer.runtime.control import PsClient
from ps_trainer.training import components as components_lib
from ps_trainer.training import evaluation_pace, shared_evaluation
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_helper import WAIT_SECS
from ps_trainer.training.evaluation_pace import EvaluationLimits
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.logs import log_lines

HERE = "tests.training.shared_components"
HELPED = "workers {} have helped with the evaluation"


@pytest.fixture(autouse=True)
def always_shared(monkeypatch):
    """Lets the chief call for help after two batches, however fast and busy this machine is."""
    monkeypatch.setattr(evaluation_pace, "SHARED_SECS", 0.0)
    monkeypatch.setattr(evaluation_pace, "_MEASURE_SECS", 0.0)
    monkeypatch.setattr(shared_evaluation, "_BUSY_SHARE", float("inf"))


def config(update="async", secs=0.1, **fields):
    options = [f"secs={secs}"]
    return config_of(f"{HERE}:Clicks", f"{HERE}:Slow", options, batch_size=4, max_steps=6, update=update, **fields)


def assert_metrics_of_one_pass(chief, config):
    quick = components_lib.load(dataclasses.replace(config, dataset_option=()), 1)
    wanted = evaluate(quick, chief.final_values, EvaluationLimits(config.eval_examples))
    assert chief.summary.metrics.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(chief.summary.metrics[name], value, rtol=1e-6, err_msg=name)


def give_each_worker_a_part(monkeypatch, num_workers):
    """Lets each worker take a part before any takes a second one, and the chief evaluate its own last."""
    have_taken, have_sent = threading.Barrier(num_workers), threading.Semaphore(0)
    take_part, send_part, evaluate_part = PsClient.take_part, PsClient.send_part, shared_evaluation._Parts._evaluate
    clients = set()

    def take(client):
        part = take_part(client)
        if client not in clients:
            clients.add(client)
            have_taken.wait(WAIT_SECS)
        return part

    def send(client, result):
        send_part(client, result)
        have_sent.release()

    def evaluate(parts, part):
        for _ in range(num_workers - 1):
            assert have_sent.acquire(timeout=WAIT_SECS)
        evaluate_part(parts, part)

    monkeypatch.setattr(PsClient, "take_part", take)
    monkeypatch.setattr(PsClient, "send_part", send)
    monkeypatch.setattr(shared_evaluation._Parts, "_evaluate", evaluate)


@pytest.mark.parametrize(
    ("num_ps", "num_workers", "fields"),
    [
        pytest.param(1, 2, {}, marks=pytest.mark.full),  # the next one contains it
        (2, 3, {"eval_examples": 3000, "optimizer": "adam"}),
        pytest.param(1, 2, {"update": "sync"}, marks=pytest.mark.full),  # steps are over: only where values lie differs
        (1, 2, {"update": "easgd"}),
        (1, 2, {"update": "all_reduce"}),
        (0, 2, {"placement": "colocated"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_workers_that_are_done_share_the_evaluation(monkeypatch, num_ps, num_workers, fields):
    give_each_worker_a_part(monkeypatch, num_workers)
    shared = config(**fields)
    with InProcessCluster(num_ps, num_workers) as cluster, log_lines() as lines:
        outcomes = cluster.run(shared)
    assert [outcome.code for outcome in outcomes] == [0] * num_workers
    assert_metrics_of_one_pass(outcomes[0].worker, shared)
    assert HELPED.format(", ".join(map(str, range(1, num_workers)))) in lines


def test_a_helper_that_is_ended_in_a_part_costs_only_that_part():
    shared = config(secs=0.3)
    with InProcessCluster(1, 2) as cluster, log_lines() as lines:
        chief, worker = (cluster.start(shared, index) for index in range(2))
        wait_until(lambda: "evaluating a share of the test examples" in lines)
        worker.stop.request(Interrupted(15))
        assert cluster.finish_call(worker).result == 0  # it was done already
        assert chief.ended_well is False  # the chief still evaluates
        cluster.finish_call(chief)
    assert_metrics_of_one_pass(chief.worker, shared)


def test_a_helper_ends_when_the_chief_is_interrupted():
    shared = config(secs=0.3)
    with InProcessCluster(1, 2) as cluster, log_lines() as lines:
        chief, worker = (cluster.start(shared, index) for index in range(2))
        wait_until(lambda: "evaluating a share of the test examples" in lines)
        chief.stop.request(Interrupted(2))
        assert isinstance(cluster.finish_call(chief).error, Interrupted)
        assert cluster.finish_call(worker).result == 0
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "evaluate"])
