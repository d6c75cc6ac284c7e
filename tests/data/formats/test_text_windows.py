"""Runs of words: the words that are left, their reach, the shards' cover of them, and the counted neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.formats import text_windows
from ps_trainer.data.formats.text_windows import TextWindows
from ps_trainer.data.pipeline import recorded_words, shard_plan, text_stream
from ps_trainer.data.pipeline.frequency_vocabulary import make_vocabulary
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document
from ps_trainer.errors import DataError
from tests.data.reading import read_batches
from tests.data.sharding import assert_every_record_once, assert_parts_are_test_batches

import tensorflow.compat.v1 as tf  # isort: skip - after the tests' environment


def create(folder, text=None, **options):
    if text is not None:
        (folder / "train.txt").write_text(text)
    return TextWindows(TextWindows.Options(**options), data_dir=None if folder is None else str(folder))


WHOLE = Shard(0, 1)


def train_batches(source, *, shard=WHOLE, batch_size=1, seed=0, num_epochs=1, start=0):
    settings = {"shard": shard, "batch_size": batch_size, "seed": seed, "num_epochs": num_epochs, "start": start}
    return read_batches(lambda: source.train(**settings))


def words_left(source, batches):
    """The words of each example of the batches, without padding."""
    tokens = source.vocabulary.tokens
    rows = [row for batch in batches for row in zip(batch["words"], batch["reach"], strict=True)]
    return [[tokens[word] for word, reach in zip(*row, strict=True) if reach] for row in rows]


def test_each_word_is_in_one_example_and_words_without_an_id_and_line_ends_in_none(tmp_path):
    source = create(tmp_path, "a b c\nd rare e f g h", window=2, subsample=0.0, max_vocab=20, words_per_example=4)
    assert source.num_train_examples == 3  # ten words, with the end of the line
    assert sorted(words_left(source, train_batches(source))) == [["a", "b", "c"], ["d", "rare", "e", "f"], ["g", "h"]]
    # Of equally frequent words the last one in the alphabet has no separate id.
    source = create(tmp_path, window=1, subsample=0.0, max_vocab=10, words_per_example=4)
    assert "rare" not in source.vocabulary.tokens
    assert sorted(words_left(source, train_batches(source))) == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]


def test_the_shards_together_are_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(text_windows, "_BLOCK_WORDS", 9)
    words = [f"w{number:02}" for number in range(46)]
    source = create(tmp_path, " ".join(words), window=1, subsample=0.0, words_per_example=4)
    assert source.num_train_examples == 12
    assert_every_record_once(source, "words")
    assert_parts_are_test_batches(source)


@pytest.mark.parametrize("block", [4, 2**14])
def test_a_shard_has_every_third_example_whatever_is_read_at_a_time(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_windows, "_BLOCK_WORDS", block)
    text = " ".join(f"w{number:02}" for number in range(46))
    source = create(tmp_path, text, window=1, subsample=0.0, words_per_example=4)
    whole = read_batches(lambda: source._records("train", WHOLE))
    assert len(whole) == 12
    assert str(read_batches(lambda: source._records("train", Shard(1, 3)))) == str(whole[1::3])


def test_frequent_words_are_thinned_as_in_word2vec(tmp_path, monkeypatch):
    monkeypatch.setattr(text_stream, "_CHUNK_BYTES", 100)
    random = np.random.RandomState(0)
    text = " ".join(random.choice(["often", "rare"], p=[0.9, 0.1], size=8000))
    source = create(tmp_path, text, window=1, subsample=0.15, words_per_example=50)
    left = sum(words_left(source, train_batches(source, num_epochs=4)), [])
    number = text.count("often")
    ratio = 0.15 / (number / 8000)
    assert left.count("often") == pytest.approx(4 * number * (np.sqrt(ratio) + ratio), rel=0.02)
    assert left.count("rare") == 4 * text.count("rare")


def test_reach_is_drawn_from_1_to_the_window_or_fixed(tmp_path):
    text = " ".join(f"w{number}" for number in range(3000))
    options = {"window": 3, "subsample": 0.0, "words_per_example": 100, "max_vocab": 4000}
    drawn = train_batches(create(tmp_path, text, **options))
    counts = np.bincount(np.concatenate([batch["reach"].ravel() for batch in drawn]))
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], [1000] * 3, rtol=0.1)
    fixed = train_batches(create(tmp_path, **options, dynamic_window=False))
    assert {reach for batch in fixed for reach in batch["reach"].ravel()} == {3}


def test_a_later_start_draws_what_the_first_run_would_have_drawn_and_epochs_differ(tmp_path):
    text = " ".join(f"w{number % 50}" for number in range(1200))
    source = create(tmp_path, text, window=5, subsample=0.002, words_per_example=100)
    settings = {"batch_size": 2, "num_epochs": 3, "shard": Shard(1, 2)}
    whole = train_batches(source, **settings)
    assert len(whole) == 3 * 3
    assert str(train_batches(source, **settings, start=10)) == str(whole[5:])
    assert str(train_batches(source, **settings, seed=1)) != str(whole)
    # The same examples in each epoch, thinned in other ways.
    assert len({sum(batch["reach"].astype(bool).sum() for batch in whole[at : at + 3]) for at in (0, 3, 6)}) > 1


def test_leased_shards_are_drawn_by_epoch_shard_and_place(tmp_path):
    # No word is there twice, and each stays with the same probability, of about a half.
    text = " ".join(f"w{number:04}" for number in range(1200))
    options = {"words_per_example": 50, "max_vocab": 1300, "subsample": 1.1e-4, "dynamic_window": False}
    source = create(tmp_path, text, **options)
    plan = shard_plan.plan(source.num_train_examples, 2, None, num_workers=1, size=8, seed=0)
    assert source.vocabulary.tokens[:2] == ("w0000", "w0001")  # ids are in the order of the text

    def draws(*leases):
        """For each batch, which places of its examples are left: draws are equal if they have the same seed."""
        wanted = np.array(leases, np.int64)
        read = read_batches(lambda: source.train_leased(tf.data.Dataset.from_tensor_slices(wanted), plan))
        batches = [batch for _, batch in read]
        pairs = [zip(batch["words"], batch["reach"], strict=True) for batch in batches]
        return [str([(ids[reach > 0] % 50).tolist() for ids, reach in rows]) for rows in pairs]

    whole = draws([0, 1, 0])
    assert len(whole) == 4
    assert draws([0, 2, 0], [0, 1, 2])[4:] == whole[2:]  # another worker continues with the same draws
    others = [*whole, *draws([0, 2, 0]), *draws([1, 1, 0])]
    assert len(set(others)) == len(others)  # each batch, shard and epoch has its own draw


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


@pytest.mark.parametrize("exponent", [0, 1])
def test_a_text_of_random_words_gives_advice_and_the_same_words_by_topics_do_not(tmp_path, exponent):
    random = np.random.RandomState(7)
    topics = np.repeat(random.randint(0, 5, 500), 40)
    shares = 1 / np.arange(1, 201.0) ** exponent
    numbers = random.choice(len(shares), len(topics), p=shares / shares.sum())
    words = [f"w{topic}x{number}" for topic, number in zip(topics, numbers, strict=True)]
    assert create(tmp_path, " ".join(words)).advice == ""
    random.shuffle(words)
    advice = create(tmp_path, " ".join(words)).advice
    assert "say nothing about those in the other half" in advice and "learn it by heart" in advice
    assert create(tmp_path, " ".join(words[:4999])).advice == ""  # too short to judge


def test_the_built_in_text_is_cleaned():
    source = create(None)
    assert source.vocab_size == 1000
    assert all(token.isalpha() and token.islower() for token in source.vocabulary.tokens if token[0] != "<")
    assert source.num_train_examples > 1000
    assert source.num_test_examples == 200
    assert source.advice == ""


def test_errors_name_the_fault(tmp_path):
    with pytest.raises(DataError, match="6 words of the text are left, too few for windows of 11"):
        create(tmp_path, "a b c\nd e f", subsample=0.0)


def test_words_of_another_run_keep_their_ids(tmp_path):
    before = create(tmp_path, "a b a c a b\n" * 40, window=2, subsample=0.0)
    text = recorded_words.as_text(recorded_words.vocabularies_of(before))
    (tmp_path / "vocabulary.json").write_text(text)
    now = "a b a c a b\n" * 40 + "c d e c\n" * 90
    after = create(tmp_path, now, window=2, subsample=0.0, vocabulary_of=str(tmp_path))
    assert after.vocabulary.tokens == before.vocabulary.tokens == ("a", "b", "<eos>", "c", "<unk>")
    assert after.vocabulary.counts == (120, 80, 130, 220, 180)
    assert all(set(row) <= set("abc") for row in words_left(after, train_batches(after)))
