"""The arithmetic of the rules, by the names of `--update`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer import update_rules
from ps_trainer.errors import UnknownNameError
from ps_trainer.simulation.replay.base import Arithmetic
from ps_trainer.simulation.replay.bench import Bench
from ps_trainer.simulation.rules.table import parse_options
from ps_trainer.simulation.schedule import Schedule

RULES: dict[str, type[Arithmetic]] = update_rules.load_all("arithmetic")


def create(
    name: str,
    option_strings: Sequence[str],
    bench: Bench,
    schedule: Schedule,
    arithmetic: type[Arithmetic] | None = None,
) -> Arithmetic:
    """The arithmetic of an update rule at the start of a schedule.

    Args:
        name: of `--update`.
        option_strings: `key=value` each, those with which the schedule was made.
        bench: computes.
        schedule: of the same rule.
        arithmetic: what to compute in its steps; None: what the rule does.

    Raises:
        UnknownNameError: no such rule in virtual time.
        OptionError: a wrong option, or the rule cannot train the model.
    """
    if name not in RULES:
        raise UnknownNameError(f"--update={name}: not replayed in virtual time; replayed: {', '.join(RULES)}")
    options = parse_options(name, option_strings, schedule.num_workers)
    return (arithmetic or RULES[name])(bench, schedule, options)
