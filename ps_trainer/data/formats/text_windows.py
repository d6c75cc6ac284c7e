"""Consecutive words of a text, each with the words around it, for word vectors."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import zlib
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.text import find_texts, find_vocabulary, python_documentation
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.frequency_vocabulary import FrequencyVocabulary
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document
from ps_trainer.errors import DataError
from ps_trainer.options import option

_SMOOTHING = 0.75
_MAX_COUNTED, _MAX_COMPARED = 10**6, 2000
_BLOCK_WORDS = 2**14
_OTHER_DRAW = 2**40  # seeds of shards are smaller
_MIN_JUDGED, _JUDGED_WORDS = 5000, 500  # least length of a text to judge; number of its words that are looked at
_CHANCE = 3.5  # standard errors, which texts of independent words do not reach; parts of English reach 5 and more
_WINDOW_OPTIONS = ("window", "max_vocab", "subsample", "num_test")  # those by which words are chosen


class TextWindows(DataSource):
    """Runs of words, each word paired with the words around it; built-in text: Python's documentation.

    A training example is `words_per_example` consecutive words of the text. Each word of the text is in one example.
    Batches: "words" int64 [B, L], ids of the words that are left of an example, then 0 as padding; "reach" int64
    [B, L], how many words on each side are the context of a word, 0 for padding. A context ends at the ends of the
    example. Ids go from the most frequent word to the rarest.

    Words without an id and ends of lines are left out first. Then frequent words are thinned, so that contexts reach
    further: a word with the share f of the text stays with the probability min(1, sqrt(s / f) + s / f), s =
    `subsample`. The context of a word reaches 1 to `window` words to each side, each number with the same probability;
    with `dynamic_window=false` always `window`. Both draws are new in each epoch. They depend on seed, shard and place.

    Test examples are the `num_test` most frequent words, each with the 2 W most similar words, the most similar one
    first. The similarity of two words is the cosine of their rows of positive pointwise mutual information,

        max(0, log(n(w, c) * N / (n(w) * n(c) ** 0.75))),    N the sum of n(c) ** 0.75 over the context words c,

    where n(w, c) counts how often c is in a window around w, in a thinned text. Only the 2000 most frequent words and
    the first million words of the text count. Word vectors should find the same similar words, because skip-gram with
    negative sampling factorizes such a matrix.

    Files are those of dataset text. The built-in text is cleaned like text8: letters a to z only, in lower case.

    Source: T. Mikolov et al., "Efficient Estimation of Word Representations in Vector Space", 2013, section 3.2
    (reach). The same, "Distributed Representations of Words and Phrases and their Compositionality", NIPS 2013, section
    2.3 (thinning). Form and defaults are those of the authors' word2vec.c and of gensim. O. Levy, Y. Goldberg, I.
    Dagan, "Improving Distributional Similarity with Lessons Learned from Word Embeddings", TACL 3, 2015.

    Args:
        options: Windows, vocabulary and files.
        data_dir: Folder of the files; None = the built-in text.
        facts: Facts about the files.

    Attributes:
        vocabulary: Vocabulary of the text.
        vocab_size: Number of ids of the vocabulary.
        window: Largest number of words on each side.
        compared_words: int64 [test examples], ids of the test words.

    Raises:
        DataError: The folder or a file is missing, the folder has several known texts, a file is broken, or the text
            is too short.
    """

    max_shuffled = 2**12
    takes_facts = True
    draws = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TextWindows`."""

        window: int = option(5, "W, largest number of words on each side", least=1)
        dynamic_window: bool = option(True, "draw the number of words on each side from 1 to window, for each word")
        words_per_example: int = option(64, "number of consecutive words of the text in an example", least=2)
        max_vocab: int = option(1000, "size of the vocabulary; rarer words are left out", least=2)
        vocabulary_of: str | None = option(None, "folder of a run whose words keep their ids; all others are left out")
        subsample: float = option(
            1e-3, "share of the text above which occurrences of a word are thinned; 0: no word is thinned", least=0
        )
        num_test: int = option(200, "number of words to test on", least=1)
        train_files: tuple[str, ...] = option(
            (), "names of the files; default: a known name in --data_dir, as in dataset text"
        )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self.window, self._is_dynamic = options.window, options.dynamic_window
        self._length = options.words_per_example
        is_built_in = data_dir is None and not options.train_files
        built_in = [_clean(python_documentation())] if is_built_in else []
        self._texts = built_in or find_texts(options.train_files, (), data_dir, self.facts).train
        self.vocabulary = find_vocabulary(self._texts, "word", options.max_vocab, self.facts, options.vocabulary_of)
        self.vocab_size = len(self.vocabulary.tokens)
        self._kept = _kept_shares(self.vocabulary, options.subsample)
        paths = [text.path for text in self._texts if text.path is not None]
        settings = [[path.name for path in paths], *(vars(options)[name] for name in _WINDOW_OPTIONS)]
        if options.vocabulary_of is not None:
            settings.append(zlib.crc32(" ".join(self.vocabulary.tokens).encode()))  # the facts are about ids
        found = self.facts.find("windows", paths, settings, lambda: self._count(options.num_test))
        self.compared_words = np.array(found["words"], np.int64)
        context = np.array(found["similar"], np.int32).reshape(len(self.compared_words), -1)
        self._test = {"center": self.compared_words.astype(np.int32), "context": context}
        if "agreement" in found:
            self.advice = (
                "the words around a word in one half of the text say nothing about those in the other half"
                f" ({found['agreement']:.1f} standard errors from chance), as in a text of random words; word vectors"
                " can only learn it by heart: give another text, or more of it"
            )

    @functools.cached_property
    def information(self) -> np.ndarray:
        """Rows of length 1 by which words are compared, computed from the text: float64 [min(V, 2000), the same]."""
        return self._compare(self._first_ids())

    def _count(self, num_test: int) -> dict[str, Any]:
        """Finds words to test on, with the words that are most similar to each."""
        ids = self._first_ids()
        if len(ids) <= 2 * self.window:
            raise DataError(
                f"only {len(ids)} words of the text are left, too few for windows of {2 * self.window + 1};"
                " give more text, or lower window"
            )
        information = self._compare(ids)
        test_words = np.flatnonzero(information.any(axis=1))[:num_test]
        found = {
            "words": test_words.tolist(),
            "similar": _most_similar(information, test_words, 2 * self.window).tolist(),
        }
        if len(ids) >= _MIN_JUDGED:
            agreement = _agreement(ids, min(len(self.vocabulary.tokens), _JUDGED_WORDS), self.window)
            if agreement < _CHANCE:  # the facts of other texts stay as older versions have recorded them
                found["agreement"] = agreement
        return found

    def _compare(self, ids: np.ndarray) -> np.ndarray:
        return _information(ids, min(len(self.vocabulary.tokens), _MAX_COMPARED), self.window)

    def _first_ids(self) -> np.ndarray:
        """Returns the ids of the first words that a thinning keeps, always the same one, in the order of the text."""
        pieces = itertools.chain.from_iterable(self.vocabulary.word_ids_by_piece(text) for text in self._texts)
        taken, number = [], 0
        while number < _MAX_COUNTED and (piece := next(pieces, None)) is not None:
            taken.append(piece)
            number += len(piece)
        ids = np.concatenate(taken)[:_MAX_COUNTED]
        return ids[np.random.RandomState(0).random_sample(len(ids)) < self._kept[ids]]

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return math.ceil(self.vocabulary.num_ids / self._length)

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return len(self._test["center"])

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        if split == "test":
            return tf.data.Dataset.from_tensor_slices(self._test).shard(shard.count, shard.index)
        rows = max(1, _BLOCK_WORDS // self._length)

        def cut(number: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
            missing = tf.math.floormod(-tf.size(ids), self._length)  # only at the end of the text
            words = tf.reshape(tf.concat([ids, tf.fill([missing], self.vocabulary.unknown)], 0), [-1, self._length])
            # The shard's rows of a block, because a filter of single rows costs more than all the rest.
            return {"words": words[tf.math.floormod(shard.index - number * rows, shard.count) :: shard.count]}

        blocks = self.vocabulary.stream(self._texts).rebatch(rows * self._length)
        return blocks.enumerate().map(cut).unbatch()

    def _draw_batch(self, batch: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        words = batch["words"]
        is_kept = tf.random.stateless_uniform(tf.shape(words), seed) < tf.gather(self._kept, words)
        reach = None
        if self._is_dynamic:
            other_seed = seed + tf.constant([_OTHER_DRAW, 0], tf.int64)
            reach = tf.random.stateless_uniform(tf.shape(words), other_seed, 1, self.window + 1, tf.int32)
        return self._move_left(words, is_kept, reach)

    def _move_left(self, words: tf.Tensor, is_kept: tf.Tensor, reach: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Moves the words that are kept to the left of their rows, and sets `reach` to 0 beyond them."""
        numbers = tf.reduce_sum(tf.cast(is_kept, tf.int64), axis=1)
        left = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(words, is_kept), numbers, validate=False).to_tensor()
        is_word = tf.sequence_mask(numbers, tf.shape(left)[1])
        near = tf.fill(tf.shape(left), self.window) if reach is None else reach[:, : tf.shape(left)[1]]
        return {"words": left, "reach": tf.where_v2(is_word, near, 0)}

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if "words" in batch and "reach" not in batch:
            batch = self._move_left(batch["words"], tf.gather(self._kept, batch["words"]) > 0, None)
        return {name: tf.cast(values, tf.int64) for name, values in batch.items()}


def _clean(text: Document) -> Document:
    cleaned = re.sub(rb"[^a-z]+", b" ", text.text.lower())
    return Document(None, len(cleaned), text=cleaned)


def _kept_shares(vocabulary: FrequencyVocabulary, subsample: float) -> np.ndarray:
    """Computes for each id the probability with which an occurrence is kept, float32 [V]."""
    counts = np.array(vocabulary.counts, np.float64)
    counts[[vocabulary.unknown, vocabulary.line_end]] = 0
    ratio = subsample * max(counts.sum(), 1) / np.maximum(counts, 1)
    kept = np.minimum(1, np.sqrt(ratio) + ratio) if subsample else np.ones(len(counts))
    return np.where(counts > 0, kept, 0).astype(np.float32)


def _information(ids: np.ndarray, num_words: int, window: int) -> np.ndarray:
    """Computes rows of positive pointwise mutual information, each scaled to length 1 or all 0.

    Args:
        ids: Ids of the words that are kept, in the order of the text.
        num_words: Number of words to compare, the most frequent ones.
        window: Number of words on each side.

    Returns:
        float64 [num_words, num_words].
    """
    together = _counts(ids, num_words, window)
    of_word, of_context = together.sum(axis=1), together.sum(axis=0) ** _SMOOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * of_context.sum() / np.outer(of_word, of_context))
    information = np.where(together > 0, np.maximum(information, 0), 0)
    return information / np.maximum(np.linalg.norm(information, axis=1, keepdims=True), 1e-9)


def _counts(ids: np.ndarray, num_words: int, window: int) -> np.ndarray:
    """Counts how often each word is near each other one, float64 [num_words, num_words]."""
    counts = np.zeros(num_words**2)
    for distance in range(1, window + 1):
        left, right = ids[:-distance].astype(np.int64), ids[distance:]
        is_compared = (left < num_words) & (right < num_words)
        counts += np.bincount((left * num_words + right)[is_compared], minlength=num_words**2)
    together = counts.reshape(num_words, num_words)
    together += together.T
    return together


def _agreement(ids: np.ndarray, num_words: int, window: int) -> float:
    """Returns how far the two halves of a text agree about which words are near each other, in standard errors.

    For each pair of words it takes the product of the deviations of both halves from the counts of independent words.
    If the words of the text are independent, each product has the mean 0.
    """
    deviations = []
    for half in np.array_split(ids, 2):
        together = _counts(half, num_words, window)
        expected = np.outer(together.sum(axis=1), together.sum(axis=0)) / max(together.sum(), 1)
        deviations.append((together - expected) / np.sqrt(np.maximum(expected, 1e-9)))
    products = np.prod(deviations, axis=0)[np.triu_indices(num_words)]
    return float(products.sum() / max(np.sqrt((products**2).sum()), 1e-9))


def _most_similar(information: np.ndarray, words: np.ndarray, count: int) -> np.ndarray:
    """Finds for each word the words with the largest cosine, the largest first, int64 [words, count]."""
    cosine = information[words] @ information.T
    cosine[np.arange(len(words)), words] = -1  # no word is its own neighbour
    # Stable, so that every worker finds the same order of equal cosines.
    return np.argsort(-cosine, axis=1, kind="stable")[:, :count]
