"""The peers of `benchmarks.loaders`: the same files, read with the packages that people use otherwise.

    python -m benchmarks.peers.loaders criteo FOLDER 128 3.0 3    # prints {"rates": […]}

It runs in a separate process, with the packages of a folder that `benchmarks.loaders` fills. So it imports neither
TensorFlow nor ps_trainer. A *pass* reads the files and gives all examples in batches, in a random order where the
package holds them in memory. A rate counts whole passes, as our loaders read the files again in each pass, too.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Pass = Callable[[pathlib.Path, int], Iterator[int]]
"""(folder of the files, batch size) -> the number of examples of each batch."""

_random = np.random.default_rng(0)
_WORDS = 64  # of a window


def idx(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads MNIST's files by NumPy, plain or packed."""
    images, labels = (_content(folder, f"train-{name}-ubyte") for name in ("images-idx3", "labels-idx1"))
    image_NHW = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return _batches([image_NHW, np.frombuffer(labels, np.uint8, offset=8)], batch_size)


def cifar(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads CIFAR-10's binary files by NumPy."""
    files = [np.fromfile(path, np.uint8) for path in sorted(folder.rglob("data_batch_*.bin"))]
    records = np.concatenate(files).reshape(-1, 3073)
    image_NHWC = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _batches([image_NHWC, records[:, 0]], batch_size)


def pictures(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads one picture after the other by Pillow, in folders by class."""
    paths = list(folder.rglob("*.png"))
    classes = {name: number for number, name in enumerate(sorted({path.parent.name for path in paths}))}
    order = _random.permutation(len(paths))
    examples = ((_picture(paths[at]), classes[paths[at].parent.name]) for at in order)
    return _stacked(examples, batch_size)


def records(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads records by the package tfrecord, and each JPEG by Pillow."""
    import io

    from tfrecord.reader import tfrecord_loader

    features = {"image/encoded": "byte", "image/class/label": "int"}
    loaded = tfrecord_loader(str(folder / "train.tfrecord"), None, features)
    examples = ((_picture(io.BytesIO(one["image/encoded"])), one["image/class/label"]) for one in loaded)
    return _stacked(examples, batch_size)


def svmlight(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads LIBSVM files by scikit-learn."""
    from sklearn.datasets import load_svmlight_file

    return _batches(list(load_svmlight_file(str(folder / "train.libsvm"))), batch_size)


def table(name: str, delimiter: str) -> Pass:
    """Reads CSV by pyarrow; words become numbers by its dictionaries."""

    def read(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
        from pyarrow import csv

        (path,) = folder.glob(f"{name}*")
        columns = csv.read_csv(
            path,
            read_options=csv.ReadOptions(autogenerate_column_names=True),
            parse_options=csv.ParseOptions(delimiter=delimiter),
        )
        return _batches(_numbers(columns), batch_size)

    return read


def parquet(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads Parquet by pyarrow; words become numbers by its dictionaries."""
    from pyarrow import parquet as reader

    return _batches(_numbers(reader.read_table(folder / "train.parquet")), batch_size)


def characters(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads the bytes of a text by NumPy."""
    codes = np.unique(np.frombuffer((folder / "train.txt").read_bytes(), np.uint8), return_inverse=True)[1]
    return _batches([_windows(codes)], batch_size)


def words(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads words by gensim's iterator over lines and its dictionary."""
    from gensim.corpora import Dictionary
    from gensim.models.word2vec import LineSentence

    lines = LineSentence(str(folder / "train.txt"))
    vocabulary = Dictionary(lines)
    return _batches([_windows(np.concatenate([vocabulary.doc2idx(line) for line in lines]))], batch_size)


def sentence_pairs(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads both files in a Python loop; sentences of similar length share a batch, as ours do."""
    columns = []
    for name in ("train.en", "train.zh"):
        lines = [line.split() for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        vocabulary = {word: number for number, word in enumerate(sorted({word for line in lines for word in line}))}
        columns.append([np.array([vocabulary[word] for word in line]) for line in lines])
    order = sorted(range(len(columns[0])), key=lambda at: len(columns[0][at]))
    starts = _random.permutation(len(order) // batch_size) * batch_size
    for start in starts:
        for column in columns:
            _padded([column[at] for at in order[start : start + batch_size]])
        yield batch_size


def sounds(folder: pathlib.Path, batch_size: int) -> Iterator[int]:
    """Reads one sound after the other by SciPy: logarithms of its spectrogram, in frames as ours."""
    from scipy.io import wavfile
    from scipy.signal import spectrogram

    _, *lines = (folder / "train.csv").read_text(encoding="utf-8").splitlines()
    for start in range(0, len(lines) - batch_size + 1, batch_size):
        spectra = []
        for line in lines[start : start + batch_size]:
            rate, samples = wavfile.read(folder / line.split(",")[0])
            overlap = round(0.01 * rate)
            spectra.append(np.log(spectrogram(samples, nperseg=2 * overlap, noverlap=overlap)[2].T + 1e-6))
        _padded(spectra)
        yield batch_size


PASSES: dict[str, Pass] = {
    "mnist": idx,
    "mnist, gz": idx,
    "cifar10": cifar,
    "image_folder, PNG 32x32": pictures,
    "tfrecord, JPEG 64x64": records,
    "libsvm": svmlight,
    "criteo": table("train.txt", "\t"),
    "criteo, gz": table("train.txt", "\t"),
    "census": table("adult.data", ","),
    "csv": table("train.csv", ","),
    "parquet": parquet,
    "movielens": table("u.data", "\t"),
    "text, characters": characters,
    "text, words": words,
    "text_windows": words,
    "parallel_text": sentence_pairs,
    "wav": sounds,
}
"""The peer of each key of `benchmarks.loaders.CASES`."""


def measure(name: str, folder: pathlib.Path, batch_size: int, seconds: float, repetitions: int) -> list[float]:
    """Returns the examples per second of each repetition.

    Args:
        name: Key of `PASSES`.
        folder: Folder of the files.
        batch_size: Examples of a batch.
        seconds: Time after which a repetition ends with its pass.
        repetitions: Number of repetitions.
    """
    one_pass, rates = PASSES[name], []
    next(iter(one_pass(folder, batch_size)))  # imports the package
    for _ in range(repetitions):
        began_at, num_examples = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began_at) < seconds or not num_examples:
            num_examples += sum(one_pass(folder, batch_size))
        rates.append(num_examples / elapsed)
    return rates


def _content(folder: pathlib.Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()


def _batches(columns: Sequence[Any], batch_size: int) -> Iterator[int]:
    """Takes batches of rows in a random order; bytes become fractions of 1, as in our loaders."""
    num_rows = columns[0].shape[0]
    order = _random.permutation(num_rows)
    for start in range(0, num_rows - batch_size + 1, batch_size):
        rows = order[start : start + batch_size]
        for column in columns:
            batch = column[rows]
            if column.dtype == np.uint8 and column.ndim > 1:
                batch.astype(np.float32) / 255
        yield batch_size


def _stacked(examples: Iterator[tuple[np.ndarray, Any]], batch_size: int) -> Iterator[int]:
    """Collects decoded pictures in batches."""
    held = []
    for example in examples:
        held.append(example)
        if len(held) == batch_size:
            np.stack([image for image, _ in held])
            held = []
            yield batch_size


def _picture(file: Any) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(file).convert("RGB"), np.float32) / 255


def _numbers(table: Any) -> list[np.ndarray]:
    """Returns the columns of a pyarrow table, words as numbers and missing values as NaN or -1."""
    columns = []
    for column in table.columns:
        if str(column.type) in ("string", "large_string", "null"):
            column = column.combine_chunks().dictionary_encode().indices.fill_null(-1)
        columns.append(column.to_numpy(zero_copy_only=False) if hasattr(column, "null_count") else column)
    return columns


def _windows(codes: np.ndarray) -> np.ndarray:
    return codes[: len(codes) // _WORDS * _WORDS].reshape(-1, _WORDS)


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks arrays of different lengths, filled with 0."""
    padded = np.zeros([len(rows), max(len(row) for row in rows), *rows[0].shape[1:]], rows[0].dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


if __name__ == "__main__":
    name, folder, batch_size, seconds, repetitions = sys.argv[1:]
    rates = measure(name, pathlib.Path(folder), int(batch_size), float(seconds), int(repetitions))
    print(json.dumps({"rates": rates}))
