"""Trains word vectors on a text with word2vec and with gensim; compares words per second and recall@10.

    python -m benchmarks.running_text TEXT --seeds=5

Both train skip-gram with negative sampling on 2 workers: same features, window, negatives, thinning, vocabulary, and
passes over the text. Ours has its default optimizer, gensim its own. Counting gives each of the most frequent words the
ten most similar ones (dataset text_windows). Recall@10 is the share of them among its ten nearest words. The program
installs gensim into a separate folder, `--packages`, and runs it in a separate process.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import arguments, peer_packages
from benchmarks.contenders import REPOSITORY
from benchmarks.neighbours import nearest_words, unit_rows
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.checkpoints.report import find_checkpoint
from ps_trainer.data.formats.text_windows import TextWindows
from ps_trainer.experiments.harness.cpu import UNKNOWN_USE, CpuWatch
from ps_trainer.launch.command import run_local

NEAREST = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRow(Row):
    """The results of one seed.

    Attributes:
        seed: Seed of both.
        words: Words that each reads in all passes.
        our_recall: Recall@10 of our vectors.
        their_recall: Recall@10 of gensim's.
        our_words_per_sec: Words over the time of the workers' steps.
        their_words_per_sec: Words over the time of gensim's training from an iterator over lines.
        their_file_words_per_sec: The same from a file (`corpus_file`), which gensim reads without Python.
        our_cpu_us_per_word: Processor time of all our processes during the steps; it hardly depends on other programs.
        their_cpu_us_per_word: Processor time of gensim's training from an iterator.
    """

    COLUMNS = (
        ResultColumn("seed", "seed"),
        ResultColumn("our recall@10", "our_recall", ".4f"),
        ResultColumn("gensim's", "their_recall", ".4f"),
        ResultColumn("our words/s", "our_words_per_sec", ",.0f"),
        ResultColumn("gensim's, lines", "their_words_per_sec", ",.0f"),
        ResultColumn("gensim's, file", "their_file_words_per_sec", ",.0f"),
        ResultColumn("our CPU, µs a word", "our_cpu_us_per_word", ".2f"),
        ResultColumn("gensim's, lines", "their_cpu_us_per_word", ".2f"),
    )

    seed: int
    words: int
    our_recall: float
    their_recall: float
    our_words_per_sec: float
    their_words_per_sec: float
    their_file_words_per_sec: float
    our_cpu_us_per_word: float
    their_cpu_us_per_word: float


class _Trained(NamedTuple):
    """Our vectors by id, the words that the workers read, and the time that their steps took."""

    vectors: np.ndarray
    words: int
    secs: float
    cpu_secs: float


def main(argv: Sequence[str]) -> int:
    """Runs the comparison; returns 0."""
    parser = arguments.create_parser("benchmarks.running_text", __doc__)
    parser.add_argument("text", type=pathlib.Path, help="UTF-8, words separated by white space")
    parser.add_argument("--seeds", type=arguments.at_least(1), default=5, help="number of seeds")
    parser.add_argument("--first_seed", type=int, default=0, help="the first of them")
    parser.add_argument("--epochs", type=arguments.at_least(1), default=5, help="passes over the text")
    parser.add_argument("--dim", type=arguments.at_least(1), default=100, help="features of a word")
    parser.add_argument("--max_vocab", type=arguments.at_least(2), default=8000, help="size of the vocabulary")
    parser.add_argument("--num_test", type=arguments.at_least(1), default=1000, help="most frequent words to test on")
    parser.add_argument(
        "--batch_size", type=arguments.at_least(1), default=64, help="examples of 64 words in our batches"
    )
    parser.add_argument("--packages", help="folder with gensim; filled by pip if it is missing; none = in --out_dir")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    if not flags.text.is_file():
        parser.error(f"{flags.text} is not a file; name a text")
    folder = arguments.new_folder(parser, flags.out_dir, "runs/running_text")
    report = Report("benchmarks.running_text", argv, folder)
    packages = pathlib.Path(flags.packages or folder / "packages").resolve()
    peer_packages.install(packages, ["gensim"], flags.deadline_secs)
    text = flags.text.resolve()
    options = TextWindows.Options(max_vocab=flags.max_vocab, num_test=flags.num_test, train_files=(text.name,))
    source = TextWindows(options, data_dir=str(text.parent))
    settings = {
        "dim": flags.dim, "window": options.window, "negatives": 5, "subsample": options.subsample,
        "max_vocab": flags.max_vocab, "epochs": flags.epochs,
    }  # fmt: skip
    for seed in range(flags.first_seed, flags.first_seed + flags.seeds):
        (folder / f"seed{seed}").mkdir()
        out = folder / f"seed{seed}" / "gensim.npz"
        theirs = _gensim(text, out, settings | {"seed": seed}, packages, flags.deadline_secs)
        ours = _train(
            source, text, flags.epochs, flags.dim, flags.batch_size, seed, folder / f"seed{seed}", flags.deadline_secs
        )
        report.add(
            TextRow(
                seed=seed,
                words=int(theirs["words"]),
                our_recall=recall(ours.vectors, source),
                their_recall=recall(in_order(out, source.vocabulary.tokens), source),
                our_words_per_sec=ours.words / ours.secs,
                their_words_per_sec=theirs["words"] / theirs["fit_secs"],
                their_file_words_per_sec=theirs["words"] / theirs["fit_file_secs"],
                our_cpu_us_per_word=1e6 * ours.cpu_secs / ours.words,
                their_cpu_us_per_word=1e6 * theirs["fit_cpu_secs"] / theirs["words"],
            )
        )
    return report.finish()


def recall(vectors: np.ndarray, source: TextWindows) -> float:
    """Returns the mean share of the words that counting finds most similar among the nearest ones.

    Args:
        vectors: Rows of the words by id, [V, D].
        source: Dataset with the counts; only words that it compares count as near.
    """
    counted = source.information
    vectors = unit_rows(vectors[: len(counted)])
    shares = [
        len({*nearest_words(vectors, word, NEAREST)} & {*nearest_words(counted, word, NEAREST)}) / NEAREST
        for word in source.compared_words
    ]
    return float(np.mean(shares))


def in_order(archive: pathlib.Path, tokens: Sequence[str]) -> np.ndarray:
    """Returns the rows of an archive of words and vectors in the order of `tokens`; 0 where it lacks one."""
    with np.load(archive) as content:
        rows = dict(zip(content["words"].tolist(), content["vectors"], strict=True))
        missing = np.zeros(content["vectors"].shape[1], np.float32)
    return np.stack([rows.get(token, missing) for token in tokens])


def _train(
    source: TextWindows,
    text: pathlib.Path,
    epochs: int,
    dim: int,
    batch_size: int,
    seed: int,
    folder: pathlib.Path,
    deadline_secs: float,
) -> _Trained:
    """Trains our model."""
    num_examples = source.num_train_examples * epochs
    flags = [
        "--num_ps=1", "--num_workers=2", "--model=word2vec", f"--model_option=dim={dim}", "--dataset=text_windows",
        f"--data_dir={text.parent}", f"--dataset_option=train_files={text.name}", f"--seed={seed}",
        f"--dataset_option=max_vocab={source.vocab_size}", f"--dataset_option=num_test={len(source.compared_words)}",
        f"--batch_size={batch_size}", f"--max_steps={math.ceil(num_examples / batch_size)}",
    ]  # fmt: skip
    with CpuWatch(sample_secs=0.2, has_delays=False, has_self=False) as cpu:
        run_local(flags, folder / "ours", deadline_secs, cwd=REPOSITORY)
    summary = json.loads((folder / "ours" / "summary.json").read_text())
    secs = max(worker["secs"] for worker in summary["workers"].values())
    began_at = _trains_from(folder / "ours")
    return _Trained(
        vectors=find_checkpoint(folder / "ours" / "checkpoints")["input"][: source.vocab_size],
        words=source.vocabulary.num_ids * epochs,
        secs=secs,
        cpu_secs=(cpu.between(began_at, began_at + secs) or UNKNOWN_USE).tasks_secs,
    )


def _trains_from(logdir: pathlib.Path) -> float:
    """Returns the time, since the epoch, at which the first worker begins to train."""
    states = [json.loads(line) for line in (logdir / "metrics" / "worker-0.jsonl").read_text().splitlines()]
    return float(next(one["wall_time"] for one in states if one.get("state") == "training"))


def _gensim(
    text: pathlib.Path, out: pathlib.Path, settings: dict[str, object], packages: pathlib.Path, deadline_secs: float
) -> dict[str, float]:
    args = [str(text), str(out), json.dumps(settings)]
    figures: dict[str, float] = json.loads(
        peer_packages.run("benchmarks.peers.running_text", args, packages, deadline_secs)
    )
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
