"""Update rule `model_averaging` against its equation in NumPy; its local phase and restarts."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.model_averaging import ModelAveraging
from ps_trainer.updates.options import ModelAveragingOptions
from tests.testing import replicas
from tests.testing.cluster import config_of
from tests.testing.repetitions import repetitions
from tests.updates.scripted import assert_same
from tests.updates.test_local_sgd import (
    LAYOUTS,
    NUM_WORKERS,  # noqa: F401 - the fixture `cluster` reads it
    ROUNDS,
    lone,
    options,
    played_rounds,
    wanted_rounds,
)


# The rounds are those of `local_sgd`, which has other periods; the conformance suite has the other layout.
@pytest.mark.parametrize("layout", repetitions(LAYOUTS))
@pytest.mark.parametrize(
    ("period", "optimizer"), repetitions([(1, "sgd"), (3, "sgd"), (3, "momentum")], every=3, first=2)
)
def test_equals_its_equation(cluster, layout, period, optimizer):
    got = played_rounds(
        cluster, "model_averaging", layout=layout, update_option=options(period=period), optimizer=optimizer
    )
    assert_same(got, wanted_rounds(cluster, [period] * ROUNDS, optimizer), num_ps=cluster.num_ps, atol=2e-6)


def test_counts_the_bytes_of_the_replicas_that_it_sends(one_worker):
    outcome = lone(one_worker, 5, None, "model_averaging")
    parameters = sum(v.size for name, v in outcome.worker.final_values.items() if name != "global_step")
    config = config_of(
        "Dense", "Rows", update="model_averaging", update_option=options(period=2), batch_size=4, max_steps=9
    )
    with replicas.one_worker_session(one_worker, config) as worker:
        for step in range(4):
            assert worker.session.run(worker.train.sent_bytes) == step // 2 * parameters * 4
            assert worker.jobs_of_phase(worker.phase_of_next_step()) == ({"worker", "ps"} if step % 2 else {"worker"})


def test_clips_the_gradients_of_local_steps(one_worker):
    clipped = lone(one_worker, 3, None, "model_averaging", optimizer="sgd", gradient_transform=("clip_norm:norm=1e-6",))
    free = lone(one_worker, 3, None, "model_averaging", optimizer="sgd")
    # Six steps of at most 1e-6 at a rate of 0.05 change nothing that a loss would show.
    assert clipped.losses[0] == free.losses[0]
    assert abs(clipped.worker.final_values["logits/bias"]).max() <= 6 * 0.05 * 1e-6
    assert abs(free.worker.final_values["logits/bias"]).max() > 1e-3


@pytest.mark.full  # the conformance suite restarts `local_sgd`, whose replica this is
def test_a_restarted_run_equals_an_uninterrupted_one(one_worker, tmp_path):
    whole = lone(one_worker, 6, None, "model_averaging")
    halves = [lone(one_worker, max_steps, str(tmp_path), "model_averaging") for max_steps in (3, 6)]
    np.testing.assert_allclose(halves[0].losses + halves[1].losses, whole.losses, rtol=0, atol=1e-6)
    for name, value in whole.worker.final_values.items():
        np.testing.assert_allclose(halves[1].worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)


def test_rejects_compressed_parameters():
    plan = RunPlan(2, transforms=["clip_norm", "top_k"], is_lossy=True)
    with pytest.raises(OptionError, match="--gradient_transform top_k: .*use --update=local_sgd"):
        ModelAveraging(ModelAveragingOptions()).check(plan)
    ModelAveraging(ModelAveragingOptions()).check(RunPlan(2, transforms=["clip_norm"]))
