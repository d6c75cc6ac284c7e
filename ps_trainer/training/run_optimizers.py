"""The optimizers of a run, and whether its update rule and gradient transforms accept them."""

from __future__ import annotations

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.gradients.base import Transform
from ps_trainer.gradients.transform_list import check_optimizer
from ps_trainer.optimizers.assignment import OptimizerAssignment, VariableOptimizer
from ps_trainer.optimizers.assignment import load as load_assigned
from ps_trainer.registry import split_inline
from ps_trainer.updates.base import RunPlan, UpdateRule


def create(config: TrainConfig) -> OptimizerAssignment:
    """Creates the optimizers that a configuration names.

    Raises:
        UsageError: An unknown name or a wrong option.
    """
    own = component_tables.OPTIMIZERS.create(config.optimizer, config.optimizer_option)
    assigned = load_assigned(config.optimizer_for, config.learning_rate)
    return OptimizerAssignment(VariableOptimizer(own, config.learning_rate, config.optimizer), assigned)


def check(
    rule: UpdateRule,
    optimizers: OptimizerAssignment,
    transforms: list[Transform],
    config: TrainConfig,
    num_workers: int,
) -> None:
    """Checks that the update rule and the gradient transforms of a run accept its optimizers.

    Raises:
        OptionError: One of them does not, or the rule does not fit the cluster.
    """
    plan = RunPlan(
        num_workers=num_workers,
        optimizer=optimizers.all[0].optimizer,
        optimizer_name=config.optimizer,
        assigned=optimizers.all[1:],
        transforms=[split_inline(text)[0] for text in config.gradient_transform],
        is_lossy=any(transform.is_lossy for transform in transforms),
        pull_dtype=config.pull_dtype,
    )
    rule.check(plan)
    for variable_optimizer in optimizers.all:
        check_optimizer(transforms, variable_optimizer.name, variable_optimizer.optimizer.momentum)
