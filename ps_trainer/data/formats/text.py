"""Running text for language models: plain files, text8, PTB, or the topics of Python's documentation."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import shutil
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import NUM_PLACES, DataSource, Shard, folder_of
from ps_trainer.data.pipeline.frequency_vocabulary import count, ranked_vocabulary
from ps_trainer.data.pipeline.text_stream import Document, document, padded_windows, windows
from ps_trainer.data.pipeline.vocabulary import UNITS
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_WINDOWS = 2**14
"""Windows among which the next one is drawn: all of a smaller shard, a sliding window over a larger one."""

FORMS = (("ptb.train.txt", "ptb.test.txt"), ("train.txt", "test.txt"), ("text8", ""))
"""Names of the training file and of the test file, which need not be there ("": never is); each may end in ".gz"."""


class Texts(NamedTuple):
    """Texts to train on and to test on; without the latter, the end of the former is for testing."""

    train: Sequence[Document]
    test: Sequence[Document]


class WindowSource(DataSource):
    """Examples that are windows on texts.

    Args:
        texts: what to read. Texts of a split follow each other without a gap.
        unit: "char" or "word".
        max_vocab: see `ranked_vocabulary`.
        length: ids of a window.
        stride: ids from one window's start to the next one's, less than `length`. Before the text are so many ends of
            a line that the first window ends after `stride` ids.
        test_share: without test texts, the share of the windows, from the end, that are for testing.

    Attributes:
        vocabulary: of the training texts.
        vocab_size: number of its ids.

    Raises:
        DataError: a file cannot be read, is not UTF-8, or is too short.
    """

    max_shuffled = SHUFFLED_WINDOWS

    def __init__(self, texts: Texts, *, unit: str, max_vocab: int, length: int, stride: int, test_share: float):
        self._texts, self._length, self._stride = texts, length, stride
        self.vocabulary = ranked_vocabulary(texts.train, unit, max_vocab)
        self.vocab_size = len(self.vocabulary.tokens)
        num_ids = self.vocabulary.num_ids
        self._num_train = num_ids // stride
        if texts.test:
            num_ids_test = sum(sum(count(one, unit).values()) for one in texts.test)
            self._num_test = num_ids_test // stride
        else:
            num_ids_test = num_ids
            self._num_test = math.ceil(test_share * self._num_train)
            self._num_train -= self._num_test
        if self._num_train < 1 or self._num_test < 1:
            raise DataError(
                f"the texts have {num_ids} {unit}s to train on and {num_ids_test} to test on, too few for windows of"
                f" {stride} to train and to test on; give more text, or a smaller context_length"
            )

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._num_train

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._num_test

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        texts = self._texts.test if split == "test" and self._texts.test else self._texts.train
        records = self._windows(texts)
        if not self._texts.test:
            records = records.skip(self._num_train) if split == "test" else records.take(self._num_train)
        return records.shard(shard.count, shard.index)

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Windows on the whole text: the last one is filled up with ends of a line."""
        ids = self.vocabulary.stream([document(path)])
        filled = padded_windows(ids, **self._cut, padding=self.vocabulary.line_end)
        return filled.map(lambda window, number: {"ids": window, NUM_PLACES: number})

    def _windows(self, texts: Sequence[Document]) -> tf.data.Dataset:
        return windows(self.vocabulary.stream(texts), **self._cut).map(lambda window: {"ids": window})

    @property
    def _cut(self) -> dict[str, Any]:
        before = [self.vocabulary.line_end] * (self._length - self._stride)
        return {"length": self._length, "stride": self._stride, "before": before}

    @property
    def num_places(self) -> int:
        return self._stride

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch | {"ids": tf.cast(batch["ids"], tf.int64)}


class Text(WindowSource):
    """Text for language models, from files in --data_dir; without it, the topics of Python's documentation.

    Batches: "ids" int64 [B, T + 1], T = `context_length`: ids[:, 1:] are to be told, each from those before it. Each
    character or word of the text is to be told exactly once: a window begins with the last id of the window before.
    Ids are 0 .. `vocab_size` - 1, from the most frequent on (`RankedVocabulary`).

    Files are UTF-8, plain or packed by gzip: `ptb.train.txt` and `ptb.test.txt`; `train.txt` and `test.txt`; `text8`
    (`text8.zip` is unpacked beside it); or those that `train_files` and `test_files` name. Words are what white space
    separates, and the end of each line is a word, "<eos>", as in the Penn Treebank. Without a test file, the end of
    the training file is for testing. The vocabulary is that of the training file.

    Source: M. Mahoney, "About the Test Data" (text8), http://mattmahoney.net/dc/textdata.html; T. Mikolov et al.,
    "Recurrent neural network based language model", Interspeech 2010 (the PTB files).

    Args:
        options: unit, context and files.
        data_dir: folder of the files; None = the built-in text, of about 470,000 characters.

    Raises:
        DataError: no folder, no such file or several, a broken file, or too little text.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Text`."""

        unit: str = option("char", "what has an id", choices=UNITS)
        context_length: int = option(64, "T, how many ids of a window are to be told", least=1)
        max_vocab: int = option(
            10000, "the most frequent characters or words, at most so many, have an id of their own", least=2
        )
        train_files: tuple[str, ...] = option((), "names of the files to train on, with commas; none: see above")
        test_files: tuple[str, ...] = option((), "names of the files to test on; none: the end of what is trained on")
        test_share: float = option(
            0.1, "without files to test on, the share of the text that is for testing", above=0, below=1
        )

        def __post_init__(self) -> None:
            if self.test_files and not self.train_files:
                raise OptionError(f"test_files={','.join(self.test_files)} without train_files; name these as well")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        super().__init__(
            find_texts(options.train_files, options.test_files, data_dir),
            unit=options.unit,
            max_vocab=options.max_vocab,
            length=options.context_length + 1,
            stride=options.context_length,
            test_share=options.test_share,
        )


def find_texts(train_files: Sequence[str], test_files: Sequence[str], data_dir: str | None) -> Texts:
    """The texts of a run.

    Args:
        train_files: names of files in `data_dir`; none = those of `FORMS` that are there.
        test_files: the same, to test on.
        data_dir: None = the built-in text.

    Raises:
        DataError: no folder, no such file or several, or a broken one.
    """
    if data_dir is None and not train_files:
        return Texts([python_documentation()], [])
    wanted = ", ".join([*train_files, *test_files]) or " or ".join(train for train, _ in FORMS)
    needs = f"a text needs --data_dir=<folder> with {wanted}"
    folder = folder_of(data_dir, needs)
    if not train_files:
        train_files, test_files = _find_form(folder, needs)
    missing = [name for name in [*train_files, *test_files] if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder} has no {', '.join(missing)}; {needs}")
    return Texts(*([document(folder / name) for name in names] for names in (train_files, test_files)))


def python_documentation() -> Document:
    """The topics of Python's documentation that `help("TOPICS")` lists, in the order of their names.

    Raises:
        DataError: this Python comes without them.
    """
    topics = python_topics()
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    return Document(None, len(text), text=text)


def python_topics() -> dict[str, str]:
    """Name -> text of the topics of Python's documentation.

    Raises:
        DataError: this Python comes without them.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise DataError(
            "this Python comes without its documentation's topics (pydoc_data.topics), which are the built-in text;"
            " give --data_dir with a text, or use another Python"
        ) from error
    return topics.topics


def _find_form(folder: pathlib.Path, needs: str) -> tuple[list[str], list[str]]:
    if (folder / "text8.zip").is_file() and not (folder / "text8").exists():
        _unpack(folder / "text8.zip", "text8")
    found = []
    for names in FORMS:
        train, test = ([name + end for end in ("", ".gz") if (folder / (name + end)).is_file()] for name in names)
        found += [([name], test[:1]) for name in train]
    if not found:
        raise DataError(f"{folder} has none of them; {needs}, or name others with --dataset_option=train_files=…")
    if len(found) > 1:
        names = ", ".join(train[0] for train, _ in found)
        raise DataError(f"{folder} has several: {names}; choose by --dataset_option=train_files=…")
    return found[0]


def _unpack(archive: pathlib.Path, name: str) -> None:
    """Writes one file of an archive beside it: TensorFlow reads no zip archives."""
    partial = archive.with_name(f"{name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(name) as packed, partial.open("wb") as file:
            shutil.copyfileobj(packed, file)
        os.replace(partial, archive.with_name(name))
    except (OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{archive}: {name} cannot be unpacked beside it ({error}); do it yourself") from error
    finally:
        partial.unlink(missing_ok=True)
