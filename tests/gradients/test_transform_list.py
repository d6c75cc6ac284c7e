"""`--gradient_transform`: the accepted texts, and the messages about rejected ones."""

from __future__ import annotations

import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError, UnknownNameError, UsageError
from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Stage, Transform
from ps_trainer.gradients.wire import Wire

OWN = f"{__name__}:Halve"


class Halve(Transform):
    """A transform from outside."""

    name = "halve"
    stage = Stage.VALUE

    def reduce(self, values, num_workers):
        return [value / 2 for value in values]


def test_every_registered_transform_loads_under_its_own_name_with_its_defaults():
    for name in component_tables.GRADIENT_TRANSFORMS.names():
        follower = ["top_k"] if name == "error_feedback" else []
        assert transform_list.create([name, *follower])[0].name == name


def test_options_come_after_a_colon():
    (transform,) = transform_list.load(["qsgd:levels=4,bucket_size=64"])
    assert (transform.options.levels, transform.options.bucket_size, transform.options.norm) == (4, 64, "l2")


def test_a_users_class_is_given_by_module():
    assert isinstance(transform_list.load([OWN])[0], Halve)


def test_keeps_the_order():
    given = ["clip_value", "clip_norm", "error_feedback", "top_k", "cast"]
    assert [transform.name for transform in transform_list.load(given)] == given


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("top_k", "error_feedback top_k"),
        ("clip_norm one_bit", "clip_norm error_feedback one_bit"),
        ("power_sgd cast", "error_feedback power_sgd cast"),
        ("threshold", "error_feedback threshold"),
        ("sign:scaled=true", "error_feedback sign"),
        ("random_k:scale=false", "error_feedback random_k"),
        ("top_k qsgd", "error_feedback top_k qsgd"),
        ("error_feedback top_k", "error_feedback top_k"),
        ("error_feedback:enabled=false top_k", "top_k"),
        ("error_feedback cast", "error_feedback cast"),
        ("cast", "cast"),
        ("sign", "sign"),
        ("random_k one_bit", "random_k one_bit"),
        ("top_k terngrad", "top_k terngrad"),
        ("top_k qsgd:levels=4", "top_k qsgd"),
        ("threshold sign", "threshold sign"),
        ("dgc one_bit", "dgc one_bit"),
        ("clip_norm", "clip_norm"),
    ],
)
def test_a_run_has_error_feedback_where_its_transforms_need_it(given, wanted):
    assert " ".join(transform.name for transform in transform_list.load(given.split())) == wanted


def test_an_unknown_name():
    with pytest.raises(UnknownNameError, match=r"--gradient_transform=topk: .*did you mean top_k"):
        transform_list.load(["topk:ratio=0.1"])


def refusal(*strings):
    with pytest.raises(UsageError) as caught:
        transform_list.load(strings)
    assert "--gradient_transform" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("string", "message"),
    [
        ("top_k:0.1", "top_k:key=value"),
        ("top_k:k=3", "ratio"),
        ("one_bit:rate=1", "takes no options"),
        ("pathlib:Path", "not a gradient transform"),
    ],
)
def test_wrong_options_are_rejected(string, message):
    assert message in refusal(string)


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (["one_bit", "top_k"], "top_k comes after one_bit; put it before"),
        (["cast", "clip_norm"], "clip_norm comes after cast; put it before"),
        (["error_feedback", "clip_value", "top_k"], "clip_value comes after error_feedback; put it before"),
        (["top_k", "error_feedback", "cast"], "error_feedback comes after top_k; put it before"),
        (["cast", "qsgd"], "cast and qsgd cannot be combined"),
        (["top_k", "power_sgd"], "top_k and power_sgd cannot be combined"),
        (["error_feedback", "error_feedback", "top_k"], "cannot be combined"),
        (["error_feedback"], "no loss to compensate for"),
        (["clip_norm", "error_feedback"], "no loss to compensate for"),
        (["error_feedback", "dgc"], "leave error_feedback out"),
        (["error_feedback", "random_k:ratio=0.1"], "write random_k:ratio=0.1,scale=false"),
    ],
)
def test_wrong_orders_and_combinations_are_rejected(strings, message):
    assert message in refusal(*strings)


def test_momentum_on_worker_and_ps_is_rejected():
    transform_list.check_optimizer(transform_list.load(["dgc"]), "sgd", 0.0)
    transform_list.check_optimizer(transform_list.load(["dgc:momentum=0"]), "momentum", 0.9)
    transform_list.check_optimizer(transform_list.load(["error_feedback", "top_k"]), "momentum", 0.9)
    with pytest.raises(OptionError, match=r"dgc keeps the momentum .*use --optimizer=sgd, or .*dgc:momentum=0"):
        transform_list.check_optimizer(transform_list.load(["dgc"]), "momentum", 0.9)


def test_a_rule_that_sends_nothing_rejects_lossy_transforms():
    wire = Wire(
        transform_list.load(["clip_norm", "top_k"]),
        num_workers=1,
        worker_index=0,
        worker_device="",
        ps_device=lambda ps: "",
        seed=0,
    )
    with pytest.raises(OptionError, match="--gradient_transform top_k: .*sends none.*leave it out"):
        wire.reduce([])
