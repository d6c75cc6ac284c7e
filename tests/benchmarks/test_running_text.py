"""The comparison of word vectors with gensim: recall, the order of words, and what both are given."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from benchmarks import running_text
from ps_trainer.experiments.harness.cpu import CpuUse

TOKENS = tuple(f"w{number:02}" for number in range(30))


def test_recall_is_the_share_of_the_ten_words_that_counting_finds():
    random = np.random.RandomState(0)
    counted = running_text.unit_rows(random.normal(size=(30, 8)))
    source = types.SimpleNamespace(information=counted, compared_words=np.arange(5))
    assert running_text.recall(3 * counted, source) == 1
    # Word 0 takes the vector of the word that is least similar to it; the other words keep all or most of theirs.
    moved = counted.copy()
    moved[0] = counted[np.argmin(counted @ counted[0])]
    of_word_0 = types.SimpleNamespace(information=counted, compared_words=np.array([0]))
    assert running_text.recall(moved, of_word_0) < 0.5
    # Rows beyond those that counting compares never count as near.
    assert running_text.recall(np.concatenate([counted, counted]), source) == 1


def test_vectors_follow_the_order_of_our_words_and_missing_ones_are_0(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["b", "a"]), vectors=np.array([[1, 2], [3, 4]], np.float32))
    found = running_text.in_order(tmp_path / "v.npz", ["a", "x", "b"])
    np.testing.assert_array_equal(found, [[3, 4], [0, 0], [1, 2]])


@pytest.fixture
def given(monkeypatch):
    """The flags and the texts that both sides are given; ours takes 5 s for all words, gensim 2 s."""
    found = {}

    def run_local(flags, logdir, deadline_secs, **_):
        found["ours"] = flags
        (logdir / "metrics").mkdir(parents=True)
        (logdir / "metrics" / "worker-0.jsonl").write_text('{"kind": "state", "state": "training", "wall_time": 7.0}\n')
        (logdir / "summary.json").write_text(json.dumps({"workers": {"0": {"secs": 5.0}, "1": {"secs": 4.0}}}))
        return 9.0

    def gensim(text, out, settings, packages, deadline_secs):
        found["theirs"] = settings
        np.savez(out, words=np.array(TOKENS), vectors=np.eye(30, dtype=np.float32))
        return {"words": 6000.0, "fit_secs": 2.0, "fit_file_secs": 1.5, "fit_cpu_secs": 3.0}

    class CpuWatch:
        """Two cores are busy all the time."""

        def __init__(self, **options):
            assert not options["has_self"]  # the benchmark's own process is not part of the training

        def __enter__(self):
            return self

        def __exit__(self, *error):
            del error

        def between(self, start, end):
            return CpuUse(1.0, 2 * (end - start), 0.0)

    monkeypatch.setattr(running_text, "CpuWatch", CpuWatch)
    monkeypatch.setattr(running_text, "run_local", run_local)
    monkeypatch.setattr(running_text, "_gensim", gensim)
    monkeypatch.setattr(running_text, "find_checkpoint", lambda folder: {"input": np.eye(40, 4)})
    return found


def test_both_train_with_the_same_settings_and_as_many_words(tmp_path, given):
    words = np.random.RandomState(0).choice(TOKENS, size=3000)
    (tmp_path / "t.txt").write_text(" ".join(words))
    (tmp_path / "packages").mkdir()
    args = ["--seeds=1", "--first_seed=3", "--epochs=2", "--dim=4", "--max_vocab=32", "--num_test=9"]
    paths = [str(tmp_path / "t.txt"), f"--packages={tmp_path / 'packages'}", f"--out_dir={tmp_path / 'out'}"]
    assert running_text.main([*paths, *args]) == 0
    flags = set(given["ours"])
    assert {"--model_option=dim=4", "--dataset_option=max_vocab=32", "--dataset_option=num_test=9", "--seed=3"} <= flags
    # 3000 words are 47 examples of 64.
    assert f"--max_steps={-(-2 * 47 // 64)}" in flags
    assert not any("learning_rate" in flag or "optimizer" in flag for flag in flags)
    assert given["theirs"] == {
        "dim": 4, "window": 5, "negatives": 5, "subsample": 1e-3, "max_vocab": 32, "epochs": 2, "seed": 3,
    }  # fmt: skip
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert (row["our_words_per_sec"], row["their_words_per_sec"]) == (2 * 3000 / 5, 6000 / 2)
    assert row["their_cpu_us_per_word"] == pytest.approx(1e6 * 3 / 6000)
    assert row["our_cpu_us_per_word"] == pytest.approx(1e6 * 2 * 5 / 6000, rel=1e-3)


def test_a_missing_text_ends_with_one_line_before_there_is_a_folder(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        running_text.main([str(tmp_path / "none.txt"), f"--out_dir={tmp_path / 'out'}"])
    assert ended.value.code == 2
    assert "none.txt is not a file; name a text" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
