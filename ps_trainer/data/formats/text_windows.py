"""Words of running text, each with the words around it, for word vectors."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.text import SHUFFLED_WINDOWS, find_texts, find_vocabulary, python_documentation
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.frequency_vocabulary import FrequencyVocabulary
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document, windows
from ps_trainer.errors import DataError
from ps_trainer.options import option

# 2 ** 32 divided by the golden ratio. Its multiples modulo 2 ** 32 are spread evenly, so they serve as random numbers
# that Python and TensorFlow compute alike, for any place of the text.
_GOLDEN, _MASK = 2654435769, 2**32 - 1
_SMOOTHING = 0.75
_MAX_COUNTED, _MAX_COMPARED = 10**6, 2000
_WINDOW_OPTIONS = ("window", "max_vocab", "subsample", "num_test")  # those by which words are chosen


class TextWindows(DataSource):
    """Each word of a text with the words around it, for word vectors; built-in text: Python's documentation.

    Batches: "center" int64 [B]; "context" int64 [B, 2 W], the W = `window` words before the center and the W after it.
    Ids go from the most frequent word to the rarest. First, words without an id and ends of lines are removed. Then
    frequent words are thinned, so that windows reach further: a word with the share f of the text keeps each
    occurrence with the probability min(1, sqrt(`subsample` / f)). Every epoch and every worker keeps the same
    occurrences. The first and last W words of the text are not centers.

    Test examples are the `num_test` most frequent words, each with the 2 W most similar words, the most similar one
    first. The similarity of two words is the cosine of their rows of positive pointwise mutual information,

        max(0, log(n(w, c) * N / (n(w) * n(c) ** 0.75))),    N the sum of n(c) ** 0.75 over the context words c,

    where n(w, c) counts how often c is in a window around w. Only the 2000 most frequent words and the first million
    words that are kept count. Word vectors should find the same similar words, because skip-gram with negative sampling
    factorizes such a matrix.

    Files are those of dataset text. The built-in text is cleaned like text8: letters a to z only, in lower case.

    Source: T. Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality", NIPS
    2013, section 2.3; O. Levy, Y. Goldberg, I. Dagan, "Improving Distributional Similarity with Lessons Learned from
    Word Embeddings", TACL 3, 2015.

    Args:
        options: Windows, vocabulary and files.
        data_dir: Folder of the files; None = the built-in text.
        facts: Facts about the files.

    Attributes:
        vocabulary: Vocabulary of the text.
        vocab_size: Number of ids of the vocabulary.
        compared_words: int64 [test examples], ids of the test words.

    Raises:
        DataError: The folder or a file is missing, the folder has several known texts, a file is broken, or the text
            is too short.
    """

    max_shuffled = SHUFFLED_WINDOWS
    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TextWindows`."""

        window: int = option(3, "W, number of words on each side", least=1)
        max_vocab: int = option(1000, "size of the vocabulary; rarer words are left out", least=2)
        subsample: float = option(
            1e-3, "share of the text above which occurrences of a word are thinned; 0: no word is thinned", least=0
        )
        num_test: int = option(200, "number of words to test on", least=1)
        train_files: tuple[str, ...] = option(
            (), "names of the files; default: a known name in --data_dir, as in dataset text"
        )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self._window = options.window
        is_built_in = data_dir is None and not options.train_files
        built_in = [_cleaned(python_documentation())] if is_built_in else []
        self._texts = built_in or find_texts(options.train_files, (), data_dir, self.facts).train
        self.vocabulary = find_vocabulary(self._texts, "word", options.max_vocab, self.facts)
        self.vocab_size = len(self.vocabulary.tokens)
        self._kept = _kept_of_2_32(self.vocabulary, options.subsample)
        paths = [text.path for text in self._texts if text.path is not None]
        settings = [[path.name for path in paths], *(vars(options)[name] for name in _WINDOW_OPTIONS)]
        found = self.facts.find("windows", paths, settings, lambda: self._count(options.num_test))
        self._num_train = found["num_train"]
        self.compared_words = np.array(found["words"], np.int64)
        context = np.array(found["similar"], np.int32).reshape(len(self.compared_words), -1)
        self._test = {"center": self.compared_words.astype(np.int32), "context": context}

    @functools.cached_property
    def information(self) -> np.ndarray:
        """Rows of length 1 by which words are compared, computed from the text: float64 [min(V, 2000), the same]."""
        return self._compare(self._kept_ids())

    def _count(self, num_test: int) -> dict[str, Any]:
        """Counts the windows, and finds words to test on with the words that are most similar to each."""
        ids = self._kept_ids()
        if len(ids) <= 2 * self._window:
            raise DataError(
                f"only {len(ids)} words of the text are left, too few for windows of {2 * self._window + 1};"
                " give more text, or lower window"
            )
        information = self._compare(ids)
        words = np.flatnonzero(information.any(axis=1))[:num_test]
        similar = _most_similar(information, words, 2 * self._window)
        return {"num_train": len(ids) - 2 * self._window, "words": words.tolist(), "similar": similar.tolist()}

    def _compare(self, ids: np.ndarray) -> np.ndarray:
        num_words = min(len(self.vocabulary.tokens), _MAX_COMPARED)
        return _information(ids[:_MAX_COUNTED], num_words, self._window)

    def _kept_ids(self) -> np.ndarray:
        """Returns the ids of the words that thinning keeps, in the order of the text."""
        ids = np.concatenate([self.vocabulary.word_ids(text) for text in self._texts])
        places = np.arange(len(ids), dtype=np.int64)
        return ids[(places * _GOLDEN & _MASK) < self._kept[ids]]

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._num_train

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return len(self._test["center"])

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        if split == "test":
            return tf.data.Dataset.from_tensor_slices(self._test).shard(shard.count, shard.index)
        length = 2 * self._window + 1
        kept = self.vocabulary.stream(self._texts).scan(tf.constant(0, tf.int64), self._thin)
        # The first windows begin with the ids of `before`, which are not in the text.
        records = windows(kept, length=length, stride=1, before=[0] * (length - 1)).skip(length - 1)
        return records.shard(shard.count, shard.index).map(self._center_and_context)

    def _thin(self, place: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = place + tf.size(ids, out_type=tf.int64)
        # An overflow of int64 does no harm, because the mask keeps the low 32 bits.
        drawn = tf.bitwise.bitwise_and(tf.range(place, end) * _GOLDEN, _MASK)
        return end, tf.boolean_mask(ids, drawn < tf.gather(self._kept, ids))

    def _center_and_context(self, window: tf.Tensor) -> dict[str, tf.Tensor]:
        context = tf.concat([window[: self._window], window[self._window + 1 :]], axis=0)
        return {"center": window[self._window], "context": context}

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.cast(values, tf.int64) for name, values in batch.items()}


def _cleaned(text: Document) -> Document:
    cleaned = re.sub(rb"[^a-z]+", b" ", text.text.lower())
    return Document(None, len(cleaned), text=cleaned)


def _kept_of_2_32(vocabulary: FrequencyVocabulary, subsample: float) -> np.ndarray:
    """Computes for each id how many of 2 ** 32 occurrences are kept, int64 [V]."""
    counts = np.array(vocabulary.counts, np.float64)
    counts[[vocabulary.unknown, vocabulary.line_end]] = 0
    share = np.maximum(counts, 1) / max(counts.sum(), 1)
    kept = np.minimum(1, np.sqrt(subsample / share)) if subsample else np.ones(len(counts))
    return np.where(counts > 0, kept * 2**32, 0).astype(np.int64)


def _information(ids: np.ndarray, num_words: int, window: int) -> np.ndarray:
    """Computes rows of positive pointwise mutual information, each scaled to length 1 or all 0.

    Args:
        ids: Ids of the words that are kept, in the order of the text.
        num_words: Number of words to compare, the most frequent ones.
        window: Number of words on each side.

    Returns:
        float64 [num_words, num_words].
    """
    counts = np.zeros(num_words**2)
    for distance in range(1, window + 1):
        left, right = ids[:-distance].astype(np.int64), ids[distance:]
        is_compared = (left < num_words) & (right < num_words)
        counts += np.bincount((left * num_words + right)[is_compared], minlength=num_words**2)
    together = counts.reshape(num_words, num_words)
    together += together.T
    of_word, of_context = together.sum(axis=1), together.sum(axis=0) ** _SMOOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * of_context.sum() / np.outer(of_word, of_context))
    information = np.where(together > 0, np.maximum(information, 0), 0)
    return information / np.maximum(np.linalg.norm(information, axis=1, keepdims=True), 1e-9)


def _most_similar(information: np.ndarray, words: np.ndarray, count: int) -> np.ndarray:
    """Finds for each word the words with the largest cosine, the largest first, int64 [words, count]."""
    cosine = information[words] @ information.T
    cosine[np.arange(len(words)), words] = -1  # no word is its own neighbour
    # Stable, so that every worker finds the same order of equal cosines.
    return np.argsort(-cosine, axis=1, kind="stable")[:, :count]
