"""Assigns optimizers to variables: the run's own, and those that `--optimizer_for` gives to some variables by name.

    --optimizer_for='wide/*=ftrl:learning_rate=0.1,l1=0.5'

A pattern is a shell pattern (`*`, `?`, `[…]`) and must match the whole name of a model variable. A variable gets the
first optimizer whose pattern matches, and otherwise the run's own. The names of slots, and so the checkpoints, do not
depend on the assignment. A layout never puts variables with different optimizers into one variable on the ps.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.registry import split_inline

FLAG = "--optimizer_for"
_RATE = "learning_rate="


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rate:
    """The key that every optimizer takes here beside its own options."""

    learning_rate: float = options_lib.same_as(TrainConfig, "learning_rate", default=dataclasses.MISSING)


class VariableOptimizer(NamedTuple):
    """An optimizer and the variables that it updates.

    Attributes:
        optimizer: Component of `component_tables.OPTIMIZERS`.
        learning_rate: Learning rate before the schedule; all optimizers have the same schedule.
        name: Name of the optimizer, for messages.
        pattern: Pattern of the names of its variables.
    """

    optimizer: PsOptimizer
    learning_rate: float
    name: str = "sgd"
    pattern: str = "*"


class OptimizerAssignment:
    """The optimizers of a run.

    Args:
        default: Optimizer of every variable that no pattern matches.
        assigned: The other optimizers, in the order in which their patterns are tried.

    Attributes:
        all: The optimizer `default`, then the others.
    """

    def __init__(self, default: VariableOptimizer, assigned: Sequence[VariableOptimizer] = ()):
        self.all = (default, *assigned)

    def index_of(self, name: str) -> int:
        """Returns the index in `all` of a variable's optimizer."""
        # Index 0 is the run's own optimizer, which takes what no pattern matches. `fnmatch` ignores case on Windows.
        matching = (i for i, one in enumerate(self.all) if i and fnmatch.fnmatchcase(name, one.pattern))
        return next(matching, 0)

    def check(self, names: Sequence[str]) -> None:
        """Checks that every assigned optimizer has a variable.

        Args:
            names: Names of all trainable variables.

        Raises:
            OptionError: An optimizer has none.
        """
        used = {self.index_of(name) for name in names}
        for index, entry in enumerate(self.all):
            if index and index not in used:
                raise OptionError(
                    f"{FLAG} {entry.pattern}={entry.name}: no trainable variable is left that matches"
                    f" {entry.pattern!r}; the model has {', '.join(names)}; correct the pattern, or put it"
                    " before one that matches them"
                )


def load(texts: Sequence[str], learning_rate: float) -> list[VariableOptimizer]:
    """Creates the optimizers of `--optimizer_for`.

    Args:
        texts: Values of the flag: `pattern=optimizer` or `pattern=optimizer:key=value,…`. The keys are the optimizer's
            options and `learning_rate`.
        learning_rate: Learning rate of an optimizer whose text has none.

    Raises:
        OptionError: A text has another form, or an option is wrong.
        UnknownNameError: No optimizer has the name.
    """
    return [_parse(text, learning_rate) for text in texts]


def _split(text: str) -> tuple[str, str, list[str]]:
    """Splits a text into pattern, optimizer and options."""
    pattern, equals, rest = text.partition("=")
    name, option_strings = split_inline(rest)
    if not (pattern and equals and name):
        raise OptionError(f"{FLAG} {text!r}: write pattern=optimizer:key=value,… such as 'wide/*=ftrl:l1=0.1'")
    return pattern, name, option_strings


def _parse(text: str, learning_rate: float) -> VariableOptimizer:
    pattern, name, option_strings = _split(text)
    rates = [string for string in option_strings if string.startswith(_RATE)]
    others = [string for string in option_strings if string not in rates]
    if rates:
        learning_rate = options_lib.parse(_Rate, rates, FLAG).learning_rate
    cls = component_tables.OPTIMIZERS.load(name, f"{FLAG} {pattern}")
    options = options_lib.parse_if_any(getattr(cls, "Options", None), others, f"{FLAG} {text}", f"optimizer {name!r}")
    optimizer = cls() if options is None else cls(options)
    return VariableOptimizer(optimizer, learning_rate, name, pattern)
