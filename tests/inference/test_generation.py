"""Text from a trained model: greedy, drawn with a seed, from the checkpoint and the words alone."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.data.generators.number_words import Numbers, _draw, chinese, english
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.inference.generation import Sampling, draw, encode, text_of_token
from tests.testing.cluster import config_of  # noqa: F401 - sets the environment of TensorFlow
from tests.testing.repetitions import representatives

from ps_trainer.cli import generate  # isort: skip
from ps_trainer.training import one_process  # isort: skip

WORDS = RecordedWords("word", ("the", "<unk>", "cat", "<eos>"))
LINE = "abcdefgh\n"
MODELS = {
    "gpt": ("vocab_size=12", "num_layers=1", "dim=16", "num_heads=2", "hidden=16", "max_ngram=2", "num_buckets=101"),
    "lstm_lm": ("vocab_size=12", "dim=8", "units=32"),
}


# A generator takes logits from any model; `tests/models` has both models.
@pytest.fixture(scope="module", params=representatives(sorted(MODELS), ["gpt"]))
def logdir(request, tmp_path_factory):
    """The folder of a model that has learned a periodic text, which no longer exists."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "train.txt").write_text(LINE * 200)
    config = TrainConfig(
        model=request.param,
        model_option=MODELS[request.param],
        dataset="text",
        dataset_option=("context_length=7", "train_files=train.txt"),
        data_dir=str(folder),
        logdir=str(folder / "run"),
        optimizer="adam",
        learning_rate=0.02,
        batch_size=8,
        max_steps=120,
    )
    config.check()
    one_process.train(config)
    (folder / "train.txt").unlink()
    return config.logdir


def text_of(capsys, logdir, *args):
    assert generate.main_generate(["program", f"--logdir={logdir}", *args]) == 0
    return capsys.readouterr().out


def test_goes_on_with_the_text_that_the_model_has_learned(logdir, capsys):
    # Longer than the context of 7 characters, so that the window moves.
    text = text_of(capsys, logdir, "--prompt=abc", "--temperature=0", "--length=24")
    assert text == (LINE * 4)[:27] + "\n"


def test_the_same_seed_gives_the_same_text_and_another_seed_another(logdir, capsys):
    texts = [text_of(capsys, logdir, "--temperature=9", "--length=30", f"--seed={seed}") for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    greedy = text_of(capsys, logdir, "--temperature=0", "--length=9")
    assert text_of(capsys, logdir, "--temperature=9", "--top_k=1", "--length=9") == greedy == LINE + "\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--model=mlp", "--dataset=digits"],
            "model 'mlp' cannot generate text: it has no method `logits` or `translate`",
        ),
        (["--dataset=digits"], "dataset 'digits' has no text that a prompt could continue; train on --dataset=text"),
        (["--top_k=0"], "top_k"),
        (["--beam_size=2"], "--beam_size has no effect: "),
        (["--temperature=-1"], "temperature"),
    ],
)
def test_wrong_input_ends_with_2_and_one_line(logdir, capsys, args, message):
    assert generate.main_generate(["program", f"--logdir={logdir}", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err.splitlines()[-1]


def test_draws_in_proportion_among_the_most_probable_known_tokens():
    logits = np.log([0.2, 0.5, 0.6, 0.1, 9.0])  # "<unk>" and an id without a token are never drawn
    generator = np.random.default_rng(0)
    drawn = [draw(logits, WORDS, Sampling(), generator) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 4000, [2 / 9, 0, 6 / 9, 1 / 9, 0], atol=0.03)
    half = [draw(logits, WORDS, Sampling(temperature=0.5, top_k=2), generator) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(half, minlength=5) / 4000, [4 / 40, 0, 36 / 40, 0, 0], atol=0.03)
    assert draw(logits, WORDS, Sampling(temperature=0), generator) == 2


def test_words_begin_after_the_end_of_a_line_and_unknown_ones_are_read_as_such(caplog):
    assert encode(WORDS, "the dog\ncat") == [3, 0, 1, 3, 2]
    assert "words that the vocabulary lacks, read as unknown: 1 of 5 ('dog')" in caplog.text
    assert [text_of_token(WORDS, number, is_first=False) for number in (2, 3)] == [" cat", "\n"]
    assert text_of_token(WORDS, 2, is_first=True) == "cat"


def test_translates_by_beam_search(tmp_path, capsys):
    """A transformer that has learned a few numbers."""
    config = TrainConfig(
        model="transformer",
        model_option=("dim=16", "num_layers=1", "num_heads=2", "hidden=32"),
        dataset="numbers",
        dataset_option=("max_number=12", "num_train=10", "num_test=3"),
        logdir=str(tmp_path / "run"),
        optimizer="adam",
        learning_rate=0.01,
        batch_size=10,
        max_steps=200,
    )
    config.check()
    one_process.train(config)
    capsys.readouterr()
    numbers = _draw(Numbers.Options(max_number=12, num_train=10, num_test=3))["train"][:2]
    for number, args in zip(numbers, (["--beam_size=3"], ["--beam_size=1", "--length=4"]), strict=True):
        text = text_of(capsys, config.logdir, f"--prompt={english(number)}", *args)
        assert text == chinese(number) + "\n"
    assert generate.main_generate(["program", f"--logdir={config.logdir}", "--prompt= "]) == 2
    assert "--prompt is empty; give the text to translate" in capsys.readouterr().err
    assert generate.main_generate(["program", f"--logdir={config.logdir}", "--temperature=0"]) == 2
    assert "--temperature has no effect: transformer translates by a search" in capsys.readouterr().err
