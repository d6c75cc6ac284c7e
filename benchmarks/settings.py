"""Settings that train each update rule and transform, for the published tables and the tests; no TensorFlow.

`benchmarks.update_rules` makes the tables of results in `docs/explanation/update-rules.md` and
`docs/explanation/gradient-transforms.md`. `tests/processes/test_update_rules.py` runs the same settings.
"""

from __future__ import annotations

import dataclasses

CNN = "cnn"
PIXEL_TABLE = "benchmarks.digits_embedding_model:PixelTable"
DIGITS = "digits"
BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSetting:
    """One run of `ps_trainer local`.

    Attributes:
        max_steps: global_step at the end; the rules count different things.
        learning_rate: `--learning_rate`.
        why: The reason for these numbers, in a sentence.
        optimizer: `--optimizer`.
        decays: Whether the learning rate falls to 0 by the last step, along half a cosine.
        update: `--update`.
        options: Values of `--update_option`.
        transforms: Values of `--gradient_transform`.
        pull_dtype: `--pull_dtype`.
        num_workers: `--num_workers`.
        model: `--model`.
        least_factor: Smallest factor by which the transforms must reduce the measured bytes of a push; 1.0 = none.
    """

    max_steps: int
    learning_rate: float
    why: str
    optimizer: str = "momentum"
    decays: bool = False
    update: str = "async"
    options: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    pull_dtype: str = "float32"
    num_workers: int = 2
    model: str = CNN
    least_factor: float = 1.0

    @property
    def needs_table(self) -> bool:
        """Whether the rule needs a model with an embedding table."""
        return self.model == PIXEL_TABLE

    @property
    def flags(self) -> list[str]:
        """Everything after `ps_trainer local`, except for `--logdir`."""
        return [
            "--num_ps=1",
            f"--num_workers={self.num_workers}",
            f"--model={self.model}",
            f"--dataset={DIGITS}",
            f"--batch_size={BATCH_SIZE}",
            *self.own_flags,
        ]

    @property
    def own_flags(self) -> list[str]:
        """The flags in which settings differ."""
        return [
            f"--update={self.update}",
            *(f"--update_option={option}" for option in self.options),
            *(f"--gradient_transform={transform}" for transform in self.transforms),
            *([] if self.pull_dtype == "float32" else [f"--pull_dtype={self.pull_dtype}"]),
            f"--optimizer={self.optimizer}",
            f"--learning_rate={self.learning_rate:g}",
            *(["--schedule=cosine", f"--schedule_option=decay_steps={self.max_steps}"] if self.decays else []),
            f"--max_steps={self.max_steps}",
        ]


_RULES = {
    "async": TrainingSetting(
        max_steps=800, learning_rate=0.02,
        why="the single-process learning rate of momentum 0.9; the workers share the steps",
    ),
    "downpour": TrainingSetting(
        max_steps=200, learning_rate=0.1, optimizer="sgd", options=("n_push=5", "n_fetch=5", "warm_start_steps=10"),
        why="a step is a push of the sum of 5 gradients: 1,000 gradients; no momentum beside local steps",
    ),
    "hogwild": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd",
        why="plain SGD as in the paper, at the single-process learning rate",
    ),
    "sync": TrainingSetting(
        max_steps=400, learning_rate=0.04,
        why="twice async's learning rate for twice the batch, half its steps for the same number of examples",
    ),
    "sync_replicas": TrainingSetting(
        max_steps=400, learning_rate=0.04,
        why="the same updates as sync",
    ),
    "backup": TrainingSetting(
        max_steps=400, learning_rate=0.04, options=("backup_workers=1",), num_workers=3,
        why="2 of 3 gradients make an update, so as for sync with 2 workers",
    ),
    "softsync": TrainingSetting(
        max_steps=400, learning_rate=0.04, options=("splits=1",),
        why="with one split every n = 2 gradients make an update, of whichever worker: as for sync",
    ),
    "k_sync": TrainingSetting(
        max_steps=400, learning_rate=0.04, options=("k=2",), num_workers=3,
        why="2 of 3 gradients make an update, so as for sync with 2 workers",
    ),
    "k_async": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd", decays=True, options=("k=2",), num_workers=3,
        why="the single-process learning rate; with more, or with momentum, one stale gradient can spoil the end",
    ),
    "k_batch_sync": TrainingSetting(
        max_steps=400, learning_rate=0.04, options=("k=2",), num_workers=3,
        why="2 gradients make an update, so as for sync with 2 workers",
    ),
    "k_batch_async": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd", decays=True, options=("k=2",), num_workers=3,
        why="as k_async",
    ),
    "ssp": TrainingSetting(
        max_steps=800, learning_rate=0.02, options=("staleness=3",),
        why="as async: every gradient is an update",
    ),
    "drop_stale": TrainingSetting(
        max_steps=800, learning_rate=0.02, options=("staleness=1",),
        why="as async; with two workers a staleness of 1 is the usual one and kept",
    ),
    "staleness_aware": TrainingSetting(
        max_steps=800, learning_rate=0.02,
        why="as async: with two workers a gradient's staleness is mostly 1, which divides by 1",
    ),
    "dc_asgd": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd", options=("lambda=0.04",),
        why="plain SGD and the λ of the paper's CIFAR-10 runs",
    ),
    "easgd": TrainingSetting(
        max_steps=100, learning_rate=0.02, optimizer="sgd", options=("beta=0.9", "period=10", "momentum=0.9"),
        why="EAMSGD with the paper's β = 0.9 and a period of 10",
    ),
    "model_averaging": TrainingSetting(
        max_steps=50, learning_rate=0.1, optimizer="sgd", options=("period=10",),
        why="a step is a round of 10 local steps; the single-process learning rate, as 10 steps are many",
    ),
    "local_sgd": TrainingSetting(
        max_steps=100, learning_rate=0.02, options=("period=8", "switch_step=40"),
        why="40 steps as sync, then 60 rounds of 8 local steps, each worker with its own momentum",
    ),
    "all_reduce": TrainingSetting(
        max_steps=400, learning_rate=0.04,
        why="as sync: the average of all workers' gradients",
    ),
    "hybrid": TrainingSetting(
        max_steps=400, learning_rate=0.04, model=PIXEL_TABLE,
        why="as sync; the CNN has no embedding table, so with one before it",
    ),
    "accumulate": TrainingSetting(
        max_steps=400, learning_rate=0.1, optimizer="sgd", options=("steps=2",),
        why="half of async's steps, as a push is the sum of 2 gradients; that sum with momentum is too long a step",
    ),
}  # fmt: skip
WITHOUT_TABLES = ("all_reduce", "dc_asgd", "downpour", "easgd", "local_sgd", "model_averaging")
"""Registered update rules that cannot train embedding tables."""

RULES = {name: dataclasses.replace(setting, update=name) for name, setting in _RULES.items()}
"""Registered update rule -> its setting."""

TRANSFORMS = {
    "none": TrainingSetting(
        max_steps=800, learning_rate=0.02,
        why="the baseline: float32, unchanged",
    ),
    "clip_norm": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("clip_norm:norm=1",),
        why="a norm of 1 cuts the gradients of the first steps, later ones are smaller",
    ),
    "clip_value": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("clip_value:value=0.05",),
        why="few elements of the first steps' gradients are larger",
    ),
    "cast": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("cast:dtype=bfloat16",), least_factor=1.9,
        why="half the bytes; rounding to 8 bits is far below the noise of a batch",
    ),
    "top_k": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("top_k:ratio=0.05",), least_factor=8.0,
        why="a twentieth of the elements; the run adds error feedback",
    ),
    "random_k": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd", transforms=("random_k:ratio=0.25",), least_factor=3.5,
        why="unbiased with 4 times the second moment, so plain SGD instead of momentum",
    ),
    "threshold": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("error_feedback", "threshold:value=0.02"), least_factor=3.0,
        why="error feedback keeps what is below; so large a value lets few elements through",
    ),
    "dgc": TrainingSetting(
        max_steps=800, learning_rate=0.02, optimizer="sgd", transforms=("dgc:ratio=0.01,warmup_steps=100",),
        least_factor=5.0,
        why="the momentum is in the transform, so sgd on the ps; a third of the run is warm-up",
    ),
    "one_bit": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("error_feedback", "one_bit"), least_factor=20.0,
        why="with error feedback, as in its paper",
    ),
    "sign": TrainingSetting(
        max_steps=800, learning_rate=0.001, optimizer="sgd", transforms=("sign",), least_factor=20.0,
        why="every element moves by the learning rate, so it is as small as Adam's",
    ),
    "qsgd": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("qsgd:levels=127",), least_factor=3.5,
        why="a byte per element; 127 levels add little noise",
    ),
    "terngrad": TrainingSetting(
        max_steps=800, learning_rate=0.1, optimizer="sgd", transforms=("terngrad:sigma=2.5",), least_factor=10.0,
        why="clipping as in the paper; the noise is large, so plain SGD with a small learning rate",
    ),
    "power_sgd": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("error_feedback", "power_sgd:rank=2"), least_factor=8.0,
        why="with error feedback, as in its paper; rank 2 is the paper's choice for images",
    ),
    "error_feedback": TrainingSetting(
        max_steps=800, learning_rate=0.02, transforms=("error_feedback", "top_k:ratio=0.01", "cast:dtype=bfloat16"),
        least_factor=20.0,
        why="a hundredth of the elements, at 6 bytes each, needs the memory of what was left out",
    ),
    "pull_dtype": TrainingSetting(
        max_steps=800, learning_rate=0.02, pull_dtype="bfloat16",
        why="not a transform: the pull, at half the bytes",
    ),
}  # fmt: skip
"""Registered gradient transform, or a label, -> its setting; those without transforms are for comparison."""
