"""Word vectors of a checkpoint: near words by an oracle, files that gensim reads back exactly."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

from ps_trainer.checkpoints import writer
from ps_trainer.cli import embeddings
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import CheckpointError, SaveError, UnknownNameError, UsageError
from ps_trainer.inference import word_vectors
from ps_trainer.inference.word_vectors import WordVectors

WORDS = RecordedWords("word", ("the", "<unk>", "king", "<eos>", "queen", "man", "woman", "naïve"))
TABLE = np.array(
    [
        [1, 1, 1],
        [9, 9, 9],
        [2, 2, 0],
        [-9, 9, 9],
        [1, 2, 1],
        [1, 0, 0.1],
        [0.1, 0.5, 1],
        [1 / 3, -1e-8, 3e38],
        [7, 7, 7],
    ],
    np.float32,
)


def save(logdir, table=TABLE, words=WORDS, **values):
    values = values or {"input": table, "output": table}
    writer.write(logdir / "checkpoints", 7, values | {"global_step": np.int64(7)})
    (logdir / recorded_words.FILE).write_text(recorded_words.as_text({"text": words}), encoding="utf-8")
    return logdir / "checkpoints"


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def read(path, form):
    # Not above: every process of a test run imports this file, and gensim takes 3 s.
    from gensim.models import KeyedVectors

    return KeyedVectors.load_word2vec_format(str(path), binary=form == "binary")


class TestNearest:
    def test_sorts_the_other_words_by_cosine_without_those_that_are_no_words(self, tmp_path):
        vectors = word_vectors.load(save(tmp_path))
        # As float64 products of float32 rows; row 8 belongs to no word.
        rows = TABLE.astype(np.float64)
        expected = {word: cosine(rows[2], rows[i]) for i, word in enumerate(WORDS.tokens) if i not in (1, 2, 3)}
        found = vectors.nearest("king", 10)
        assert [one.word for one in found] == sorted(expected, key=expected.get, reverse=True)
        assert {one.word: one.cosine for one in found} == pytest.approx(expected)
        assert vectors.nearest("king", 2) == found[:2]

    def test_an_analogy_uses_vectors_of_length_1_and_leaves_its_words_out(self, tmp_path):
        rows = TABLE[:8].astype(np.float64)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        wanted = unit[2] - unit[5] + unit[6]
        expected = {WORDS.tokens[i]: cosine(wanted, rows[i]) for i in (0, 4, 7)}
        found = word_vectors.load(save(tmp_path)).analogy("man", "king", "woman", 10)
        assert found[0].word == "queen"
        assert {one.word: one.cosine for one in found} == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("word", "message"),
        [("kign", "no word 'kign' among its 8; did you mean king?"), ("King", "the vocabulary has 'king'")],
    )
    def test_an_unknown_word_is_named_with_a_near_miss(self, tmp_path, word, message):
        with pytest.raises(UnknownNameError) as error:
            word_vectors.load(save(tmp_path)).nearest(word, 3)
        assert message in str(error.value)

    def test_a_word_whose_vector_is_zero_has_cosine_0(self, tmp_path):
        table = TABLE.copy()
        table[0] = 0
        found = word_vectors.load(save(tmp_path, table)).nearest("the", 3)
        assert [one.cosine for one in found] == [0, 0, 0]

    def test_needs_little_more_memory_than_the_table(self):
        num_words = 300_000
        table = np.ones([num_words, 32], np.float32)
        vectors = WordVectors(RecordedWords("word", tuple(map(str, range(num_words)))), table, "table")
        tracemalloc.start()
        vectors.nearest("5", 3)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Beside the table of 38 MB: 16,384 rows as float64 and their squares, and four numbers a word.
        assert peak < 2**14 * 32 * 8 * 4 + num_words * 8 * 4 < table.nbytes


class TestWrite:
    @pytest.mark.parametrize("form", ["text", "binary"])
    def test_gensim_reads_every_float_back(self, tmp_path, form):
        out = tmp_path / "new" / "words.vec"
        said = word_vectors.load(save(tmp_path)).write(out, form)
        vectors = read(out, form)
        assert vectors.index_to_key == list(WORDS.tokens)
        np.testing.assert_array_equal(vectors.vectors, TABLE[: len(WORDS.tokens)])
        assert said.startswith(f"{out}: 8 vectors of 3 features from input in ")
        assert [path.name for path in out.parent.iterdir()] == ["words.vec"]

    def test_the_layout_is_that_of_word2vec(self, tmp_path):
        words = RecordedWords("word", ("a", "né"))
        vectors = WordVectors(words, np.array([[0.1, -2], [1e-9, 3]], np.float32), "table")
        vectors.write(tmp_path / "text", "text")
        assert (tmp_path / "text").read_bytes() == "2 2\na 0.1 -2.0\nné 1e-09 3.0\n".encode()
        vectors.write(tmp_path / "binary", "binary")
        packed = [struct.pack("<2f", *row) for row in [(0.1, -2), (1e-9, 3)]]
        assert (tmp_path / "binary").read_bytes() == b"2 2\na %b\nn\xc3\xa9 %b\n" % tuple(packed)

    def test_characters_of_white_space_are_left_out_and_counted(self, tmp_path):
        vectors = WordVectors(RecordedWords("char", ("a", " ", "\n", "\ufffd")), np.eye(4, dtype=np.float32), "table")
        assert vectors.write(tmp_path / "out", "text").endswith(
            "; 2 tokens of white space have no place in this format"
        )
        assert read(tmp_path / "out", "text").index_to_key == ["a", "\ufffd"]

    @pytest.mark.parametrize("form", ["text", "binary"])
    def test_white_space_inside_of_a_name_becomes_an_underscore(self, tmp_path, form):
        names = RecordedWords("word", ("The Film, 3", "plain", "a\u00a0b"))
        said = WordVectors(names, np.eye(3, dtype=np.float32), "items").write(tmp_path / "out", form)
        assert said.endswith("; white space in 2 tokens became _")
        vectors = read(tmp_path / "out", form)
        assert vectors.index_to_key == ["The_Film,_3", "plain", "a_b"]
        np.testing.assert_array_equal(vectors.vectors, np.eye(3))

    def test_two_names_that_would_become_one_are_an_error(self, tmp_path):
        vectors = WordVectors(RecordedWords("word", ("a b", "a_b")), np.eye(2, dtype=np.float32), "items")
        with pytest.raises(SaveError, match="'a b' and 'a_b' would both be written as a_b; rename one"):
            vectors.write(tmp_path / "out", "text")
        assert not (tmp_path / "out").exists()


class TestLoad:
    def test_several_tables_need_a_choice(self, tmp_path):
        folder = save(tmp_path, **{"a/embedding": TABLE, "b/embedding": TABLE[:, :2]})
        with pytest.raises(UsageError, match="several tables: a/embedding, b/embedding; choose with --table=NAME"):
            word_vectors.load(folder)
        assert "2 features from b/embedding" in word_vectors.load(folder, "b/embedding").write(tmp_path / "v", "text")
        with pytest.raises(UnknownNameError, match="--table=c/embedding: did you mean"):
            word_vectors.load(folder, "c/embedding")

    def test_a_table_with_fewer_rows_than_words_is_rejected(self, tmp_path):
        with pytest.raises(
            CheckpointError, match="input has 3 rows of float32, which is not a table of the run's 8 tokens"
        ):
            word_vectors.load(save(tmp_path, TABLE[:3]))

    def test_a_model_without_a_table_of_words_names_the_matrices(self, tmp_path):
        folder = save(tmp_path, **{"logits/kernel": TABLE, "logits/bias": TABLE[0]})
        with pytest.raises(UsageError, match="no table of word vectors; name one with --table: logits/kernel$"):
            word_vectors.load(folder)


class TestCommand:
    def run(self, tmp_path, *args):
        save(tmp_path)
        return embeddings.main_embeddings(["program", *args, f"--logdir={tmp_path}"])

    def test_prints_near_words(self, tmp_path, capsys):
        assert self.run(tmp_path, "nearest", "king", "--count=1") == 0
        assert capsys.readouterr().out == f"{cosine(TABLE[2], TABLE[4]):.4f}  queen\n"
        assert self.run(tmp_path, "analogy", "man", "king", "woman", "--count=1") == 0
        assert capsys.readouterr().out.endswith("  queen\n")

    def test_writes_a_file(self, tmp_path, capsys):
        assert self.run(tmp_path, "export", f"--out={tmp_path}/words.bin", "--format=binary") == 0
        assert len(read(tmp_path / "words.bin", "binary")) == 8
        assert "words.bin: 8 vectors" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["nearest"], "takes WORD, got 0 words; write every flag as --name=value"),
            (["nearest", "king", "queen"], "takes WORD, got 2 words: king queen"),
            (["analogy", "king"], "takes A B C, got 1 words: king"),
            (["export"], "missing --out"),
            (["export", "--out=/"], "--out=/ is a folder"),
            (["nearst", "king"], "did you mean nearest?"),
            (["nearest", "king", "--format=xml"], "must be one of text, binary"),
            (["nearest", "kign"], "did you mean king?"),
            (["nearest", "queen", "--checkpoint_dir=/nowhere"], "/nowhere is not a folder"),
        ],
    )
    def test_wrong_input_ends_with_2_and_one_line(self, tmp_path, capsys, args, message):
        assert self.run(tmp_path, *args) == 2
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
        assert message in lines[-1]

    def test_after_two_dashes_a_word_may_begin_with_a_dash(self):
        assert embeddings._split(["a", "--count=1", "--", "-lrb-"]) == (["a", "-lrb-"], ["--count=1"])
