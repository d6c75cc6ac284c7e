"""The order of reads and writes of a worker's replica and of its copy of the run's progress."""

from __future__ import annotations

import pytest

from tests.testing.cluster import config_of
from tests.updates.assembled import assemble


@pytest.mark.parametrize(
    ("update", "options"), [("downpour", ("n_push=2", "n_fetch=3")), ("easgd", ()), ("local_sgd", ("period=2",))]
)
def test_a_step_reads_its_first_global_step_before_it_receives_the_next(update, options):
    graph = assemble(config_of("Dense", "Rows", update=update, update_option=options, batch_size=4)).graph
    users = graph.get_operation_by_name("fetched/global_step").outputs[0].consumers()
    reads = [op for op in users if op.type == "ReadVariableOp" and not op.control_inputs]
    heard = [op for op in users if op.type == "AssignVariableOp" and op.control_inputs]
    assert heard
    for op in heard:
        waited_for = {before.inputs[0].op for before in op.control_inputs if before.type == "Identity"}
        assert waited_for & set(reads), f"{op.name} may run before the read"
