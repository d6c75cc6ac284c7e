"""Texts as numbers and back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.sequence_vocabulary import END, PADDING, START, UNKNOWN, SequenceVocabulary
from ps_trainer.errors import OptionError


def test_the_most_frequent_units_come_first_and_the_rest_is_unknown():
    vocabulary = SequenceVocabulary.of([b"b a c", b"c a", b"c d"], "word", max_size=6)
    assert vocabulary.symbols == (b"c", b"a")
    assert len(vocabulary) == 6
    assert vocabulary.encode(b"a b c", 6) == [5, UNKNOWN, 4, END, PADDING, PADDING]


def test_a_text_that_is_too_long_has_no_end():
    vocabulary = SequenceVocabulary([b"a"], "word")
    assert vocabulary.encode(b"a a", 3) == [4, 4, END]
    assert vocabulary.encode(b"a a a", 3) == [4, 4, 4]


@pytest.mark.parametrize(("unit", "text"), [("word", "two  words"), ("char", "二 字"), ("char", "")])
def test_numbers_become_text_again(unit, text):
    vocabulary = SequenceVocabulary.of([text.encode()], unit, max_size=100)
    decoded = vocabulary.decode(vocabulary.encode(text.encode(), 20))
    assert decoded == (" ".join(text.split()) if unit == "word" else text)
    assert vocabulary.decode([START, UNKNOWN, PADDING, 4]) == ("\ufffd \ufffd" if unit == "word" else "\ufffd\ufffd")


@pytest.mark.parametrize("unit", ["word", "char"])
def test_ops_encode_as_python_does(unit):
    texts = ["one two", "", "  three\u3000one ", "two two two two"]
    vocabulary = SequenceVocabulary.of([text.encode() for text in texts[:2]], unit, max_size=100)
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = vocabulary.encode_batch(tf.constant(texts), 7)
        session.run(tf.tables_initializer())
        wanted = [vocabulary.encode(text.encode(), 7) for text in texts]
        np.testing.assert_array_equal(session.run(encoded), wanted)
        assert encoded.shape.as_list() == [4, 7]


def test_an_unknown_unit_is_rejected():
    with pytest.raises(OptionError, match="unit=letter must be one of word, char"):
        SequenceVocabulary.of([], "letter", max_size=10)
