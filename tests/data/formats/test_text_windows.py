"""Windows around words: the remaining words, the shards' cover of them, and the counted neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.formats.text_windows import TextWindows
from ps_trainer.data.pipeline import text_stream
from ps_trainer.data.pipeline.frequency_vocabulary import make_vocabulary
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document
from ps_trainer.errors import DataError
from tests.data.reading import read_batches
from tests.data.sharding import assert_every_record_once


def create(folder, text=None, **options):
    if text is not None:
        (folder / "train.txt").write_text(text)
    return TextWindows(TextWindows.Options(**options), data_dir=None if folder is None else str(folder))


def train_examples(source):
    """(center, context) as words."""
    tokens = source.vocabulary.tokens
    batches = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1))
    return [(tokens[b["center"][0]], tuple(tokens[i] for i in b["context"][0])) for b in batches]


def test_a_word_has_its_neighbours_on_both_sides(tmp_path):
    source = create(tmp_path, "a b c\nd rare e f", window=2, subsample=0.0, max_vocab=20)
    examples = train_examples(source)
    assert sorted(examples) == [
        ("c", tuple("abd") + ("rare",)),
        ("d", ("b", "c", "rare", "e")),
        ("rare", tuple("cdef")),
    ]
    # Of equally frequent words the last one in the alphabet has no id of its own.
    source = create(tmp_path, window=2, subsample=0.0, max_vocab=8)
    assert "rare" not in source.vocabulary.tokens
    assert sorted(train_examples(source)) == [("c", tuple("abde")), ("d", tuple("bcef"))]


def test_each_word_but_the_first_and_last_is_a_centre_once(tmp_path):
    words = [f"w{number:02}" for number in range(40)]
    source = create(tmp_path, " ".join(words), window=1, subsample=0.0)
    expected = [(word, (before, after)) for before, word, after in zip(words, words[1:], words[2:], strict=False)]
    assert sorted(train_examples(source)) == expected
    assert_every_record_once(source, "context")


def test_frequent_words_are_thinned_and_the_number_of_examples_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(text_stream, "_CHUNK_BYTES", 100)
    random = np.random.RandomState(0)
    text = " ".join(random.choice(["often", "rare"], p=[0.9, 0.1], size=4000))
    source = create(tmp_path, text, window=1, subsample=0.15)
    examples = train_examples(source)
    assert len(examples) == source.num_train_examples
    centers = [center for center, _ in examples]
    share = text.count("often") / 4000
    assert centers.count("often") == pytest.approx(4000 * share * np.sqrt(0.15 / share), rel=0.02)
    assert centers.count("rare") == pytest.approx(text.count("rare"), abs=2)


@pytest.mark.parametrize("seed", range(2))
def test_words_have_the_same_ids_in_python_and_in_the_stream(seed, tmp_path):
    random = np.random.RandomState(seed)
    text = "".join(random.choice(list("ab \n\té漢\r\x0b"), size=200)).encode()
    document = Document(None, len(text), text=text)
    vocabulary = make_vocabulary([document], "word", 9)
    batches = read_batches(lambda: vocabulary.stream([document]))
    np.testing.assert_array_equal(np.concatenate(batches), vocabulary.word_ids(document))


def test_test_examples_are_pairs_of_words_in_similar_use(tmp_path):
    random = np.random.RandomState(0)
    pairs = [("cat", "dog"), ("red", "blue"), ("run", "walk")]
    phrases = [f"{random.choice(pairs[kind])} x{kind} y{kind} z{kind}" for kind in random.randint(0, 3, 2000)]
    source = create(tmp_path, " ".join(phrases), window=1, subsample=0.0)
    (batch,) = read_batches(lambda: source.test(batch_size=99))
    assert len(batch["center"]) == source.num_test_examples == 3 * 5
    tokens = source.vocabulary.tokens
    nearest = {tokens[center]: tokens[context[0]] for center, context in zip(*batch.values(), strict=True)}
    for one, other in pairs:
        assert (nearest[one], nearest[other]) == (other, one)


def test_the_built_in_text_is_cleaned():
    source = create(None)
    assert source.vocab_size == 1000
    assert all(token.isalpha() and token.islower() for token in source.vocabulary.tokens if token[0] != "<")
    assert source.num_train_examples > 20_000
    assert source.num_test_examples == 200


def test_errors_name_the_fault(tmp_path):
    with pytest.raises(DataError, match="6 words of the text are left, too few for windows of 7"):
        create(tmp_path, "a b c\nd e f", subsample=0.0)
