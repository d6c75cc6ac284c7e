"""Trains models with their defaults and well-known libraries on the same examples; compares quality and time.

    python -m benchmarks.peer_quality --help

The table in `models/README.md` comes from this program. The data are in packages: the built-in and generated datasets,
and tables of scikit-learn, statsmodels and pydataset. The program installs the peers into a separate folder,
`--packages`, and runs them in separate processes, so no peer is a dependency.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import arguments, peer_packages
from benchmarks.contenders import REPOSITORY
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer import component_tables
from ps_trainer.errors import RunError
from ps_trainer.launch.command import run_local

CLUSTER = ("--num_ps=1", "--num_workers=2")
PACKAGES = ("scikit-learn", "gensim", "statsmodels", "pydataset")
RATINGS = "u.data"
"""Name of a file of ratings; every tenth line, the first one included, is for testing."""

_MODULE = "benchmarks.peers.quality"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityTask:
    """Data, our model and its peer.

    Attributes:
        model: Our model, with its defaults.
        dataset: Dataset of ps_trainer, or `<package>:<name>` for a packaged table (`benchmarks.peers.quality.TABLES`).
        metric: Metric that both report on the same test examples.
        peer: Key of `benchmarks.peers.quality.PEERS`.
        words: The peer, for the table.
        flags: Further flags of the run.
    """

    model: str
    dataset: str
    metric: str
    peer: str
    words: str
    flags: tuple[str, ...] = ()


_SPARSE = ("--dataset_option=form=sparse",)
TASKS = {
    "digits_softmax": QualityTask(
        model="softmax", dataset="digits", metric="accuracy", peer="logistic_regression",
        words="scikit-learn LogisticRegression",
    ),
    "digits_mlp": QualityTask(
        model="mlp", dataset="digits", metric="accuracy", peer="mlp", words="scikit-learn MLPClassifier",
    ),
    "digits_cnn": QualityTask(
        model="cnn", dataset="digits", metric="accuracy", peer="support_vectors", words="scikit-learn SVC",
    ),
    "glyphs_cnn": QualityTask(
        model="cnn", dataset="glyphs", metric="accuracy", peer="random_forest",
        words="scikit-learn RandomForestClassifier",
    ),
    "breast_cancer": QualityTask(
        model="logistic_regression", dataset="sklearn:breast_cancer", metric="accuracy", peer="logistic_regression",
        words="scikit-learn LogisticRegression", flags=_SPARSE,
    ),
    "randhie": QualityTask(
        model="logistic_regression", dataset="statsmodels:randhie", metric="log_loss", peer="logistic_regression",
        words="scikit-learn LogisticRegression", flags=_SPARSE,
    ),
    "insteval": QualityTask(
        model="wide_deep", dataset="pydataset:InstEval", metric="auc", peer="logistic_regression",
        words="scikit-learn LogisticRegression",
        flags=("--dataset_option=form=columns", "--model_option=crosses="),
    ),
    "insteval_ratings": QualityTask(
        model="matrix_factorization", dataset="pydataset:InstEval_ratings", metric="squared_error", peer="ridge",
        words="scikit-learn Ridge, a weight for each user and item",
    ),
    "wine": QualityTask(
        model="mlp", dataset="sklearn:wine", metric="accuracy", peer="mlp", words="scikit-learn MLPClassifier",
    ),
    "planted_weights": QualityTask(
        model="logistic_regression", dataset="planted_weights", metric="log_loss", peer="logistic_regression",
        words="scikit-learn LogisticRegression",
    ),
    "planted_clicks": QualityTask(
        model="wide_deep", dataset="planted_clicks", metric="auc", peer="boosting",
        words="scikit-learn HistGradientBoostingClassifier",
    ),
    "planted_ratings": QualityTask(
        model="matrix_factorization", dataset="planted_ratings", metric="squared_error",
        peer="alternating_least_squares", words="NumPy, alternating least squares",
    ),
    "planted_synonyms": QualityTask(
        model="word2vec", dataset="planted_synonyms", metric="recovered", peer="gensim_word2vec",
        words="gensim Word2Vec",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerRow(Row):
    """Our result and the peer's.

    Attributes:
        task: Key of `TASKS`.
        model: Our model.
        metric: Name of the metric.
        peer: The peer in words.
        flags: Flags after `ps_trainer local --num_ps=1 --num_workers=2`.
        ours: Our value of the metric; None if the run failed.
        theirs: The peer's value; None if it failed.
        our_secs: Seconds of the run, including the start of the processes and the evaluation.
        their_secs: Seconds of the peer's process, including its imports.
        our_train_secs: Seconds of the workers' steps.
        their_fit_secs: Seconds of the peer's training.
    """

    COLUMNS = (
        ResultColumn("data", lambda row: f"`{row.task}`"),
        ResultColumn("model", lambda row: f"`{row.model}`"),
        ResultColumn("metric", "metric"),
        ResultColumn("ours", "ours", ".4f"),
        ResultColumn("peer's", "theirs", ".4f"),
        ResultColumn("peer", "peer"),
        ResultColumn("our s, all", "our_secs", ".0f"),
        ResultColumn("our s, steps", "our_train_secs", ".1f"),
        ResultColumn("peer's s, all", "their_secs", ".0f"),
        ResultColumn("peer's s, fit", "their_fit_secs", ".1f"),
    )

    task: str
    model: str
    metric: str
    peer: str
    flags: str
    ours: float | None = None
    theirs: float | None = None
    our_secs: float | None = None
    their_secs: float | None = None
    our_train_secs: float | None = None
    their_fit_secs: float | None = None

    @property
    def is_good(self) -> bool:
        """Whether both have a result. A worse result than the peer's is not a failure."""
        return self.ours is not None and self.theirs is not None


def main(argv: Sequence[str]) -> int:
    """Runs the comparison.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 where a run or a peer failed.
    """
    parser = arguments.create_parser("benchmarks.peer_quality", __doc__)
    parser.add_argument("--tasks", type=arguments.choices(TASKS, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--packages", help="folder with the peers; filled by pip if it is missing; none = in --out_dir")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/peer_quality")
    report = Report("benchmarks.peer_quality", argv, folder)
    packages = pathlib.Path(flags.packages or folder / "packages").resolve()
    peer_packages.install(packages, PACKAGES, flags.deadline_secs)
    report.notes.append(f"Peers: {', '.join(peer_packages.versions(packages, PACKAGES))}.")
    for name in flags.tasks:
        report.add(run(name, TASKS[name], folder / name, packages, flags.deadline_secs))
    return report.finish()


def run(name: str, task: QualityTask, folder: pathlib.Path, packages: pathlib.Path, deadline_secs: float) -> PeerRow:
    """Trains our model, then the peer; a failure is a row without a value, and prints the reason."""
    data = prepare(task, folder, packages, deadline_secs)
    flags = [f"--model={task.model}", *_data_flags(task, data), *task.flags]
    row = PeerRow(task=name, model=task.model, metric=task.metric, peer=task.words, flags=" ".join(flags))
    try:
        our_secs = run_local([*CLUSTER, *flags], folder / "ours", deadline_secs, cwd=REPOSITORY)
        summary = json.loads((folder / "ours" / "summary.json").read_text())
        row = dataclasses.replace(
            row, ours=summary["metrics"][task.metric], our_secs=our_secs, our_train_secs=_train_secs(summary)
        )
        started = time.perf_counter()
        figures = json.loads(peer_packages.run(_MODULE, [task.peer, str(data)], packages, deadline_secs))
        their_secs = time.perf_counter() - started
    except (RunError, subprocess.SubprocessError) as error:
        print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
        return row
    return dataclasses.replace(
        row, theirs=figures[task.metric], their_secs=their_secs, their_fit_secs=figures["fit_secs"]
    )


def prepare(task: QualityTask, folder: pathlib.Path, packages: pathlib.Path, deadline_secs: float) -> pathlib.Path:
    """Writes the examples that both read: files of a packaged table, or the arrays of our dataset."""
    if ":" in task.dataset:
        peer_packages.run(_MODULE, ["export", task.dataset, str(folder / "data")], packages, deadline_secs)
        return folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    arrays = component_tables.DATASETS.create(task.dataset, [], data_dir=None).arrays
    path = folder / "examples.npz"
    np.savez(path, **{f"{split}/{key}": value for split, of in arrays.items() for key, value in of.items()})
    return path


def _data_flags(task: QualityTask, data: pathlib.Path) -> list[str]:
    if data.is_file():
        return [f"--dataset={task.dataset}"]
    if (data / RATINGS).is_file():
        return ["--dataset=movielens", f"--data_dir={data}"]
    files = [f"--dataset_option={split}_files={split}.csv" for split in ("train", "test")]
    return ["--dataset=csv", f"--data_dir={data}", "--dataset_option=label=label", *files]


def _train_secs(summary: dict[str, Any]) -> float:
    return float(max(worker["secs"] for worker in summary["workers"].values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
