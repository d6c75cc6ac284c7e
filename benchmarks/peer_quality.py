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
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import arguments, peer_packages
from benchmarks.contenders import REPOSITORY
from benchmarks.report import NOT_MEASURED, Report, ResultColumn, Row
from ps_trainer import component_tables
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.statistics import mean_interval
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
        flags=("--dataset_option=form=columns",),
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
    """Our results and the peer's, from the same seeds.

    Attributes:
        task: Key of `TASKS`.
        model: Our model.
        metric: Name of the metric.
        peer: The peer in words.
        flags: Flags of the first seed after `ps_trainer local --num_ps=1 --num_workers=2`.
        num_seeds: Number of seeds of both.
        ours: Mean of our metric over the seeds; None if a run failed.
        theirs: Mean of the peer's; None if it failed.
        difference: Mean of ours minus the peer's; None if one of them failed.
        difference_low: Lower end of its 90 % interval, t distribution; None with one seed.
        difference_high: Upper end.
        our_secs: Seconds of a run, median, including the start of the processes and the evaluation.
        their_secs: Seconds of the peer's process, median, including its imports.
        our_train_secs: Seconds of the workers' steps, median.
        their_fit_secs: Seconds of the peer's training, median.
    """

    COLUMNS = (
        ResultColumn("data", lambda row: f"`{row.task}`"),
        ResultColumn("model", lambda row: f"`{row.model}`"),
        ResultColumn("metric", "metric"),
        ResultColumn("ours", "ours", ".4f"),
        ResultColumn("peer's", "theirs", ".4f"),
        ResultColumn("ours − peer's", lambda row: row.difference_in_words),
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
    num_seeds: int
    ours: float | None = None
    theirs: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    our_secs: float | None = None
    their_secs: float | None = None
    our_train_secs: float | None = None
    their_fit_secs: float | None = None

    @property
    def difference_in_words(self) -> str:
        """The difference, and its interval where there are several seeds."""
        if self.difference is None:
            return NOT_MEASURED
        interval = f" ({self.difference_low:+.4f} to {self.difference_high:+.4f})" if self.num_seeds > 1 else ""
        return f"{self.difference:+.4f}{interval}"

    @property
    def is_good(self) -> bool:
        """Whether both have a result. A worse result than the peer's is not a failure."""
        return self.difference is not None


def main(argv: Sequence[str]) -> int:
    """Runs the comparison.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 where a run or a peer failed.
    """
    parser = arguments.create_parser("benchmarks.peer_quality", __doc__)
    parser.add_argument("--tasks", type=arguments.choices(TASKS, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--seeds", type=arguments.at_least(1), default=5, help="number of seeds of both (default: 5)")
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
        report.add(run(name, TASKS[name], folder / name, packages, flags.seeds, flags.deadline_secs))
    return report.finish()


def run(
    name: str, task: QualityTask, folder: pathlib.Path, packages: pathlib.Path, num_seeds: int, deadline_secs: float
) -> PeerRow:
    """Trains our model and the peer in turn, once for each seed; a failure is a row without a value.

    It prints the reason of a failure.
    """
    row = PeerRow(task=name, model=task.model, metric=task.metric, peer=task.words, flags="", num_seeds=num_seeds)
    ours, theirs = [], []
    try:
        for seed in range(num_seeds):
            data = prepare(task, folder / f"data-{seed}", packages, seed, deadline_secs)
            flags = [f"--model={task.model}", *_data_flags(task, data), *task.flags, f"--seed={seed}"]
            ours.append(_train(task, flags, folder / f"ours-{seed}", deadline_secs))
            row = dataclasses.replace(_with_ours(row, ours), flags=row.flags or " ".join(flags))
            theirs.append(_fit(task, data, seed, packages, deadline_secs))
    except (RunError, subprocess.SubprocessError) as error:
        print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
        return row
    return _with_theirs(row, ours, theirs)


class _Trained(NamedTuple):
    """Figures of one training; `secs` are those of the whole process, `train_secs` those of the steps alone."""

    metric: float
    secs: float
    train_secs: float


def _train(task: QualityTask, flags: Sequence[str], logdir: pathlib.Path, deadline_secs: float) -> _Trained:
    secs = run_local([*CLUSTER, *flags], logdir, deadline_secs, cwd=REPOSITORY)
    summary = json.loads((logdir / "summary.json").read_text())
    return _Trained(summary["metrics"][task.metric], secs, max(one["secs"] for one in summary["workers"].values()))


def _fit(task: QualityTask, data: pathlib.Path, seed: int, packages: pathlib.Path, deadline_secs: float) -> _Trained:
    started = time.perf_counter()
    figures = json.loads(peer_packages.run(_MODULE, [task.peer, str(data), str(seed)], packages, deadline_secs))
    return _Trained(figures[task.metric], time.perf_counter() - started, figures["fit_secs"])


def _with_ours(row: PeerRow, ours: Sequence[_Trained]) -> PeerRow:
    metrics, secs, train_secs = zip(*ours, strict=True)
    return dataclasses.replace(
        row,
        ours=statistics.fmean(metrics),
        our_secs=statistics.median(secs),
        our_train_secs=statistics.median(train_secs),
    )


def _with_theirs(row: PeerRow, ours: Sequence[_Trained], theirs: Sequence[_Trained]) -> PeerRow:
    metrics, secs, fit_secs = zip(*theirs, strict=True)
    differences = [one.metric - other.metric for one, other in zip(ours, theirs, strict=True)]
    interval = mean_interval(differences)
    return dataclasses.replace(
        row,
        theirs=statistics.fmean(metrics),
        their_secs=statistics.median(secs),
        their_fit_secs=statistics.median(fit_secs),
        difference=statistics.fmean(differences),
        difference_low=interval and interval.low,
        difference_high=interval and interval.high,
    )


def prepare(
    task: QualityTask, folder: pathlib.Path, packages: pathlib.Path, seed: int, deadline_secs: float
) -> pathlib.Path:
    """Writes the examples that both read: files of a packaged table, or the arrays of our dataset.

    The seed draws the test examples of a packaged table. Our datasets have fixed ones.
    """
    if ":" in task.dataset:
        peer_packages.run(_MODULE, ["export", task.dataset, str(folder), str(seed)], packages, deadline_secs)
        return folder
    folder.mkdir(parents=True)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
