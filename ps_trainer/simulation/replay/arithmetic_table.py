"""Arithmetic of the rules, by the names of `--update`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer import update_rules
from ps_trainer.errors import UnknownNameError
from ps_trainer.simulation.replay.base import Arithmetic
from ps_trainer.simulation.replay.compute_session import ComputeSession
from ps_trainer.simulation.rules.schedule_table import parse_options
from ps_trainer.simulation.schedule import Schedule

RULES: dict[str, type[Arithmetic]] = update_rules.load_all("arithmetic")


def create(
    name: str,
    option_strings: Sequence[str],
    session: ComputeSession,
    schedule: Schedule,
    arithmetic: type[Arithmetic] | None = None,
) -> Arithmetic:
    """Makes the arithmetic of an update rule, at the start of a schedule.

    Args:
        name: Name of the rule, as for `--update`.
        option_strings: Options of the rule, each as `key=value`, the same as those of the schedule.
        session: Session that computes gradients and updates.
        schedule: Schedule of the same rule.
        arithmetic: Class of the arithmetic; None: the rule's own.

    Raises:
        UnknownNameError: No rule of this name can be replayed.
        OptionError: An option is wrong, or the rule cannot train the model.
    """
    if name not in RULES:
        raise UnknownNameError(f"--update={name}: cannot train in virtual time; choose from {', '.join(RULES)}")
    options = parse_options(name, option_strings, schedule.num_workers)
    return (arithmetic or RULES[name])(session, schedule, options)
