"""The numbers of a model's own random ops (dropout, masks, negative samples), on each worker and after restarts."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, PsLostError
from ps_trainer.training.recovery_policy import RecoveryPolicy
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of, wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers


class Drawing:
    """A model whose loss is a random number and that learns nothing."""

    def build(self, batch, training):
        output = layers.classifier_output(layers.dense(batch["x"], small.NUM_CLASSES, "logits"), batch["label"])
        return output._replace(loss=0.0 * output.loss + tf.random.uniform([])) if training else output


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(num_ps=1, num_workers=2) as cluster:
        yield cluster


def config(max_steps=None, lengths=(8, 8), **fields):
    fields = {"num_epochs": 100 if max_steps is None else None, "max_steps": max_steps} | fields
    names = [f"lengths={','.join(map(str, lengths))}"] if lengths else []
    one = config_of("Dense", "Rows", names, batch_size=4, **fields)
    return dataclasses.replace(one, model=f"{__name__}:Drawing")


def test_workers_draw_different_numbers_and_the_same_in_each_run(cluster):
    first, again = ([outcome.losses for outcome in cluster.run(config())] for _ in range(2))
    assert first == again
    assert len(set(first[0] + first[1])) == 16


def test_a_resumed_run_does_not_repeat_its_first_numbers(cluster, tmp_path):
    draws = []
    for length in (8, 16):  # the second run reads the examples that the first one has left
        outcomes = cluster.run(config(logdir=str(tmp_path), seed=3, lengths=(length, length)))
        draws += [loss for outcome in outcomes for loss in outcome.losses]
        assert len(draws) == 2 * length
    assert len(set(draws)) == 32


def test_a_restarted_worker_does_not_repeat_its_first_numbers(cluster):
    endless = config(10**6, lengths=())
    chief, worker = cluster.start(endless, 0), cluster.start(endless, 1)
    wait_until(lambda: worker.made and len(worker.made[-1].losses) >= 8)
    worker.stop.request(Interrupted(15))
    assert isinstance(cluster.finish_call(worker).error, Interrupted)
    again = cluster.start(endless, 1)
    wait_until(lambda: again.made and len(again.made[-1].losses) >= 8)
    for call in (again, chief):
        call.stop.request(Interrupted(15))
        assert isinstance(cluster.finish_call(call).error, Interrupted)
    assert not set(worker.made[-1].losses[:8]) & set(again.made[-1].losses[:8])


class TestNameOfAStart:
    def test_the_first_start_at_step_0_has_no_name(self):
        assert RecoveryPolicy(TrainConfig()).start_name(0, is_first=True) == ""

    def test_a_start_from_a_checkpoint_is_named_by_its_step(self):
        assert [RecoveryPolicy(TrainConfig()).start_name(70, is_first=True) for _ in range(2)] == ["step 70"] * 2

    @pytest.mark.parametrize("step", [0, 70])
    def test_a_worker_that_rejoins_a_run_never_has_the_same_name_again(self, step):
        comeback = RecoveryPolicy(TrainConfig())
        names = {
            RecoveryPolicy(TrainConfig()).start_name(step, is_first=False),
            comeback.start_name(step, is_first=False),
        }
        comeback.note(PsLostError("ps-0"))
        names.add(comeback.start_name(step, is_first=True))
        comeback.note(PsLostError("ps-0"))
        names.add(comeback.start_name(step, is_first=True))
        assert len(names) == 4 and not names & {"", "step 70"}
