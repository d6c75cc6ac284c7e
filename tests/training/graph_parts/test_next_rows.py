"""Calls of one step that look up the rows of the next: the same numbers as steps with their own look-ups."""

from __future__ import annotations

import pytest

from ps_trainer.training.graph_parts import next_rows
from tests.testing.repetitions import repetitions
from tests.training.graph_parts import test_look_ahead as several
from tests.training.graph_parts.test_look_ahead import STEPS, assert_same, config, trained
from tests.training.test_graph import build, crossings
from tests.updates.assembled import ancestors_within_step

HOOK = f"{__name__}:Counting"


class Counting(several.tf.train.SessionRunHook):
    """A hook, which looks at each step."""


@pytest.fixture
def built(monkeypatch):
    """The look-ups for next steps that are built during the test."""
    return several.results_of(monkeypatch, next_rows, "build")


@pytest.mark.parametrize(
    ("model", "num_ps", "fields"),
    [
        ("OnlyTable", 1, {}),
        ("Tables", 2, {"optimizer": "momentum"}),
        ("OnlyTable", 1, {"hook": (HOOK,)}),
        *repetitions(
            [
                ("TwiceEmbedded", 1, {"pull_dtype": "bfloat16"}),
                ("Tables", 1, {"pull_dtype": "float16", "gradient_transform": ("cast:dtype=bfloat16",)}),
                ("Chained", 2, {"update": "staleness_aware"}),
                ("Tables", 2, {"update": "sync", "optimizer": "lazy_adam"}),
                ("OnlyTable", 2, {"update": "ssp", "update_option": ("staleness=2",)}),
                ("Embedded", 1, {"update": "hogwild", "layout": "per_variable"}),
                ("Tables", 1, {"straggler": ("det:mean_ms=1",)}),
            ]
        ),
    ],
)
def test_the_numbers_are_those_of_steps_that_look_up_their_own_rows(model, num_ps, fields, built, monkeypatch):
    (ahead,) = trained(model, 1, num_ps, **fields)
    assert len(built) == 1
    assert None not in built
    monkeypatch.setattr(next_rows, "build", lambda *_: None)
    (own,) = trained(model, 1, num_ps, **fields)
    assert len(set(own.losses)) == STEPS
    assert_same(ahead, own)


def test_the_data_end_with_their_last_batch(built):
    """The last of 20 examples are a smaller batch."""
    (ahead,) = trained("OnlyTable", 1, max_steps=None, num_epochs=1, options=("num_examples=20",))
    assert None not in built
    assert len(ahead.losses) == 3


def test_a_run_that_resumes_reads_on_where_it_stopped(tmp_path):
    (whole,) = trained("Tables", 1)
    fields = {"logdir": str(tmp_path), "save_checkpoint_secs": 10**6}
    (first,) = trained("Tables", 1, max_steps=8, **fields)
    (second,) = trained("Tables", 1, **fields)
    assert first.losses + second.losses == whole.losses


def test_rows_are_at_most_as_old_as_the_staleness_says(built):
    several.assert_rows_are_as_old_as_the_staleness_says(steps_per_call=1)
    assert len(built) == 3
    assert None not in built


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("Sampled", {}),
        ("Dense", {}),
        ("OnlyTable", {"sharding": "dynamic", "shard_examples": 16}),
        ("Tables", {"update": "hybrid"}),
        ("Tables", {"update": "accumulate", "update_option": ("steps=2",)}),
    ],
)
def test_a_step_looks_up_its_own_rows_where_ids_data_or_rule_forbid_others(model, fields, built):
    build(config(model, **fields))
    assert not any(built)


def test_rows_are_read_after_the_update_and_after_the_clock():
    ops = build(config("OnlyTable")).graph.get_operations()
    (look_up,) = [op for op in ops if op.type == "ResourceGather" and op.name.startswith("next_rows/")]
    before = {op.type for op in ancestors_within_step([look_up])}
    assert before >= {"ResourceScatterNdSub", "ResourceCountUpTo", "Stage"}


@pytest.mark.parametrize(
    ("model", "num_ps", "fields", "to_ps", "to_worker"),
    [
        # Gradient with ids of the next step; result with its rows.
        ("OnlyTable", 1, {}, 1, 1),
        ("OnlyTable", 2, {}, 2, 2),
        ("OnlyTable", 1, {"update": "sync"}, 1, 1),
        # The dense gradient and the dense parameters travel in the same messages.
        ("Tables", 1, {}, 1, 1),
        ("TwiceEmbedded", 2, {}, 2, 2),
        # Transforms send the ids of a gradient with its values: ids of the next step, and a message for each table.
        ("TwiceEmbedded", 1, {"gradient_transform": ("cast:dtype=bfloat16",)}, 4, 1),
        ("OnlyTable", 1, {"pull_dtype": "bfloat16"}, 1, 1),
        # Ids and rows of the second look-up, which needs the first.
        ("Chained", 1, {}, 2, 2),
    ],
)
def test_a_step_makes_these_messages(model, num_ps, fields, to_ps, to_worker):
    sent, returned = crossings(build(config(model, **fields), num_ps=num_ps))
    assert (len(sent), len(returned)) == (to_ps, to_worker)
