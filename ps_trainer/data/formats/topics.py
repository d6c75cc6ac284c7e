"""A small classification dataset from the built-in text: the topic that a piece of it comes from."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.text import python_documentation, python_topics
from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.data.pipeline.frequency_vocabulary import make_vocabulary
from ps_trainer.errors import DataError
from ps_trainer.options import option

_MAX_VOCAB = 256


class Topics(ArraySource):
    """Pieces of the topics of Python's documentation, each labelled with its topic.

    Batches: "ids" int64 [B, length], characters with the ids of dataset `text` without --data_dir; "label" int64 [B],
    0 for the longest topic. The pieces of a topic follow each other without a gap. The first piece and every
    `test_every`-th after it are for testing. A model trained on `text` has read most of the pieces, without labels.

    Args:
        options: Sizes.
        data_dir: Not used.

    Raises:
        DataError: This Python has no topics, or a topic is too short.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Topics`."""

        num_topics: int = option(8, "number of topics, the longest ones", least=2)
        length: int = option(128, "number of characters in a piece", least=1)
        test_every: int = option(5, "every n-th piece is a test example", least=2)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        named = sorted(python_topics().items(), key=lambda topic: len(topic[1]), reverse=True)[: options.num_topics]
        self.class_names = tuple(name for name, _ in named)
        topics = [topic for _, topic in named]
        if len(topics) < options.num_topics or len(topics[-1]) < 2 * options.length:
            raise DataError(
                f"num_topics={options.num_topics} length={options.length}: the text has fewer topics with at least two"
                " pieces; lower one of the options"
            )
        check_bytes(sum(map(len, topics)), "num_topics")
        self.vocabulary = make_vocabulary([python_documentation()], "char", _MAX_VOCAB)
        self.vocab_size = len(self.vocabulary.tokens)
        pieces = [self._pieces(topic, options.length) for topic in topics]
        is_test = [np.arange(len(ids)) % options.test_every == 0 for ids in pieces]
        arrays = [
            {
                "ids": np.concatenate([ids[chosen == wanted] for ids, chosen in zip(pieces, is_test, strict=True)]),
                "label": np.repeat(np.arange(len(pieces)), [np.sum(chosen == wanted) for chosen in is_test]),
            }
            for wanted in (False, True)
        ]
        super().__init__(*arrays, num_classes=options.num_topics)

    def _pieces(self, topic: str, length: int) -> np.ndarray:
        numbers = {token: number for number, token in enumerate(self.vocabulary.tokens)}
        ids = [numbers.get(character, self.vocabulary.unknown) for character in topic]
        # A byte per character, because the arrays become part of the graph; `_MAX_VOCAB` keeps the ids below 256.
        return np.array(ids[: len(ids) // length * length], np.uint8).reshape(-1, length)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.cast(values, tf.int64) for name, values in batch.items()}
