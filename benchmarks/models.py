"""Trains each model of `models/` in real processes, and compares a test metric with its goal.

    python -m benchmarks.models --help

The table in `docs/reference/model-accuracy.md` comes from this program.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import shlex
import sys
from collections.abc import Sequence

from benchmarks import arguments
from benchmarks.contenders import REPOSITORY
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.errors import RunError
from ps_trainer.launch.command import run_local

CLUSTER = ("--num_ps=1", "--num_workers=2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelGoal:
    """A model, its training, and the value that a test metric must reach.

    Attributes:
        flags: Flags after `ps_trainer local --num_ps=1 --num_workers=2 --model=<name>`.
        metric: Key of the test metrics in summary.json.
        least: Smallest value of the metric.
        most: Largest value of the metric.
        why: Origin of the bound.
        model: Name of the model, if it differs from the goal's key.
        init_from: Goal that runs before, because this run begins with its checkpoint.
    """

    flags: tuple[str, ...]
    metric: str
    least: float = -math.inf
    most: float = math.inf
    why: str
    model: str | None = None
    init_from: str | None = None

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"≥ {self.least:g}" if self.least > -math.inf else f"≤ {self.most:g}"

    def is_met(self, value: float) -> bool:
        """Returns whether a value of the metric is within the bound."""
        return self.least <= value <= self.most


GOALS = {
    "lenet": ModelGoal(
        flags=(
            "--dataset=digits", "--update=sync", "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=2500",
        ),
        metric="accuracy", least=0.98,
        why="the digits",
    ),
    "vgg": ModelGoal(
        flags=(
            "--model_option=width=0.125", "--model_option=hidden=128", "--dataset=glyphs", "--update=sync",
            "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=800",
        ),
        metric="loss", most=1.15,
        why="half of log(10) = 2.30, the loss of a uniform guess",
    ),
    "resnet": ModelGoal(
        flags=(
            "--dataset=glyphs", "--update=sync", "--optimizer=momentum", "--learning_rate=0.1", "--max_steps=500",
        ),
        metric="accuracy", least=0.95,
        why="the glyphs",
    ),
    "speech": ModelGoal(
        flags=(
            "--dataset=tones", "--update=sync", "--optimizer=adam", "--learning_rate=0.003",
            "--gradient_transform=clip_norm:norm=5", "--batch_size=16", "--max_steps=250",
        ),
        metric="label_error_rate", most=0.05,
        why="the tones",
    ),
    "logistic_regression": ModelGoal(
        flags=(
            "--dataset=planted_weights", "--update=async", "--optimizer=ftrl", "--optimizer_option=l1=2",
            "--learning_rate=0.3", "--batch_size=64", "--max_steps=3000",
        ),
        metric="log_loss", most=0.42,
        why="the planted weights themselves have 0.39",
    ),
    "matrix_factorization": ModelGoal(
        flags=(
            "--model_option=decay=0", "--dataset=planted_ratings", "--update=async", "--optimizer=adagrad",
            "--learning_rate=0.3", "--batch_size=128", "--max_steps=4000",
        ),
        metric="squared_error", most=0.0529,
        why="an RMSE of 0.23; the noise is 0.2",
    ),
    "wide_deep": ModelGoal(
        flags=(
            "--dataset=planted_clicks", "--model_option=crosses=8x9,10x11,12x13,14x15", "--model_option=dim=4",
            "--model_option=hidden=32", "--update=async", "--optimizer=adagrad", "--learning_rate=0.1",
            "--optimizer_for=wide/*=ftrl:learning_rate=0.5", "--batch_size=256", "--max_steps=1600",
        ),
        metric="auc", least=0.8294,
        why="within 0.01 of the true probabilities, which have 0.8394",
    ),
    "factorization_machine": ModelGoal(
        flags=(
            "--dataset=planted_weights", "--update=async", "--optimizer=adagrad", "--learning_rate=0.1",
            "--batch_size=64", "--max_steps=3000",
        ),
        metric="log_loss", most=0.42,
        why="the planted weights themselves have 0.39, and no pair matters",
    ),
    "deepfm": ModelGoal(
        flags=(
            "--dataset=planted_clicks", "--model_option=dim=4", "--model_option=hidden=32", "--update=async",
            "--optimizer=adagrad", "--learning_rate=0.1", "--batch_size=256", "--max_steps=1600",
        ),
        metric="auc", least=0.78,
        why="the planted weights of pairs have no structure, so only crossed columns find them",
    ),
    "word2vec": ModelGoal(
        flags=(
            "--dataset=planted_synonyms", "--update=async", "--optimizer=adagrad", "--learning_rate=0.5",
            "--batch_size=64", "--max_steps=3000",
        ),
        metric="recovered", least=0.9,
        why="synonyms that are each other's nearest neighbours",
    ),
    "transformer": ModelGoal(
        flags=(
            "--dataset=numbers", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.002", "--schedule=cosine", "--schedule_option=decay_steps=600",
            "--schedule_option=warmup_steps=50", "--batch_size=32", "--max_steps=600",
        ),
        metric="exact_match", least=0.95,
        why="exact translations of numbers that are not among the training examples",
    ),
    "bert": ModelGoal(
        flags=(
            "--dataset=text", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.003", "--schedule=cosine", "--schedule_option=decay_steps=600",
            "--schedule_option=warmup_steps=50", "--batch_size=16", "--max_steps=600",
        ),
        metric="masked_accuracy", least=0.3,
        why="the most frequent character as the only answer has 0.249 (unigram_accuracy)",
    ),
    "bert_topics": ModelGoal(
        model="bert", init_from="bert",
        flags=(
            "--model_option=num_classes=8", "--dataset=topics", "--update=sync", "--optimizer=adam",
            "--learning_rate=0.001", "--batch_size=16", "--max_steps=300",
        ),
        metric="accuracy", least=0.4,
        why="the longest topic as the only answer has 0.240",
    ),
    "gpt": ModelGoal(
        flags=(
            "--dataset=text", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.003", "--schedule=cosine", "--schedule_option=decay_steps=800",
            "--schedule_option=warmup_steps=100", "--batch_size=16", "--max_steps=800",
        ),
        metric="bits_per_symbol", most=1.86,
        why="smoothed counts of groups of five characters in the same examples have 1.864 (python -m benchmarks.ngram)",
    ),
    "word2vec_cbow": ModelGoal(
        model="word2vec",
        flags=(
            "--model_option=form=cbow", "--dataset=planted_synonyms", "--update=async", "--optimizer=adagrad",
            "--learning_rate=0.5", "--batch_size=64", "--max_steps=3000",
        ),
        metric="recovered", least=0.9,
        why="synonyms that are each other's nearest neighbours",
    ),
    "word2vec_text": ModelGoal(
        model="word2vec",
        flags=(
            "--num_ps=2", "--dataset=text_windows", "--update=async", "--max_steps=1500",
        ),
        metric="recovered", least=0.6,
        why="words whose nearest neighbour is among the 10 that counting finds most similar; by chance 0.01",
    ),
    "lstm_lm": ModelGoal(
        flags=(
            "--model_option=vocab_size=11", "--model_option=dim=16", "--model_option=units=64", "--dataset=markov",
            "--update=sync", "--optimizer=adam", "--learning_rate=0.01", "--schedule=cosine",
            "--schedule_option=decay_steps=1000", "--batch_size=16", "--max_steps=1000",
        ),
        metric="nats_per_token", most=1.0844,
        why="1.05 times the chain's perplexity; its entropy rate is 1.0357",
    ),
    "lstm_lm_sampled": ModelGoal(
        model="lstm_lm",
        flags=(
            "--model_option=loss=sampled_softmax", "--model_option=num_sampled=16", "--model_option=vocab_size=51",
            "--model_option=dim=32", "--model_option=units=64", "--dataset=markov", "--dataset_option=order=1",
            "--dataset_option=num_words=50", "--dataset_option=num_successors=6", "--dataset_option=context_length=32",
            "--update=sync", "--optimizer=lazy_adam", "--learning_rate=0.01", "--schedule=cosine",
            "--schedule_option=decay_steps=1000", "--batch_size=16", "--max_steps=1000",
        ),
        metric="nats_per_token", most=1.4255,
        why="1.05 times the chain's perplexity; its entropy rate is 1.3767",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRow(Row):
    """The result of one model.

    Attributes:
        model: Key of `GOALS`.
        flags: Flags after `--model=<name>`.
        metric: Name of the metric.
        bound: Bound of the metric, in words.
        value: Value of the metric; None if the run failed.
        is_met: Whether the value is within the bound.
        global_step: Value of global_step at the end.
        examples_per_sec: Examples per second of all workers together.
        wall_secs: Seconds of the run, including the start of the processes.
    """

    COLUMNS = (
        ResultColumn("model", lambda row: f"`{row.model}`"),
        ResultColumn("goal", lambda row: f"{row.metric} {row.bound}"),
        ResultColumn("reached", lambda row: row.reached),
        ResultColumn("steps", "global_step"),
        ResultColumn("examples/s", "examples_per_sec", ".0f"),
        ResultColumn("secs", "wall_secs", ".0f"),
    )

    model: str
    flags: str
    metric: str
    bound: str
    value: float | None = None
    is_met: bool = False
    global_step: int = 0
    examples_per_sec: float = 0.0
    wall_secs: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the model reached its goal."""
        return self.is_met

    @property
    def reached(self) -> str:
        """The value in words."""
        return "failed" if self.value is None else f"{self.value:.4g}{'' if self.is_met else ' (missed)'}"


def main(argv: Sequence[str]) -> int:
    """Trains the models.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 where a run failed or a model missed its goal.
    """
    parser = arguments.create_parser("benchmarks.models", __doc__)
    parser.add_argument("--models", type=arguments.choices(GOALS, all_as="all"), default="all", help="names, or all")
    arguments.add_deadline(parser, 900.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/models")
    report = Report("benchmarks.models", argv, folder)
    befores = [GOALS[name].init_from for name in flags.models]
    # A goal that another one starts from comes first, and only once even if the user names it.
    for name in dict.fromkeys([*(before for before in befores if before), *flags.models]):
        report.add(run(name, GOALS[name], folder / name, flags.deadline_secs))
    return report.finish()


def run(name: str, goal: ModelGoal, logdir: pathlib.Path, deadline_secs: float) -> ModelRow:
    """Trains one model; a failed run is a row without a value, and prints the reason."""
    row = ModelRow(model=name, flags=shlex.join(goal.flags), metric=goal.metric, bound=goal.bound)
    flags = [*CLUSTER, f"--model={goal.model or name}", *goal.flags]
    if goal.init_from:
        flags.append(f"--init_from={logdir.resolve().with_name(goal.init_from)}")
    try:
        wall_secs = run_local(flags, logdir, deadline_secs, cwd=REPOSITORY)
    except RunError as error:
        print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
        return row
    summary = json.loads(logdir.joinpath("summary.json").read_text())
    value = summary["metrics"][goal.metric]
    return dataclasses.replace(
        row,
        value=value,
        is_met=goal.is_met(value),
        global_step=summary["global_step"],
        examples_per_sec=summary["examples_per_sec"],
        wall_secs=wall_secs,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
