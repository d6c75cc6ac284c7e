"""Synthetic text drawn from a Markov chain over invented words, whose entropy rate is known."""

from __future__ import annotations

import bisect
import dataclasses
import json
import pathlib

import numpy as np

from ps_trainer.data.formats.text import Texts, WindowSource
from ps_trainer.data.pipeline.text_stream import Document
from ps_trainer.errors import OptionError
from ps_trainer.options import option

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_LINE_END = 0
_BURN_IN_WORDS = 1000  # after these words the chain has forgotten its start
_MAX_CHANGE = 1e-12  # of the stationary distribution in the last step of its iteration
_MAX_TRANSITIONS = 10**6


class MarkovChain:
    """A Markov chain of a given order over words. Word 0 is the end of a line.

    A state is the last `order` words. In each state the same number of words can follow, drawn at random. One of them
    is the end of a line, so that every state leads back to the same one. Their probabilities are drawn from a flat
    Dirichlet distribution. With P the matrix of transitions between states, and pi the stationary distribution, pi P =
    pi, the entropy rate is

        H = - sum over states s of pi[s] * sum over words w of P[w | s] * log P[w | s]    nats per word

    and exp(H) is the perplexity of a model that knows the chain. On a long text no model has a lower one.

    Source: T. Cover, J. Thomas, "Elements of Information Theory", section 4.2.

    Args:
        num_words: Number of words, V, including the end of a line.
        order: Number of words that decide about the next one, 1 or more.
        num_successors: Number of words that can follow in a state, 2 .. V.
        seed: Seed of the chain.

    Attributes:
        words: Words in the form of the text; the first is the newline.
        successors: int64 [V ** order, successors], the words that can follow. The number of a state has its words as
            digits in base V, the oldest first.
        probabilities: float64, probabilities of the successors, with the same shape.
    """

    def __init__(self, *, num_words: int, order: int, num_successors: int, seed: int):
        # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
        random = np.random.RandomState(seed)
        self._num_words = num_words
        self.words = ("\n", *_invented_words(num_words - 1))
        num_states = num_words**order
        others = [random.permutation(num_words - 1)[: num_successors - 1] + 1 for _ in range(num_states)]
        self.successors = np.insert(np.stack(others), 0, _LINE_END, axis=1)
        self.probabilities = random.dirichlet(np.ones(num_successors), num_states)

    @property
    def entropy_rate(self) -> float:
        """Entropy rate of the chain in nats per word."""
        of_state = -np.sum(self.probabilities * np.log(self.probabilities), axis=1)
        return float(self._stationary() @ of_state)

    def draw(self, num_words: int, random: np.random.RandomState) -> list[int]:
        """Draws successive words of the chain, long after its start."""
        limits = np.cumsum(self.probabilities, axis=1).tolist()
        successors, num_states = self.successors.tolist(), len(self.successors)
        state, drawn = 0, []
        for uniform in random.uniform(size=_BURN_IN_WORDS + num_words):
            # The probabilities may sum up to a little less than 1, so the last successor takes the rest.
            at = min(bisect.bisect_right(limits[state], uniform), len(limits[state]) - 1)
            drawn.append(successors[state][at])
            state = (state * self._num_words + drawn[-1]) % num_states
        return drawn[_BURN_IN_WORDS:]

    def text(self, num_words: int, random: np.random.RandomState) -> bytes:
        """Draws successive words of the chain, long after its start, as text in UTF-8."""
        words = (self.words[number] for number in self.draw(num_words, random))
        return " ".join(words).replace(" \n", "\n").replace("\n ", "\n").encode()

    def _stationary(self) -> np.ndarray:
        """Computes the share of each state in a long text, float64 [states], by power iteration."""
        num_states = len(self.successors)
        next_state = (np.arange(num_states)[:, np.newaxis] * self._num_words + self.successors) % num_states
        share, change = np.full(num_states, 1 / num_states), np.inf
        while change > _MAX_CHANGE:
            flow = np.bincount(next_state.ravel(), (share[:, np.newaxis] * self.probabilities).ravel(), num_states)
            share, change = flow, np.abs(flow - share).sum()
        return share


class MarkovText(WindowSource):
    """Text of invented words, drawn from a Markov chain with a known entropy rate.

    Batches: "ids" int64 [B, T + 1], T = `context_length`, in the form of dataset text with unit=word. There are
    `num_words` + 1 ids, although no word is unknown. The loss of a model that knows the chain is the entropy
    rate. `ps_trainer data generate markov` writes the same text into files.

    Args:
        options: Chain and sizes.
        data_dir: Not used.

    Attributes:
        chain: Chain that the text is drawn from.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `MarkovText`."""

        num_words: int = option(10, "number of different words, including the end of a line", least=2)
        order: int = option(2, "number of words that decide about the next one", least=1)
        num_successors: int = option(4, "number of words that can follow", least=2)
        context_length: int = option(64, "T, number of ids of a window that a model predicts", least=1)
        num_train: int = option(400_000, "length of the text to train on, in words", least=1)
        num_test: int = option(50_000, "length of the text to test on, in words", least=1)
        seed: int = option(0, "seed of the chain and of the text", least=0, below=2**32)

        def __post_init__(self) -> None:
            if self.num_successors > self.num_words:
                raise OptionError(f"num_successors={self.num_successors} exceeds num_words={self.num_words}")
            if self.num_words**self.order * self.num_successors > _MAX_TRANSITIONS:
                raise OptionError(
                    f"num_words={self.num_words} order={self.order} num_successors={self.num_successors}:"
                    f" num_words ** order * num_successors is {self.num_words**self.order * self.num_successors},"
                    f" but at most {_MAX_TRANSITIONS} is allowed; lower one of them"
                )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        self.chain, train, test = _generate(options)
        super().__init__(
            Texts(*([Document(None, len(text), text=text)] for text in (train, test))),
            unit="word",
            max_vocab=options.num_words + 2,
            length=options.context_length + 1,
            stride=options.context_length,
            test_share=0.0,
        )


def generate(options: MarkovText.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes text drawn from a Markov chain: train.txt, test.txt, and its entropy rate in nats per word: truth.json."""
    chain, *texts = _generate(options)
    files = [folder / "train.txt", folder / "test.txt", folder / "truth.json"]
    for file, text in zip(files, texts, strict=False):
        file.write_bytes(text)
    truth = {"entropy_rate": chain.entropy_rate, "perplexity": float(np.exp(chain.entropy_rate))}
    files[-1].write_text(json.dumps(truth) + "\n")
    return files


def _generate(options: MarkovText.Options) -> tuple[MarkovChain, bytes, bytes]:
    chain = MarkovChain(
        num_words=options.num_words, order=options.order, num_successors=options.num_successors, seed=options.seed
    )
    random = np.random.RandomState([options.seed, 1])
    return chain, chain.text(options.num_train, random), chain.text(options.num_test, random)


def _invented_words(count: int) -> list[str]:
    """Makes different words of alternating consonants and vowels, all of one length."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    length = 2
    while len(syllables) ** length < count:
        length += 1
    spread = len(syllables) ** length // max(count, 1)  # large steps, so that the words begin differently
    words = []
    for number in range(0, count * spread, spread):
        parts = []
        for _ in range(length):
            number, part = divmod(number, len(syllables))
            parts.append(syllables[part])
        words.append("".join(parts))
    return words
