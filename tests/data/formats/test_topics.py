"""Pieces of Python's documentation, labelled by topic."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.formats.text import Text, python_topics
from ps_trainer.data.formats.topics import Topics
from ps_trainer.errors import DataError
from tests.data.reading import read_batches


def test_pieces_belong_to_the_longest_topics_and_each_is_read_once():
    source = Topics(Topics.Options(num_topics=3, length=50, test_every=4))
    longest = sorted(python_topics().values(), key=len, reverse=True)[:3]
    num_pieces = [len(topic) // 50 for topic in longest]
    num_test = [-(-number // 4) for number in num_pieces]
    assert (source.num_test_examples, source.num_classes) == (sum(num_test), 3)
    assert source.num_train_examples == sum(num_pieces) - sum(num_test)
    batches = read_batches(lambda: source.test(batch_size=64))
    ids, labels = (np.concatenate([batch[name] for batch in batches]) for name in ("ids", "label"))
    assert ids.dtype == labels.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(labels), num_test)
    for label, topic in enumerate(longest):
        for number, piece in enumerate(ids[labels == label]):
            text = "".join(source.vocabulary.tokens[i] for i in piece)
            assert text == topic[4 * number * 50 :][:50]


def test_characters_have_the_numbers_of_the_dataset_text():
    assert Topics(Topics.Options()).vocabulary.tokens == Text(Text.Options()).vocabulary.tokens


def test_options_beyond_the_documentations_size_are_rejected():
    with pytest.raises(DataError, match="num_topics=8 length=100000: the text has fewer topics"):
        Topics(Topics.Options(length=100_000))
