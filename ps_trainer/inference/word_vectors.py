"""Word vectors of a trained run: which words are near a word, and files for other programs.

The vectors are the rows of an embedding table in the newest loadable checkpoint. This file reads the table from it
without a graph or a session. Memory holds the table once: every computation reads some rows at a time.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from ps_trainer.checkpoints import durable_files, report
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import CheckpointError, SaveError, UnknownNameError, UsageError, did_you_mean

TABLES = ("input", "embedding")
"""Last parts of the names of the tables with a row for each word: of `word2vec`, and of the models of text."""

_ROWS = 2**14  # read at a time


class Neighbour(NamedTuple):
    """A word, and the cosine of the angle between its vector and the one asked for."""

    word: str
    cosine: float


class WordVectors:
    """The words of a run and their vectors.

    Args:
        words: Vocabulary; row i of the table belongs to token i.
        table: float [rows, D], with at least as many rows as tokens.
        source: Name of checkpoint and table, for messages.
    """

    def __init__(self, words: RecordedWords, table: np.ndarray, source: str):
        self.words, self.source = words, source
        self._table = table[: len(words.tokens)]

    def nearest(self, word: str, count: int) -> list[Neighbour]:
        """Returns the `count` words with the largest cosine to `word`, the largest first, without the word itself.

        Raises:
            UnknownNameError: The vocabulary lacks the word.
        """
        number = self._id_of(word)
        return self._nearest(self._unit_row(number), [number], count)

    def analogy(self, first: str, second: str, third: str, count: int) -> list[Neighbour]:
        """Returns the words d for which `first` is to `second` as `third` is to d, the best first.

        The score is the cosine of d's vector to b - a + c, with a, b and c scaled to length 1. The three words
        themselves are left out.

        Source: T. Mikolov et al., "Linguistic Regularities in Continuous Space Word Representations", NAACL 2013.

        Raises:
            UnknownNameError: The vocabulary lacks a word.
        """
        numbers = [self._id_of(word) for word in (first, second, third)]
        a, b, c = (self._unit_row(number) for number in numbers)
        return self._nearest(b - a + c, numbers, count)

    def write(self, out: pathlib.Path, form: str) -> str:
        """Writes all words and vectors in a format of word2vec; the file appears complete, or not at all.

        Both formats begin with the line `<words> <features>`. A row is the word, a space and the vector. In `text` the
        vector is decimal numbers with spaces between them, each with the fewest digits that restore the float32. In
        `binary` it is little-endian float32. A line feed ends each row. White space ends a word in these formats, so
        it becomes `_` inside of a token, such as a name. Tokens of white space alone, such as the space among
        characters, are left out.

        Returns:
            A sentence about what was written.

        Raises:
            SaveError: The file cannot be written, or two tokens would become the same word.
        """
        words = {number: "_".join(token.split()) for number, token in enumerate(self.words.tokens) if token.strip()}
        first = {word: number for number, word in reversed(words.items())}
        for number, word in words.items():
            if first[word] != number:
                same = (self.words.tokens[first[word]], self.words.tokens[number])
                raise SaveError(f"--out={out}: {same[0]!r} and {same[1]!r} would both be written as {word}; rename one")
        temporary = out.with_name(f".{out.name}.writing-{os.getpid()}")
        try:
            with durable_files.new_folder(out.resolve().parent):
                durable_files.replace(out, lambda file: self._write_rows(file, words, FORMS[form]), temporary)
        except OSError as error:
            raise SaveError(f"--out={out} cannot be written: {error}") from error
        num_left, num_joined = len(self.words.tokens) - len(words), sum(words[i] != self.words.tokens[i] for i in words)
        note = f"; {num_left} tokens of white space have no place in this format" if num_left else ""
        note += f"; white space in {num_joined} tokens became _" if num_joined else ""
        return f"{out}: {len(words)} vectors of {self._table.shape[1]} features from {self.source}{note}"

    def _write_rows(self, file: BinaryIO, words: Mapping[int, str], as_bytes: Callable[[np.ndarray], bytes]) -> None:
        file.write(f"{len(words)} {self._table.shape[1]}\n".encode())
        for number, word in words.items():
            row = as_bytes(self._table[number].astype("<f4"))
            file.write(word.encode() + b" " + row + b"\n")

    def _id_of(self, word: str) -> int:
        number = self.words.id_of(word)
        if number is None:
            kind = "character" if self.words.unit == "char" else "word"
            raise UnknownNameError(
                f"the run has no {kind} {word!r} among its {len(self.words.tokens):,};"
                f" {did_you_mean(word, self.words.tokens)}{_cause(word, self.words)}"
            )
        return number

    def _unit_row(self, number: int) -> np.ndarray:
        row = self._table[number].astype(np.float64)
        return row / max(float(np.linalg.norm(row)), np.finfo(np.float64).tiny)

    def _nearest(self, vector: np.ndarray, without: Sequence[int], count: int) -> list[Neighbour]:
        vector = vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
        cosines = np.empty(len(self._table))
        for start in range(0, len(self._table), _ROWS):
            rows = self._table[start : start + _ROWS].astype(np.float64)
            lengths = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(np.float64).tiny)
            cosines[start : start + _ROWS] = rows @ vector / lengths
        cosines[[*without, *map(self.words.tokens.index, self.words.special)]] = -np.inf
        # Stable: words with equal cosines keep the order of the vocabulary.
        best = np.argsort(-cosines, kind="stable")[:count]
        return [Neighbour(self.words.tokens[i], float(cosines[i])) for i in best if np.isfinite(cosines[i])]


def load(checkpoint_dir: pathlib.Path, table: str | None = None, vocabulary: str | None = None) -> WordVectors:
    """Reads the vectors of the newest loadable checkpoint.

    Args:
        checkpoint_dir: Folder of the checkpoints; `vocabulary.json` lies in the folder above.
        table: Name of the table's variable; None = the one whose name ends as in `TABLES`.
        vocabulary: Name of the vocabulary; None = the only one.

    Raises:
        CheckpointError: There is no checkpoint, or the table does not fit the vocabulary.
        DataError: `vocabulary.json` is missing or damaged.
        UnknownNameError: There is no such table or vocabulary.
        UsageError: There are several tables or vocabularies, and none is named.
    """
    vocabularies = recorded_words.read(checkpoint_dir.parent)
    checkpoint = report.find_checkpoint(checkpoint_dir)
    named = _choose_name("vocabulary", vocabulary, list(vocabularies), list(vocabularies))
    words = vocabularies[named]
    matrices = [name for name in checkpoint if len(checkpoint.shape(name)) == 2]
    name = _choose_name("table", table, matrices, [one for one in matrices if one.rpartition("/")[2] in TABLES])
    return WordVectors(words, _rows(checkpoint, name, words), f"{name} in {checkpoint.prefix}")


def _rows(checkpoint: Checkpoint, name: str, words: RecordedWords) -> np.ndarray:
    num_rows = checkpoint.shape(name)[0]
    if num_rows < len(words.tokens) or checkpoint.dtype(name).kind != "f":
        raise CheckpointError(
            f"checkpoint {checkpoint.prefix}: {name} has {num_rows} rows of {checkpoint.dtype(name)}, which is not a"
            f" table of the run's {len(words.tokens)} tokens; name another with --table, or another vocabulary with"
            " --vocabulary"
        )
    return checkpoint[name]


def _choose_name(flag: str, given: str | None, known: Sequence[str], fitting: Sequence[str]) -> str:
    """Returns the name that the user gave, or the only one that fits."""
    if given is not None:
        if given not in known:
            raise UnknownNameError(f"--{flag}={given}: {did_you_mean(given, known)}known: {', '.join(sorted(known))}")
        return given
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UsageError(f"the run has no {flag} of word vectors; name one with --{flag}: {', '.join(sorted(known))}")
    several = {"table": "tables", "vocabulary": "vocabularies"}[flag]
    raise UsageError(f"the run has several {several}: {', '.join(sorted(fitting))}; choose with --{flag}=NAME")


def _cause(word: str, words: RecordedWords) -> str:
    if words.unit == "char":
        return "give single characters, because the run's data are characters"
    if word != word.lower() and word.lower() in words.tokens:
        return f"the vocabulary has {word.lower()!r}"
    return "it is too rare in the training text, or missing there; the dataset's option max_vocab keeps more words"


def _text(row: np.ndarray) -> bytes:
    return " ".join(str(value) for value in row).encode()


def _binary(row: np.ndarray) -> bytes:
    return row.tobytes()


FORMS: dict[str, Callable[[np.ndarray], bytes]] = {"text": _text, "binary": _binary}
"""Formats of files by name: the function that writes a vector, float32 [D]."""
