"""Aligned parallel text: two files, where line n of one is the translation of line n of the other.

    train.en    train.zh    test.en    test.zh      or compressed with gzip: train.en.gz

The datasets of WMT have this form: `newstest2014.en` and `newstest2014.de`.

A single file may hold both texts, with one tab between them and without a header:

    a cat    <tab>    一只猫

The lists of https://www.manythings.org/anki have a third column, the attribution of the two sentences, which is not
read: `CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CK)`.
"""

from __future__ import annotations

import codecs
import collections
import dataclasses
import gzip
import itertools
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.data_folder import training_first
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.line_source import LineSource, head, text_file, without_mark
from ps_trainer.data.pipeline.prediction_input import IS_CUT
from ps_trainer.data.pipeline.sequence_vocabulary import END, PADDING, UNITS, UNKNOWN, SequenceVocabulary, split
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

ATTRIBUTION = r"\tCC-BY [^\t]*Attribution: [^\t]*$"
"""Regular expression (RE2 and Python) for what may follow the two texts of a line."""

_TEXT = r"[^\t]*[^\t\s][^\t]*"
_ATTRIBUTION = re.compile(ATTRIBUTION.encode())
_AS_TEXT = ("utf-8", "surrogateescape")  # keeps bytes that are not UTF-8
_NO_TEXT = "\x1a"  # stands in place of the missing translation when a file is to be translated
_TEST = "test"  # name of the files to test on unless the user names others


class _Pair(NamedTuple):
    """Two files, where line n of one is the translation of line n of the other; or one file with two columns.

    Attributes:
        source: File in the source language, or with both.
        target: File in the target language, or the same file.
        is_table: Whether it is one file.
    """

    source: CountedFile
    target: CountedFile
    is_table: bool = False


class ParallelText(LineSource):
    """Aligned text in two languages, from two files of lines in --data_dir, such as train.en and train.zh.

    A file of a name without a language holds both: the text in the source language, a tab, and the translation in each
    line, without a header. So `train_files=pairs.tsv` reads pairs.tsv. A third column with the attribution of the
    texts, as in the lists of manythings.org, is left out. Files may be compressed with gzip.

    Batches: "source" and "target" int64 [B, max_length], the numbers of the words or characters, then 2 (`END`), then
    zeros (`PADDING`). A longer text is cut and has no 2. A training batch has texts of similar length, and is only as
    long as the longest of them. The vocabularies come from the training files, or from the run `vocabulary_of`: the
    most frequent word or character has the number 4.

    Args:
        options: Names, languages, units and sizes.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, a file is empty, or two files have different numbers of lines. A
            training line of a file with both languages has other columns.

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
        train_files: tuple[str, ...] = option(
            ("train",), "names of the files to train on, without the language; or of files with both languages"
        )
        test_files: tuple[str, ...] | None = option(
            None,
            "names of the files to test on; default: test, if there are such files, and a part of the training files if"
            " not, as with an empty name",
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
        named = [*options.train_files, *(options.test_files or ())]
        needs = f"dataset parallel_text needs --data_dir=<folder> with {_list_file_names(named, options)}"
        if options.test_files:
            needs += "; without test files, leave out test_files to test on a part of the training files"
        folder = self.facts.folder(data_dir, needs)
        test_files = options.test_files
        if test_files is None:
            has_test = _TEST not in named and any(_find_both(folder, _TEST, options, self.facts))
            test_files = (_TEST,) if has_test else ()
        stems = [*options.train_files, *test_files]
        self._pairs = [_pair(folder, stem, options, needs, self.facts) for stem in stems]
        num_train = len(options.train_files)
        super().__init__(
            [pair.source for pair in self._pairs[:num_train]],
            [pair.source for pair in self._pairs[num_train:]],
            pattern=f"{_TEXT}\t{_TEXT}",
            form="two texts in UTF-8 with one tab between them"
            if all(pair.is_table for pair in self._pairs)
            else f"text in UTF-8 both here and in the same line of the .{options.target} file",
            test_every=options.test_every,
        )
        self._max_length, self.groups_lengths = options.max_length, options.group_lengths
        units = {"source": options.source_unit, "target": options.target_unit}
        self.source_vocabulary, self.target_vocabulary = (
            self._vocabulary(side, name, unit, options) for side, (name, unit) in enumerate(units.items())
        )
        self.source_vocab_size, self.target_vocab_size = len(self.source_vocabulary), len(self.target_vocabulary)

    def _vocabulary(self, side: int, name: str, unit: str, options: ParallelText.Options) -> SequenceVocabulary:
        pairs = self._pairs[: len(options.train_files)]
        files = [(pair.source, pair.target)[side] for pair in pairs]

        def count() -> list[str]:
            if options.vocabulary_of is not None:
                return list(recorded_words.find(options.vocabulary_of, name, unit).tokens[UNKNOWN + 1 :])
            return [
                symbol.decode(*_AS_TEXT)
                for symbol in SequenceVocabulary.of(_texts(pairs, side), unit, options.max_vocab).symbols
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
        if any(pair.is_table for pair in self._pairs) and b"\t" in head(path):
            raise DataError(
                f"{path}: a file to translate has the source language only, and no tab; make one with"
                f" cut -f1 {shlex.quote(str(path))}"
            )
        file, vocabulary = super()._count_file(path), self.source_vocabulary
        texts = _texts([_Pair(file, file)], 0)
        symbols = collections.Counter(
            symbol.decode(errors="replace") for text in texts for symbol in split(text, vocabulary.unit)
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
        """Reads the lines of both files and joins each pair with a tab, which the lines of one file have already."""
        all_targets = [pair.target for pair in self._pairs]
        target_path = tf.gather([str(target.path) for target in all_targets], file)
        target_compression = tf.gather(["GZIP" if target.is_packed else "" for target in all_targets], file)
        is_table = tf.gather([pair.is_table for pair in self._pairs], file)
        sources = tf.data.TextLineDataset(path, compression_type=compression)
        targets = tf.data.TextLineDataset(target_path, compression_type=target_compression)

        def join(source: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
            line = _concatenate_texts([source, target])
            if any(pair.is_table for pair in self._pairs):
                line = tf.where(is_table, tf.strings.regex_replace(source, ATTRIBUTION, ""), line)
            return {"line": line}

        return tf.data.Dataset.zip((sources, targets)).map(join)

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
    return tf.strings.join([tf.strings.regex_replace(without_mark(text), "\t", " ") for text in texts], "\t")


def _list_file_names(stems: Sequence[str], options: ParallelText.Options) -> str:
    return ", ".join(f"{stem}.{language}" for stem in stems for language in (options.source, options.target))


def _pair(folder: pathlib.Path, stem: str, options: ParallelText.Options, needs: str, facts: Facts) -> _Pair:
    """Finds the two files of a name, or the one that holds both languages.

    Raises:
        DataError: A file is missing or empty, or the two have different numbers of lines.
    """
    paths = _find_both(folder, stem, options, facts)
    if not any(paths) and (table := _find(folder, stem, facts)) is not None:
        file = text_file(table, facts=facts)
        return _Pair(file, file, is_table=True)
    for path, language in zip(paths, (options.source, options.target), strict=True):
        if path is None:
            name = f"{stem}.{language}"
            raise DataError(f"{folder} has no {name} and no {name}.gz; {needs}{_table_in(folder)}")
    source, target = (text_file(path, facts=facts) for path in paths if path is not None)
    if source.num_records != target.num_records:
        raise DataError(
            f"{source.path} has {source.num_records} lines, but {target.path} has {target.num_records}; line n of one"
            " must be the translation of line n of the other; download both again, from the same place"
        )
    return _Pair(source, target)


def _find_both(
    folder: pathlib.Path, stem: str, options: ParallelText.Options, facts: Facts
) -> tuple[pathlib.Path | None, pathlib.Path | None]:
    source, target = (_find(folder, f"{stem}.{language}", facts) for language in (options.source, options.target))
    return source, target


def _find(folder: pathlib.Path, name: str, facts: Facts) -> pathlib.Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if facts.has_file(path)), None)


def _table_in(folder: pathlib.Path) -> str:
    """Returns how to read a file in the folder that may hold both languages; empty if there is none."""
    table = next(iter(training_first(folder.glob("*.tsv*"))), None)
    if table is None:
        return ""
    option = shlex.quote(f"--dataset_option=train_files={table.name}")
    return f"; if {table.name} has both languages, with a tab between them, give {option}"


def _texts(pairs: Sequence[_Pair], side: int) -> Iterator[bytes]:
    """Yields the texts of a language as `_open` reads them: without carriage returns, and with spaces for tabs.

    Args:
        pairs: Files of both languages.
        side: Language, 0 = the source, 1 = the target.

    Raises:
        DataError: A line of a file with both languages has other columns.
    """
    for pair in pairs:
        file = (pair.source, pair.target)[side]
        with (gzip.open if file.is_packed else open)(file.path, "rb") as lines:
            for number, line in enumerate(itertools.islice(lines, file.num_records), 1):
                text = line.removeprefix(codecs.BOM_UTF8).rstrip(b"\n").replace(b"\r", b"")
                if pair.is_table:
                    columns = _ATTRIBUTION.sub(b"", text).split(b"\t")
                    if len(columns) != 2:
                        raise DataError(
                            f"{file.path}: line {number} has {len(columns)} columns, and must have 2, a text and its"
                            " translation, with one tab between them; cut -f1,2 keeps the first two of more"
                        )
                    text = columns[side]
                yield text.replace(b"\t", b" ")
