"""Aligned parallel text: two files, where line n of one is the translation of line n of the other.

    train.en    train.zh    test.en    test.zh      or compressed with gzip: train.en.gz

The datasets of WMT have this form: `newstest2014.en` and `newstest2014.de`.
"""

from __future__ import annotations

import collections
import dataclasses
import gzip
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.line_source import LineSource, text_file
from ps_trainer.data.pipeline.prediction_input import IS_CUT
from ps_trainer.data.pipeline.sequence_vocabulary import END, PADDING, UNITS, UNKNOWN, SequenceVocabulary, split
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

_TEXT = r"[^\t]*[^\t\s][^\t]*"
_AS_TEXT = ("utf-8", "surrogateescape")  # keeps bytes that are not UTF-8
_NO_TEXT = "\x1a"  # stands in place of the missing translation when a file is to be translated


class ParallelText(LineSource):
    """Aligned text in two languages, from two files of lines in --data_dir, such as train.en and train.zh.

    Batches: "source" and "target" int64 [B, max_length], the numbers of the words or characters, then 2 (`END`), then
    zeros (`PADDING`). A longer text is cut and has no 2. A training batch has texts of similar length, and is only as
    long as the longest of them. The vocabularies come from the training files, or from the run `vocabulary_of`: the
    most frequent word or character has the number 4.

    Args:
        options: Names, languages, units and sizes.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, a file is empty, or two files have different numbers of lines.

    Attributes:
        source_vocabulary: Vocabulary of the source language.
        target_vocabulary: Vocabulary of the target language.
        source_vocab_size: Number of numbers of the source's vocabulary.
        target_vocab_size: Number of numbers of the target's vocabulary.
    """

    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ParallelText`."""

        source: str = option("en", "language to translate from, the ending of its files' names")
        target: str = option("zh", "language to translate into, the ending of its files' names")
        train_files: tuple[str, ...] = option(("train",), "names of the files to train on, without the language")
        test_files: tuple[str, ...] = option(
            ("test",), "names of the files to test on, without the language; empty: a part of the training files"
        )
        test_every: int = option(100, "without test_files, every n-th line is a test example", least=2)
        source_unit: str = option("word", "unit of the source text that gets a number", choices=UNITS)
        target_unit: str = option("word", "unit of the target text that gets a number", choices=UNITS)
        max_length: int = option(64, "length of an example in words or characters, including the end", least=1)
        max_vocab: int = option(
            16000, "size of each language's vocabulary; rarer words or characters become unknown", least=UNKNOWN + 2
        )
        vocabulary_of: str | None = option(
            None, "folder of a run whose words or characters keep their numbers; all others become unknown"
        )
        group_lengths: bool = option(True, "whether a training batch has texts of similar length, with little padding")

        def __post_init__(self) -> None:
            if not self.train_files:
                raise OptionError("train_files is empty; name the files, for example train_files=train")

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        stems = [*options.train_files, *options.test_files]
        needs = f"dataset parallel_text needs --data_dir=<folder> with {_list_file_names(stems, options)}"
        if options.test_files:
            needs += "; without test files, give --dataset_option=test_files= to test on a part of the training files"
        folder = self.facts.folder(data_dir, needs)
        pairs = [_pair(folder, stem, options, needs, self.facts) for stem in stems]
        num_train = len(options.train_files)
        super().__init__(
            [source for source, _ in pairs[:num_train]],
            [source for source, _ in pairs[num_train:]],
            pattern=f"{_TEXT}\t{_TEXT}",
            form=f"text in UTF-8 both here and in the same line of the .{options.target} file",
            test_every=options.test_every,
        )
        self._max_length, self.groups_lengths = options.max_length, options.group_lengths
        self._targets = [target for _, target in pairs]
        self.source_vocabulary, self.target_vocabulary = (
            self._vocabulary(name, [pair[side] for pair in pairs[:num_train]], unit, options)
            for side, (name, unit) in enumerate({"source": options.source_unit, "target": options.target_unit}.items())
        )
        self.source_vocab_size, self.target_vocab_size = len(self.source_vocabulary), len(self.target_vocabulary)

    def _vocabulary(
        self, name: str, files: Sequence[CountedFile], unit: str, options: ParallelText.Options
    ) -> SequenceVocabulary:
        def count() -> list[str]:
            if options.vocabulary_of is not None:
                return list(recorded_words.find(options.vocabulary_of, name, unit).tokens[UNKNOWN + 1 :])
            return [
                symbol.decode(*_AS_TEXT)
                for symbol in SequenceVocabulary.of(_texts(files), unit, options.max_vocab).symbols
            ]

        run, words = recorded_words.dependencies(options.vocabulary_of)
        settings = [[file.path.name for file in files], unit, options.max_vocab, *run]
        symbols = self.facts.find(f"{name}_vocabulary", [*(file.path for file in files), *words], settings, count)
        return SequenceVocabulary([symbol.encode(*_AS_TEXT) for symbol in symbols], unit)

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Returns the lines of a file in the source language; the translations are empty."""
        file = self._count_file(path)
        self._files.append(("other", file))
        lines = tf.data.TextLineDataset(str(file.path), compression_type="GZIP" if file.is_packed else "")
        records = lines.take(file.num_records).enumerate()
        number = tf.constant(len(self._files) - 1, tf.int64)
        return records.map(lambda at, text: self._complete_for_prediction({"line": text, "file": number, "at": at}))

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        file, vocabulary = super()._count_file(path), self.source_vocabulary
        symbols = collections.Counter(
            symbol.decode(errors="replace") for text in _texts([file]) for symbol in split(text, vocabulary.unit)
        )
        known = {symbol.decode(errors="replace") for symbol in vocabulary.symbols}
        self.unfamiliar.add_tokens(vocabulary.unit, symbols, known)
        return file

    def _complete_for_prediction(self, records: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        is_cut = tf.ones_like(records["at"], tf.bool)  # `_decode` finds out
        return records | {"line": _concatenate_texts([records["line"], _NO_TEXT]), IS_CUT: is_cut}

    def _record_lengths(self, records: dict[str, tf.Tensor]) -> tf.Tensor:
        # In bytes, of both languages together: near enough, and much cheaper than words.
        return tf.strings.length(records["line"])

    def _cut_padding(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {
            name: ids_BL[:, : tf.reduce_max(tf.math.count_nonzero(ids_BL, axis=1))] for name, ids_BL in batch.items()
        }

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        """Reads the lines of both files and joins each pair with a tab."""
        target_path = tf.gather([str(target.path) for target in self._targets], file)
        target_compression = tf.gather(["GZIP" if target.is_packed else "" for target in self._targets], file)
        sources = tf.data.TextLineDataset(path, compression_type=compression)
        targets = tf.data.TextLineDataset(target_path, compression_type=target_compression)
        return tf.data.Dataset.zip((sources, targets)).map(lambda *texts: {"line": _concatenate_texts(texts)})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if IS_CUT not in batch:
            return super()._decode(batch)
        source_B = tf.strings.regex_replace(batch["line"], rf"\t{_NO_TEXT}$", "")
        is_text_B = tf.strings.regex_full_match(source_B, _TEXT)
        problem = "an empty line, or not text in UTF-8"
        with tf.control_dependencies([self._assert(is_text_B, batch | {"line": source_B}, problem)]):
            parsed = super()._decode(batch | {"line": tf.identity(batch["line"])})
        last_B = parsed["source"][:, -1]
        return parsed | {IS_CUT: tf.not_equal(last_B, PADDING) & tf.not_equal(last_B, END)}

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        pair_B2 = tf.reshape(tf.strings.split(line_B, "\t", result_type="RaggedTensor").values, [-1, 2])
        target_B = tf.where(tf.equal(pair_B2[:, 1], _NO_TEXT), tf.zeros_like(line_B), pair_B2[:, 1])
        return {
            "source": self.source_vocabulary.encode_batch(pair_B2[:, 0], self._max_length),
            "target": self.target_vocabulary.encode_batch(target_B, self._max_length),
        }


def write(folder: pathlib.Path, name: str, texts: Mapping[str, Sequence[str]]) -> list[pathlib.Path]:
    """Writes aligned text: a file for each language, a line for each text.

    Args:
        folder: Folder to write into.
        name: Name of the files, without the language.
        texts: Texts without line breaks by language, the same number in each language.
    """
    files = []
    for language, lines in texts.items():
        files.append(folder / f"{name}.{language}")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return files


def _concatenate_texts(texts: Sequence[tf.Tensor]) -> tf.Tensor:
    # The tab stands between the two texts, so neither may contain one.
    return tf.strings.join([tf.strings.regex_replace(text, "\t", " ") for text in texts], "\t")


def _list_file_names(stems: Sequence[str], options: ParallelText.Options) -> str:
    return ", ".join(f"{stem}.{language}" for stem in stems for language in (options.source, options.target))


def _pair(
    folder: pathlib.Path, stem: str, options: ParallelText.Options, needs: str, facts: Facts
) -> tuple[CountedFile, CountedFile]:
    """Finds the two files of a name.

    Raises:
        DataError: A file is missing or empty, or the two have different numbers of lines.
    """
    source, target = (
        _find(folder, f"{stem}.{language}", needs, facts) for language in (options.source, options.target)
    )
    if source.num_records != target.num_records:
        raise DataError(
            f"{source.path} has {source.num_records} lines, but {target.path} has {target.num_records}; line n of one"
            " must be the translation of line n of the other; download both again, from the same place"
        )
    return source, target


def _find(folder: pathlib.Path, name: str, needs: str, facts: Facts) -> CountedFile:
    for path in (folder / name, folder / f"{name}.gz"):
        if facts.has_file(path):
            return text_file(path, facts=facts)
    raise DataError(f"{folder} has no {name} and no {name}.gz; {needs}")


def _texts(files: Sequence[CountedFile]) -> Iterator[bytes]:
    """Yields the lines of files as `_open` reads them: without carriage returns, and with spaces for tabs."""
    for file in files:
        with (gzip.open if file.is_packed else open)(file.path, "rb") as lines:
            for line in lines:
                yield line.rstrip(b"\n").replace(b"\r", b"").replace(b"\t", b" ")
