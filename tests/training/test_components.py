"""Which model and update rule go together, by whether there are embedding tables."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError
from tests.testing.cluster import config_of

from ps_trainer.training import components  # isort: skip - after the cluster's environment


@pytest.mark.parametrize(
    ("model", "update"), [("Dense", "async"), ("Embedded", "async"), ("Embedded", "hybrid"), ("Dense", "all_reduce")]
)
def test_a_model_with_tables_takes_a_rule_that_holds_them_and_one_without_any_that_does_not_need_them(model, update):
    components.load(config_of(model, "Rows", update=update, batch_size=2), num_workers=2)


@pytest.mark.parametrize(
    ("model", "update", "message"),
    [
        ("Embedded", "all_reduce", "--update=all_reduce cannot train embedding tables, and model .* has table; use"),
        ("Dense", "hybrid", "--update=hybrid is for models with embedding tables, and model .* has none; use"),
    ],
)
def test_another_rule_is_refused(model, update, message):
    with pytest.raises(OptionError, match=message):
        components.load(config_of(model, "Rows", update=update, batch_size=2), num_workers=2)
