"""Running text for language models: plain files, text8, PTB, or the topics of Python's documentation."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.data_folder import missing_files
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.frequency_vocabulary import FrequencyVocabulary, count, make_vocabulary
from ps_trainer.data.pipeline.prediction_input import NUM_PLACES, ContentDecoder
from ps_trainer.data.pipeline.sequence_vocabulary import UNITS
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document, document, padded_windows, padded_windows_of, windows
from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_WINDOWS = 2**14
"""Size of the shuffle buffer in windows; a smaller shard is shuffled as a whole."""

FORMS = (("ptb.train.txt", "ptb.test.txt"), ("train.txt", "test.txt"), ("text8", ""))
"""Known names of a training file and its test file, which is optional ("" = it has none); each may end in ".gz"."""


class Texts(NamedTuple):
    """Texts to train on and to test on.

    Attributes:
        train: Texts to train on.
        test: Texts to test on. If empty, the end of the training texts is for testing.
    """

    train: Sequence[Document]
    test: Sequence[Document]


class WindowSource(DataSource):
    """Examples that are windows on texts.

    Args:
        texts: Texts to read. The texts of a split follow each other without a gap.
        unit: Kind of the tokens, "char" or "word".
        max_vocab: Most tokens in the vocabulary; the rarer ones become the unknown token.
        length: Number of ids in a window.
        stride: Number of ids from the start of one window to the start of the next, less than `length`. The first
            window ends after `stride` ids of the text; ends of lines fill its beginning.
        test_share: Share of the windows, at the end, that are for testing if there are no test texts.
        vocabulary_of: Folder of a run whose vocabulary is used; None = the most frequent tokens of the training texts.
        facts: Facts about the texts.

    Attributes:
        vocabulary: Vocabulary of the training texts.
        vocab_size: Number of ids of the vocabulary.

    Raises:
        DataError: A file cannot be read, is not UTF-8, or is too short.
    """

    max_shuffled = SHUFFLED_WINDOWS
    reads_lines = True

    def __init__(
        self,
        texts: Texts,
        *,
        unit: str,
        max_vocab: int,
        length: int,
        stride: int,
        test_share: float,
        vocabulary_of: str | None = None,
        facts: Facts | None = None,
    ):
        self.facts = facts or Facts()
        self.unfamiliar: UnfamiliarInput = UnfamiliarInput()
        self._texts, self._length, self._stride = texts, length, stride
        self.num_places = stride  # windows overlap in all other ids
        self.vocabulary = find_vocabulary(texts.train, unit, max_vocab, self.facts, vocabulary_of)
        self.vocab_size = len(self.vocabulary.tokens)
        num_ids = self.vocabulary.num_ids
        self._num_train = num_ids // stride
        if texts.test:
            num_ids_test = sum(self._count(one, unit) for one in texts.test)
            self._num_test = num_ids_test // stride
        else:
            num_ids_test = num_ids
            self._num_test = math.ceil(test_share * self._num_train)
            self._num_train -= self._num_test
        if self._num_train < 1 or self._num_test < 1:
            raise DataError(
                f"the texts have {num_ids} {unit}s to train on and {num_ids_test} to test on, which is too few for"
                f" windows of {stride}; give more text, or lower context_length"
            )

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._num_train

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._num_test

    def _count(self, text: Document, unit: str) -> int:
        def read() -> int:
            return sum(count(text, unit).values())

        return (
            read()
            if text.path is None
            else self.facts.find(f"number of ids in {text.path}", [text.path], unit, read, follows_files=True)
        )

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        texts = self._texts.test if split == "test" and self._texts.test else self._texts.train
        records = self._windows(texts)
        if not self._texts.test:
            records = records.skip(self._num_train) if split == "test" else records.take(self._num_train)
        return records.shard(shard.count, shard.index)

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Returns windows on the whole text; ends of lines fill the last one."""
        ids = self.vocabulary.stream([self._checked(path)])
        filled = padded_windows(ids, **self._cut, padding=self.vocabulary.line_end)
        return filled.map(lambda window, number: {"ids": window, NUM_PLACES: number})

    def content_decoder(self, path: pathlib.Path) -> ContentDecoder | None:
        """Checks a text, and returns how to decode its content."""
        return None if self._checked(path).is_packed else ContentDecoder("text", self._decode_content)

    def _decode_content(self, content: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = self.vocabulary.encoder()(content)
        window, number = padded_windows_of(ids, **self._cut, padding=self.vocabulary.line_end)
        return self._decode({"ids": window, NUM_PLACES: number})

    def _checked(self, path: pathlib.Path) -> Document:
        """Returns a text to predict for after a look at its tokens; raises DataError if it is not UTF-8."""
        self._check_suffix(path)
        text, vocabulary = document(path), self.vocabulary
        self.unfamiliar.add_tokens(vocabulary.unit, count(text, vocabulary.unit), frozenset(vocabulary.tokens))
        return text

    def _windows(self, texts: Sequence[Document]) -> tf.data.Dataset:
        return windows(self.vocabulary.stream(texts), **self._cut).map(lambda window: {"ids": window})

    @property
    def _cut(self) -> dict[str, Any]:
        before = [self.vocabulary.line_end] * (self._length - self._stride)
        return {"length": self._length, "stride": self._stride, "before": before}

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch | {"ids": tf.cast(batch["ids"], tf.int64)}


class Text(WindowSource):
    """Text for language models, from files in --data_dir; without it, the topics of Python's documentation.

    Batches: "ids" int64 [B, T + 1], T = `context_length`. A model predicts each of ids[:, 1:] from the ids before it.
    A window begins with the last id of the window before, so each character or word of the text is predicted exactly
    once. Ids are 0 .. `vocab_size` - 1, from the most frequent on.

    Files are UTF-8, plain or compressed with gzip: `ptb.train.txt` and `ptb.test.txt`; `train.txt` and `test.txt`;
    `text8` (`text8.zip` is unpacked beside it); or the files that `train_files` and `test_files` name. White space
    separates words, and the end of each line is a word, "<eos>", as in the Penn Treebank. Without a test file, the end
    of the training file is for testing. The vocabulary comes from the training file, or from the run `vocabulary_of`.

    Source: M. Mahoney, "About the Test Data" (text8), http://mattmahoney.net/dc/textdata.html; T. Mikolov et al.,
    "Recurrent neural network based language model", Interspeech 2010 (the PTB files).

    Args:
        options: Unit, context and files.
        data_dir: Folder of the files; None = the built-in text, of about 470,000 characters.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, the folder has several known texts, a file is broken, or the text
            is too short.
    """

    takes_facts = True
    text_inputs = ("text",)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Text`."""

        unit: str = option("char", "unit of the text that gets an id", choices=UNITS)
        context_length: int = option(64, "T, number of ids of a window that a model predicts", least=1)
        max_vocab: int = option(10000, "size of the vocabulary; rarer characters or words become unknown", least=2)
        vocabulary_of: str | None = option(
            None, "folder of a run whose words or characters keep their ids; all others become unknown"
        )
        train_files: tuple[str, ...] = option((), "names of the files to train on; default: a known name in --data_dir")
        test_files: tuple[str, ...] = option(
            (), "names of the files to test on; default: the end of the training files is for testing"
        )
        test_share: float = option(
            0.1, "without files to test on, the share of the text that is for testing", above=0, below=1
        )

        def __post_init__(self) -> None:
            if self.test_files and not self.train_files:
                raise OptionError(f"test_files={','.join(self.test_files)} needs train_files; name these as well")

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        facts = facts or Facts()
        super().__init__(
            find_texts(options.train_files, options.test_files, data_dir, facts),
            unit=options.unit,
            max_vocab=options.max_vocab,
            length=options.context_length + 1,
            stride=options.context_length,
            test_share=options.test_share,
            vocabulary_of=options.vocabulary_of,
            facts=facts,
        )
        unknown_share = self.vocabulary.counts[self.vocabulary.unknown] / self.vocabulary.num_ids
        if options.vocabulary_of is not None and unknown_share:
            self.advice = (
                f"{unknown_share:.2%} of the {options.unit}s of the training text are not in the vocabulary of"
                f" {options.vocabulary_of}, and count as unknown"
            )

    def from_texts(self, texts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Builds the ops from texts, string [B] under "text", to a batch with the end of each.

        An end of line comes before each text. "ids" int64 [B, T + 1] are the last T ids of that, then ends of lines.
        `NUM_PLACES` int64 [B] is their number.
        """
        begun_B = tf.strings.join(["\n", texts["text"]])
        kept = self.vocabulary.encode_batch(begun_B)[:, -self._stride :]
        ids = tf.cast(kept.to_tensor(self.vocabulary.line_end, shape=[None, self._length]), tf.int64)
        return {"ids": ids, NUM_PLACES: kept.row_lengths()}


def find_texts(
    train_files: Sequence[str], test_files: Sequence[str], data_dir: str | None, facts: Facts | None = None
) -> Texts:
    """Finds the texts of a run.

    Args:
        train_files: Names of the files in `data_dir` to train on. If empty, the folder must have one pair of `FORMS`.
        test_files: Names of the files to test on.
        data_dir: Folder of the files; None = the built-in text.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, the folder has several pairs, or a file is broken.
    """
    if data_dir is None and not train_files:
        return Texts([python_documentation()], [])
    wanted = ", ".join([*train_files, *test_files]) or " or ".join(train for train, _ in FORMS)
    needs = f"a text needs --data_dir=<folder> with {wanted}"
    facts = facts or Facts()
    folder = facts.folder(data_dir, needs)
    if not train_files:
        train_files, test_files = _find_form(folder, needs, facts)
    missing = [name for name in [*train_files, *test_files] if not facts.has_file(folder / name)]
    if missing:
        raise missing_files(folder, [*train_files, *test_files], missing, needs)
    return Texts(*([document(folder / name, facts) for name in names] for names in (train_files, test_files)))


def find_vocabulary(
    texts: Sequence[Document], unit: str, max_vocab: int, facts: Facts, vocabulary_of: str | None = None
) -> FrequencyVocabulary:
    """Returns the vocabulary of some texts, from the facts or by reading them.

    Args:
        texts: Texts.
        unit: Kind of the tokens, "char" or "word".
        max_vocab: Most tokens to keep.
        facts: Facts about the texts.
        vocabulary_of: Folder of a run whose tokens to take; None = the most frequent tokens of the texts.

    Raises:
        DataError: A file cannot be read or is not UTF-8, or the run has no such vocabulary.
    """

    def count_tokens() -> FrequencyVocabulary:
        tokens = () if vocabulary_of is None else recorded_words.find(vocabulary_of, "text", unit).tokens
        return make_vocabulary(texts, unit, max_vocab, tokens)

    paths = [text.path for text in texts if text.path is not None]
    if not paths:
        return count_tokens()
    run, files = recorded_words.dependencies(vocabulary_of)
    settings = [[path.name for path in paths], unit, max_vocab, *run]
    tokens, counts = facts.find("vocabulary", [*paths, *files], settings, lambda: count_tokens()[1:])
    return FrequencyVocabulary(unit, tuple(tokens), tuple(counts))


def python_documentation() -> Document:
    """Returns the topics of Python's documentation that `help("TOPICS")` lists, sorted by name.

    Raises:
        DataError: This Python has no topics.
    """
    topics = python_topics()
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    return Document(None, len(text), text=text)


def python_topics() -> dict[str, str]:
    """Returns the topics of Python's documentation by name.

    Raises:
        DataError: This Python has no topics.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise DataError(
            "this Python has no topics of its documentation (pydoc_data.topics), which are the built-in text;"
            " give --data_dir with a text, or use another Python"
        ) from error
    return topics.topics


def _find_form(folder: pathlib.Path, needs: str, facts: Facts) -> tuple[list[str], list[str]]:
    if (folder / "text8.zip").is_file() and not (folder / "text8").exists():
        _unpack(folder / "text8.zip", "text8")
    found = []
    for names in FORMS:
        train, test = ([name + end for end in ("", ".gz") if facts.has_file(folder / (name + end))] for name in names)
        found += [([name], test[:1]) for name in train]
    if not found:
        raise DataError(
            f"{folder} has none of these files; {needs}, or name others with --dataset_option=train_files=…"
        )
    if len(found) > 1:
        several = ", ".join(train[0] for train, _ in found)
        raise DataError(f"{folder} has several texts: {several}; choose with --dataset_option=train_files=…")
    return found[0]


def _unpack(archive: pathlib.Path, name: str) -> None:
    """Writes one file of an archive beside it, because TensorFlow cannot read zip archives."""
    # Several workers may unpack the same archive: each writes its own file, and renaming it is atomic.
    partial = archive.with_name(f"{name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(name) as packed, partial.open("wb") as file:
            shutil.copyfileobj(packed, file)
        os.replace(partial, archive.with_name(name))
    except (OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{archive}: cannot unpack {name} beside it ({error}); unpack it yourself") from error
    finally:
        partial.unlink(missing_ok=True)
