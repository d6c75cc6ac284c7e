"""Training in the calling process: the numbers of one worker with one ps task under every rule; stop, repetition."""

from __future__ import annotations

import _thread
import json
import signal
import threading

import numpy as np
import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, OptionError
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.repetitions import representatives
from tests.testing.rule_promises import PROMISES

from ps_trainer.runtime.job_runner import StopRequest  # isort: skip - after the cluster's environment
from ps_trainer.training import chief  # isort: skip
from ps_trainer.training import components as components_lib  # isort: skip
from ps_trainer.training import one_process  # isort: skip

EXCHANGING = ("all_reduce", "hybrid")
ENDLESS = 10**9
# Rules that apply each gradient behave here like `async`, and rules that collect gradients like `backup`.
CHOSEN = representatives(sorted(set(PROMISES) - set(EXCHANGING)), ["async", "downpour", "backup", "ssp", "easgd"])


def config(tmp_path, model="Dense", **fields):
    fields = {"batch_size": 8, "seed": 3, "step_log": True, "logdir": str(tmp_path / "alone"), **fields}
    return config_of(model, "Rows", ["has_test=true"], **fields)


def losses_of(logdir):
    lines = (logdir / "steps" / "worker-0.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def assert_same(tmp_path, **fields):
    """Trains in one process, and as one worker with one ps task; both have the same losses and values."""
    result = one_process.train(config(tmp_path, **fields))
    with InProcessCluster(1, 1) as cluster:
        (outcome,) = cluster.run(config(tmp_path, **{**fields, "logdir": None, "step_log": False}))
    assert losses_of(tmp_path / "alone") == outcome.losses
    assert len(set(outcome.losses)) > 3
    assert result.values.keys() == outcome.worker.final_values.keys()
    for name, value in outcome.worker.final_values.items():
        np.testing.assert_array_equal(result.values[name], value, err_msg=name)
    assert result.summary.metrics == outcome.worker.summary.metrics
    assert result.summary.global_step == outcome.worker.summary.global_step


@pytest.mark.parametrize("update", CHOSEN)
def test_every_rule_trains_as_one_worker_with_one_ps_task(tmp_path, update):
    promises = PROMISES[update]
    assert_same(tmp_path, model=promises.model, update=update, update_option=promises.alone, max_steps=8)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "Embedded", "optimizer": "adagrad", "layout": "per_variable"},
        {"model": "Embedded", "pull_dtype": "bfloat16"},
        {"optimizer": "adam", "gradient_transform": ("error_feedback", "top_k:ratio=0.25"), "pull_dtype": "bfloat16"},
        {"straggler": ("det:mean_ms=1",), "num_epochs": 1, "max_steps": None},
    ],
    ids=["table", "rounded_rows", "transforms", "straggler_and_end_of_data"],
)
def test_layouts_tables_transforms_and_delays_work_as_in_a_cluster(tmp_path, fields):
    assert_same(tmp_path, **{"max_steps": 8, **fields})


def test_a_run_adds_error_feedback_to_a_transform_that_needs_it_unless_the_user_leaves_it_out(tmp_path):
    losses = {}
    for before in ("", "error_feedback", "error_feedback:enabled=false"):
        transforms = tuple(filter(None, (before, "top_k:ratio=0.1")))
        logdir = tmp_path / str(len(losses))
        one_process.train(config(tmp_path, gradient_transform=transforms, max_steps=6, logdir=str(logdir)))
        losses[before] = losses_of(logdir)
    assert losses[""] == losses["error_feedback"] != losses["error_feedback:enabled=false"]


@pytest.mark.parametrize("update", EXCHANGING)
def test_a_rule_whose_workers_send_to_each_other_is_refused(tmp_path, update):
    with pytest.raises(OptionError, match="one process has no other worker"):
        one_process.train(config(tmp_path, model=PROMISES[update].model, update=update, max_steps=8))


def test_a_stop_request_ends_the_evaluation_and_the_checkpoint_stays(tmp_path, monkeypatch):
    stop = StopRequest()

    def evaluate(_components, _values, limits, _helpers):
        limits.check()
        stop.request(Interrupted(signal.SIGINT))
        limits.check()
        raise AssertionError("the evaluation was not asked to end")

    monkeypatch.setattr(chief, "evaluate", evaluate)
    with pytest.raises(Interrupted):
        one_process.train(config(tmp_path, max_steps=8), stop=stop)
    assert (tmp_path / "alone" / "checkpoints" / "model.ckpt-8.index").exists()
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize(("learning_rate", "is_warned"), [(1e-30, True), (0.1, False)])
def test_test_metrics_at_chance_are_warned_of_at_the_end(tmp_path, learning_rate, is_warned):
    settings = TrainConfig(
        model="matrix_factorization", model_option=("num_users=20", "num_items=20"), dataset="planted_ratings",
        dataset_option=("num_users=20", "num_items=20", "num_train=1000", "num_test=200"), batch_size=10,
        optimizer="adagrad", learning_rate=learning_rate, max_steps=300, logdir=str(tmp_path),
    )  # fmt: skip
    reached = one_process.train(settings).summary.metrics["relative_squared_error"]
    assert (reached > 0.99) == is_warned
    lines = (tmp_path / "metrics" / "worker-0.jsonl").read_text(encoding="utf-8").splitlines()
    warned = [line for line in map(json.loads, lines) if str(line.get("state")).startswith("warning: after an epoch")]
    assert [f"relative_squared_error is {reached:.4g}, and a guess" in line["state"] for line in warned] == (
        [True] if is_warned else []
    )


def test_the_caller_may_replace_a_component(tmp_path):
    """A model that is an object of the caller, without a name."""
    settings = config(tmp_path, max_steps=4)
    made = []

    def create():
        made.append(components_lib.load(settings, 1))
        return made[-1]

    assert one_process.train(settings, create=create).summary.global_step == 4
    assert len(made) == 1


def test_a_run_continues_in_the_same_process(tmp_path):
    first = one_process.train(config(tmp_path, max_steps=4))
    second = one_process.train(config(tmp_path, max_steps=8))
    assert (first.summary.global_step, second.summary.global_step) == (4, 8)
    whole = one_process.train(config(tmp_path, max_steps=8, logdir=str(tmp_path / "whole")))
    np.testing.assert_allclose(losses_of(tmp_path / "alone"), losses_of(tmp_path / "whole"), rtol=0, atol=1e-6)
    assert whole.values.keys() == second.values.keys()


@pytest.mark.parametrize("way", ["stop", "ctrl_c"])
def test_a_stop_saves_a_checkpoint_and_raises(tmp_path, way):
    stop, handlers = StopRequest(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    steps = tmp_path / "alone" / "steps" / "worker-0.jsonl"

    def end():
        wait_until(lambda: steps.exists() and steps.stat().st_size > 0)
        if way == "stop":
            stop.request(Interrupted(signal.SIGTERM))
        else:
            _thread.interrupt_main()

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    with pytest.raises(Interrupted) as raised:
        one_process.train(config(tmp_path, max_steps=ENDLESS), stop=stop)
    thread.join(10)
    assert raised.value.exit_code == 128 + (signal.SIGTERM if way == "stop" else signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    summary = json.loads((tmp_path / "alone" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "interrupted"
    again = one_process.train(config(tmp_path, num_epochs=1, max_steps=None))
    assert again.summary.global_step > 0
