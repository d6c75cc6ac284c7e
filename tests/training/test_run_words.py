"""A trained run knows its words: the chief writes them, and they answer after the text is gone."""

from __future__ import annotations

from ps_trainer.config import TrainConfig
from tests.testing.cluster import config_of  # noqa: F401 - sets the environment of TensorFlow

from ps_trainer.cli import embeddings  # isort: skip
from ps_trainer.training import one_process  # isort: skip

LINE = "the cat eats the fish and the dog eats the bone\n"


def test_words_answer_after_the_text_is_gone(tmp_path, capsys):
    (tmp_path / "train.txt").write_text(LINE * 30)
    config = TrainConfig(
        model="word2vec",
        model_option=("vocab_size=20", "dim=4", "num_sampled=4"),
        dataset="text_windows",
        dataset_option=("window=2", "subsample=0", "num_test=3", "words_per_example=8", "train_files=train.txt"),
        data_dir=str(tmp_path),
        logdir=str(tmp_path / "run"),
        batch_size=8,
        max_steps=5,
    )
    config.check()
    one_process.train(config)
    (tmp_path / "train.txt").unlink()
    assert embeddings.main_embeddings(["program", "nearest", "cat", f"--logdir={config.logdir}"]) == 0
    words = {line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert words == set(LINE.split()) - {"cat"}
