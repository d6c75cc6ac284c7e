"""Trains the models of `models/` in real processes, each to the figure that it must reach.

    python -m benchmarks.models --help

The table in `models/README.md` comes from here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import shlex
import signal
import sys
from collections.abc import Sequence

from benchmarks import arguments, report
from benchmarks.contenders import REPOSITORY
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance
from ps_trainer.launch.command import run_local

CLUSTER = ("--num_ps=1", "--num_workers=2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A model, what it is trained on, and what it must reach.

    Attributes:
        flags: after `python -m ps_trainer local --num_ps=1 --num_workers=2 --model=<name>`.
        metric: of the test examples, in summary.json.
        least: the metric must be so much, or more.
        most: the metric must be so much, or less.
        why: where the bound comes from.
        model: its name, where it is not the task's.
        init_from: task whose run is made before, and with whose checkpoint this one begins.
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
        """Whether a value of the metric is as it must be."""
        return self.least <= value <= self.most


TASKS = {
    "lenet": Task(
        flags=(
            "--dataset=digits", "--update=sync", "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=2500",
        ),
        metric="accuracy",
        least=0.98,
        why="the digits",
    ),
    "vgg": Task(
        flags=(
            "--model_option=width=0.125", "--model_option=hidden=128", "--dataset=glyphs", "--update=sync",
            "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=800",
        ),
        metric="loss",
        most=1.15,
        why="half of log(10) = 2.30, the loss of one who knows nothing",
    ),
    "resnet": Task(
        flags=(
            "--dataset=glyphs", "--update=sync", "--optimizer=momentum", "--learning_rate=0.1", "--max_steps=500",
        ),
        metric="accuracy",
        least=0.95,
        why="the glyphs",
    ),
    "speech": Task(
        flags=(
            "--dataset=tones", "--update=sync", "--optimizer=adam", "--learning_rate=0.003",
            "--gradient_transform=clip_norm:norm=5", "--batch_size=16", "--max_steps=250",
        ),
        metric="label_error_rate",
        most=0.05,
        why="the tones",
    ),
    "logistic_regression": Task(
        flags=(
            "--dataset=planted_weights", "--update=async", "--optimizer=ftrl", "--optimizer_option=l1=2",
            "--learning_rate=0.3", "--batch_size=64", "--max_steps=3000",
        ),
        metric="log_loss",
        most=0.42,
        why="the planted weights themselves have 0.39",
    ),
    "matrix_factorization": Task(
        flags=(
            "--dataset=planted_ratings", "--update=async", "--optimizer=adagrad", "--learning_rate=0.3",
            "--batch_size=128", "--max_steps=4000",
        ),
        metric="squared_error",
        most=0.0529,
        why="an RMSE of 0.23; the noise is 0.2",
    ),
    "wide_deep": Task(
        flags=(
            "--dataset=planted_clicks", "--model_option=crosses=8x9,10x11,12x13,14x15", "--model_option=dim=4",
            "--model_option=hidden=32", "--update=async", "--optimizer=adagrad", "--learning_rate=0.1",
            "--optimizer_for=wide/*=ftrl:learning_rate=0.5", "--batch_size=256", "--max_steps=1600",
        ),
        metric="auc",
        least=0.8294,
        why="within 0.01 of the true probabilities, which have 0.8394",
    ),
    "word2vec": Task(
        flags=(
            "--dataset=planted_synonyms", "--update=async", "--optimizer=adagrad", "--learning_rate=0.5",
            "--batch_size=64", "--max_steps=3000",
        ),
        metric="recovered",
        least=0.9,
        why="synonyms that are each other's nearest neighbours",
    ),
    "transformer": Task(
        flags=(
            "--dataset=numbers", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.002", "--schedule=cosine", "--schedule_option=decay_steps=600",
            "--schedule_option=warmup_steps=50", "--batch_size=32", "--max_steps=600",
        ),
        metric="exact_match",
        least=0.95,
        why="the exact translation of numbers that are none of the training",
    ),
    "bert": Task(
        flags=(
            "--dataset=text", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.003", "--schedule=cosine", "--schedule_option=decay_steps=600",
            "--schedule_option=warmup_steps=50", "--batch_size=16", "--max_steps=600",
        ),
        metric="masked_accuracy",
        least=0.3,
        why="who always tells the most frequent character is right for 0.249 (unigram_accuracy)",
    ),
    "bert_topics": Task(
        model="bert",
        init_from="bert",
        flags=(
            "--model_option=num_classes=8", "--dataset=topics", "--update=sync", "--optimizer=adam",
            "--learning_rate=0.001", "--batch_size=16", "--max_steps=300",
        ),
        metric="accuracy",
        least=0.4,
        why="who always tells the longest topic is right for 0.240",
    ),
    "gpt": Task(
        flags=(
            "--dataset=text", "--update=sync", "--optimizer=adam", "--optimizer_option=beta2=0.98",
            "--learning_rate=0.003", "--schedule=cosine", "--schedule_option=decay_steps=800",
            "--schedule_option=warmup_steps=100", "--batch_size=16", "--max_steps=800",
        ),
        metric="bits_per_symbol",
        most=1.86,
        why="smoothed counts of groups of five characters in the same examples have 1.864 (python -m benchmarks.ngram)",
    ),
    "word2vec_cbow": Task(
        model="word2vec",
        flags=(
            "--model_option=form=cbow", "--dataset=planted_synonyms", "--update=async", "--optimizer=adagrad",
            "--learning_rate=0.5", "--batch_size=64", "--max_steps=3000",
        ),
        metric="recovered",
        least=0.9,
        why="synonyms that are each other's nearest neighbours",
    ),
    "word2vec_text": Task(
        model="word2vec",
        flags=(
            "--num_ps=2", "--model_option=vocab_size=1000", "--dataset=text_windows", "--update=async",
            "--optimizer=adagrad", "--learning_rate=0.5", "--batch_size=64", "--max_steps=8000",
        ),
        metric="recovered",
        least=0.4,
        why="words whose nearest neighbour is among the 6 that counting finds most similar; by chance 0.006",
    ),
    "lstm_lm": Task(
        flags=(
            "--model_option=vocab_size=11", "--model_option=dim=16", "--model_option=units=64", "--dataset=markov",
            "--update=sync", "--optimizer=adam", "--learning_rate=0.01", "--schedule=cosine",
            "--schedule_option=decay_steps=1000", "--batch_size=16", "--max_steps=1000",
        ),
        metric="nats_per_token",
        most=1.0844,
        why="a perplexity of 1.05 times that of the chain, whose entropy rate is 1.0357",
    ),
    "lstm_lm_sampled": Task(
        model="lstm_lm",
        flags=(
            "--model_option=loss=sampled_softmax", "--model_option=num_sampled=16", "--model_option=vocab_size=51",
            "--model_option=dim=32", "--model_option=units=64", "--dataset=markov", "--dataset_option=order=1",
            "--dataset_option=num_words=50", "--dataset_option=num_successors=6", "--dataset_option=context_length=32",
            "--update=sync", "--optimizer=lazy_adam", "--learning_rate=0.01", "--schedule=cosine",
            "--schedule_option=decay_steps=1000", "--batch_size=16", "--max_steps=1000",
        ),
        metric="nats_per_token",
        most=1.4255,
        why="a perplexity of 1.05 times that of the chain, whose entropy rate is 1.3767",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one model.

    Attributes:
        model: its name, or the task's.
        flags: after `--model=<name>`.
        metric: what was measured.
        bound: what it must be.
        value: what it is; None where the run failed.
        is_met: whether it is what it must be.
        global_step: at the end.
        examples_per_sec: of all workers together.
        wall_secs: with the start of the processes.
    """

    model: str
    flags: str
    metric: str
    bound: str
    value: float | None
    is_met: bool
    global_step: int
    examples_per_sec: float
    wall_secs: float


def main(argv: Sequence[str]) -> int:
    """Trains the models.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 where a run failed or a model is not what it must be.
    """
    parser = arguments.create_parser("benchmarks.models", __doc__)
    parser.add_argument("--models", type=arguments.choices(TASKS, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--deadline_secs", type=float, default=900.0, help="after so long a run has failed")
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/models")
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.models", *argv])
    rows = []
    befores = [TASKS[name].init_from for name in flags.models]
    for name in dict.fromkeys([*(before for before in befores if before), *flags.models]):
        rows.append(run(name, TASKS[name], folder / name, flags.deadline_secs))
        print(_line(rows[-1]), flush=True)
        values = [report.rounded(row) for row in rows]
        folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, "rows": values}, indent=2) + "\n")
        report.write_csv(rows, Row, folder / "results.csv")
    print(f"\n{origin_sentence(origin)}\nresults: {folder}")
    return EXIT_DONE if all(row.is_met for row in rows) else EXIT_FAILED


def run(name: str, task: Task, logdir: pathlib.Path, deadline_secs: float) -> Row:
    """Trains one model; a failed run is a row whose bound is not met, and says why."""
    common = {"model": name, "flags": shlex.join(task.flags), "metric": task.metric, "bound": task.bound}
    flags = [*CLUSTER, f"--model={task.model or name}", *task.flags]
    if task.init_from:
        flags.append(f"--init_from={logdir.resolve().with_name(task.init_from)}")
    try:
        wall_secs = run_local(flags, logdir, deadline_secs, cwd=REPOSITORY)
    except RunError as error:
        print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
        return Row(**common, value=None, is_met=False, global_step=0, examples_per_sec=0.0, wall_secs=0.0)
    summary = json.loads(logdir.joinpath("summary.json").read_text())
    value = summary["metrics"][task.metric]
    return Row(
        **common,
        value=value,
        is_met=task.is_met(value),
        global_step=summary["global_step"],
        examples_per_sec=summary["examples_per_sec"],
        wall_secs=wall_secs,
    )


def _line(row: Row) -> str:
    """The row in Markdown."""
    value = "failed" if row.value is None else f"{row.value:.4g}{'' if row.is_met else ' (missed)'}"
    return (
        f"| `{row.model}` | {row.metric} {row.bound} | {value} |"
        f" {row.global_step} | {row.examples_per_sec:.0f} | {row.wall_secs:.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
