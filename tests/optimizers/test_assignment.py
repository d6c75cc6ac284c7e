"""`--optimizer_for`: the optimizer of each variable, and rejected assignments."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.optimizers.assignment import OptimizerAssignment, VariableOptimizer, load
from ps_trainer.optimizers.stock import Ftrl, Sgd


def of(*texts):
    return OptimizerAssignment(
        VariableOptimizer(Sgd(Sgd.Options()) if hasattr(Sgd, "Options") else Sgd(None), 0.1), load(texts, 0.1)
    )


def test_the_first_matching_pattern_counts_and_the_runs_optimizer_gets_the_rest():
    optimizers = of("wide/bias=sgd:learning_rate=0.5", "wide/*=ftrl:l1=2,learning_rate=0.3", "*/kernel=adagrad")
    indices = [optimizers.index_of(name) for name in ("wide/bias", "wide/kernel", "deep/kernel", "deep/bias", "w")]
    assert indices == [1, 2, 3, 0, 0]
    assert [(one.name, one.learning_rate) for one in optimizers.all] == [
        ("sgd", 0.1), ("sgd", 0.5), ("ftrl", 0.3), ("adagrad", 0.1)
    ]  # fmt: skip
    assert isinstance(optimizers.all[2].optimizer, Ftrl) and optimizers.all[2].optimizer.options.l1 == 2


def test_a_users_optimizer_is_given_by_module_and_class():
    (one,) = load(["w=ps_trainer.optimizers.stock:Ftrl:l1=3"], 0.1)
    assert one.optimizer.options.l1 == 3


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("ftrl", OptionError, "--optimizer_for 'ftrl': write pattern=optimizer:key=value"),
        ("=ftrl", OptionError, "write pattern=optimizer"),
        ("w=", OptionError, "write pattern=optimizer"),
        ("w=ftlr", UnknownNameError, "--optimizer_for w=ftlr: unknown optimizer; did you mean ftrl?"),
        ("w=ftrl:l3=1", OptionError, "unknown key 'l3'; did you mean l"),
        ("w=ftrl:l1=x", OptionError, "'x' is not of type float"),
        ("w=sgd:learning_rate=0", OptionError, "learning_rate=0: learning_rate must be above 0"),
        ("w=sgd:learning_rate=nan", OptionError, "learning_rate=nan: learning_rate must be above 0 and finite"),
        ("w=sgd:learning_rate=1,learning_rate=2", OptionError, "'learning_rate' is given twice; give it once"),
    ],
)
def test_a_wrong_text_is_rejected(text, error, words):
    with pytest.raises(error) as raised:
        load([text], 0.1)
    assert words in str(raised.value)


def test_a_pattern_that_matches_no_remaining_variable_is_rejected():
    names = ["wide/weights", "deep/kernel"]
    of("wide/*=ftrl", "*=adagrad").check(names)
    with pytest.raises(OptionError, match=r"no trainable variable is left that matches 'wid/\*'; the model has wide/w"):
        of("wid/*=ftrl").check(names)
    with pytest.raises(OptionError, match="'wide/weights'; .* or put it before one that matches them"):
        of("wide/*=ftrl", "wide/weights=sgd").check(names)
