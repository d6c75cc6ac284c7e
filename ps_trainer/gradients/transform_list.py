"""Creates the transforms of `--gradient_transform`, and checks that they can be combined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from absl import logging

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Feedback, Stage, Transform
from ps_trainer.gradients.error_feedback import ErrorFeedback
from ps_trainer.registry import split_inline

_ORDER = (
    "clip_norm and clip_value; error_feedback; one of top_k, random_k, threshold, dgc, power_sgd;"
    " one of cast, one_bit, sign, qsgd, terngrad"
)

_BASE = "ps_trainer.gradients.base.Transform or Codec"


def load(strings: Sequence[str]) -> list[Transform]:
    """Creates the transforms of a run, with error feedback where they need it and the user says nothing about it.

    Args:
        strings: Values of `--gradient_transform`, in order: `name`, or `name:key=value,key=value`, with a registered
            name or `module:Class`.

    Raises:
        UnknownNameError: A name is not registered.
        OptionError: An option is wrong, or the transforms cannot be combined in this order.
    """
    transforms = create(strings)
    if any(isinstance(transform, ErrorFeedback) for transform in transforms):
        return [transform for transform in transforms if not _is_left_out(transform)]
    needing = [transform.name for transform in transforms if transform.feedback is Feedback.NEEDED]
    if not needing or any(transform.feedback is Feedback.HARMFUL for transform in transforms):
        return transforms
    logging.log_first_n(
        logging.INFO,
        "gradient transforms: error_feedback is before %s, which needs it; --gradient_transform"
        " error_feedback:enabled=false leaves it out",
        1,
        " and ".join(needing),
    )
    first = next(position for position, transform in enumerate(transforms) if transform.is_lossy)
    return [*transforms[:first], ErrorFeedback(ErrorFeedback.Options()), *transforms[first:]]


def create(strings: Sequence[str]) -> list[Transform]:
    """Creates exactly the transforms that are given; arguments and errors are those of `load`."""
    transforms = [_create(string) for string in strings]
    check(transforms)
    return transforms


def check(transforms: Sequence[Transform]) -> None:
    """Checks that transforms can be combined in the given order.

    Raises:
        OptionError: They cannot.
    """
    for first, second in itertools.pairwise(transforms):
        if second.stage < first.stage:
            raise OptionError(
                f"--gradient_transform {second.name} comes after {first.name}; put it before: the order is {_ORDER}"
            )
        if first.stage == second.stage != Stage.VALUE:
            raise OptionError(
                f"--gradient_transform {first.name} and {second.name} cannot be combined: a run takes only one"
                f" transform of this kind; leave one of them out. The order is {_ORDER}"
            )
    feedback = [transform for transform in transforms if transform.stage == Stage.FEEDBACK]
    if feedback and not transforms[-1].is_lossy:
        raise OptionError(
            f"--gradient_transform {feedback[0].name} has no loss to compensate for: give a lossy transform after it,"
            f" such as top_k or one_bit, or leave it out. The order is {_ORDER}"
        )
    for position, transform in enumerate(transforms):
        transform.check(transforms[:position])


def check_optimizer(transforms: Sequence[Transform], optimizer: str, momentum: float) -> None:
    """Rejects momentum both in a transform and on the ps, because it would be applied twice.

    Args:
        transforms: Transforms of the run.
        optimizer: Registered name of the optimizer, for the message.
        momentum: Momentum factor of the optimizer (Adam's β₁); 0 if it has none.

    Raises:
        OptionError: Both have momentum.
    """
    for transform in transforms:
        if transform.has_momentum and momentum:
            raise OptionError(
                f"--gradient_transform {transform.name} keeps the momentum on the worker, and --optimizer={optimizer}"
                f" adds its own ({momentum:g}) on the ps, which doubles it; use --optimizer=sgd, or"
                f" --gradient_transform {transform.name}:momentum=0"
            )


def _is_left_out(transform: Transform) -> bool:
    return isinstance(transform, ErrorFeedback) and not transform.options.enabled


def _create(string: str) -> Transform:
    flag = f"--{component_tables.GRADIENT_TRANSFORMS.flag}"
    name, option_strings = split_inline(string)
    registered = name.partition(":")[0]
    # The registry would take `dgc:momentum`, without "=", for `module:Class`.
    if registered != name and registered in component_tables.GRADIENT_TRANSFORMS.names():
        raise OptionError(f"{flag} {string}: write options as key=value, {registered}:key=value,key=value")
    cls = component_tables.GRADIENT_TRANSFORMS.load(name)
    if not issubclass(cls, Transform):
        raise OptionError(f"{flag} {string}: {cls.__name__} is not a gradient transform; derive it from {_BASE}")
    if cls.Options is None:
        if option_strings:
            raise OptionError(f"{flag} {string}: {name} takes no options; write {flag} {name}")
        return cls()
    return cls(options_lib.parse(cls.Options, option_strings, f"{flag} {name}:"))
