"""Text of a Markov chain: its entropy rate, its words from the chain, and its files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps_trainer.data.formats.text import Text
from ps_trainer.data.generators import generate
from ps_trainer.data.generators.markov_text import MarkovChain, MarkovText
from ps_trainer.errors import OptionError
from tests.data.reading import read_column


def matrix(chain, num_words, order):
    """P[state, word]."""
    probabilities = np.zeros((num_words**order, num_words))
    np.put_along_axis(probabilities, chain.successors, chain.probabilities, axis=1)
    return probabilities


def test_entropy_rate_of_two_states_equals_the_textbooks():
    chain = MarkovChain(num_words=2, order=1, num_successors=2, seed=0)
    (_, a), (b, _) = matrix(chain, 2, 1)  # the probabilities of the moves 0 to 1 and 1 to 0
    binary = [-p * np.log(p) - (1 - p) * np.log(1 - p) for p in (a, b)]
    assert chain.entropy_rate == pytest.approx((b * binary[0] + a * binary[1]) / (a + b))


@pytest.mark.parametrize(("order", "num_words", "num_successors"), [(1, 7, 3), (2, 5, 2), (3, 3, 3)])
def test_drawn_words_cost_the_entropy_rate(order, num_words, num_successors):
    chain = MarkovChain(num_words=num_words, order=order, num_successors=num_successors, seed=1)
    drawn = np.array(chain.draw(100_000, np.random.RandomState(0)))
    state = sum(num_words**back * drawn[order - 1 - back : len(drawn) - 1 - back] for back in range(order))
    nats = -np.log(matrix(chain, num_words, order)[state, drawn[order:]])  # infinite if a word cannot follow
    assert nats.mean() == pytest.approx(chain.entropy_rate, abs=6 * nats.std() / np.sqrt(len(nats)))


def test_the_loader_reads_the_built_in_text_from_files(tmp_path):
    options = ("num_words=9", "order=1", "num_successors=4", "num_train=700", "num_test=300", "seed=3")
    files = generate.generate("markov", options, tmp_path / "set")
    assert [file.name for file in files] == ["train.txt", "test.txt", "truth.json"]
    made = MarkovText(MarkovText.Options(num_words=9, order=1, num_successors=4, num_train=700, num_test=300, seed=3))
    read = Text(Text.Options(unit="word"), data_dir=str(tmp_path / "set"))
    assert (made.num_train_examples, made.num_test_examples) == (700 // 64, 300 // 64)
    assert read.vocabulary == made.vocabulary
    assert made.vocab_size == 9 + 1
    assert made.vocabulary.counts[made.vocabulary.unknown] == 0
    np.testing.assert_array_equal(*(read_column(lambda s=s: s.test(batch_size=9), "ids") for s in (read, made)))
    truth = json.loads(files[2].read_text())
    assert truth == {"entropy_rate": made.chain.entropy_rate, "perplexity": np.exp(made.chain.entropy_rate)}


def test_any_number_of_words_are_all_different():
    for num_words in (2, 71, 6000):
        words = MarkovChain(num_words=num_words, order=1, num_successors=2, seed=0).words
        assert len(set(words)) == len(words) == num_words
        assert all(word.isalpha() for word in words[1:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_successors": 11}, "num_successors=11 exceeds num_words=10"),
        ({"num_words": 1000}, "num_words=1000 order=2 .* is 4000000, but at most 1000000 is allowed"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        MarkovText.Options(**options)
