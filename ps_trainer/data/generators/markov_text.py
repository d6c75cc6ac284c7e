"""Text of made-up words, drawn by a Markov chain whose entropy rate is known."""

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
_BURN_IN, _REST = 1000, 1e-12
_MAX_TRANSITIONS = 10**6


class MarkovChain:
    """A chain of a given order over words, of which word 0 is the end of a line.

    After each `order` words the same number of words can follow: the end of a line, so that from everywhere every state
    is come back to, and others drawn at random; with probabilities drawn evenly from all (a flat Dirichlet
    distribution). The entropy rate is, with P the matrix of transitions between states (a
    state is the last `order` words) and pi the stationary distribution, pi P = pi,

        H = - sum over states s of pi[s] * sum over words w of P[w | s] * log P[w | s]    nats per word

    and exp(H) is the perplexity of who knows the chain: on a long text no model has less.

    Source: T. Cover, J. Thomas, "Elements of Information Theory", section 4.2.

    Args:
        num_words: V, the end of a line included.
        order: words that decide about the next one, 1 or more.
        num_successors: words that can follow, 2 .. V.
        seed: of the chain.

    Attributes:
        words: as they are written; the first is the newline.
        successors: int64 [V ** order, successors]; a state is the number that its words are in base V, oldest first.
        probabilities: float64, of the same shape.
    """

    def __init__(self, *, num_words: int, order: int, num_successors: int, seed: int):
        # RandomState, because its sequence is frozen for all versions of NumPy; that of default_rng is not.
        random = np.random.RandomState(seed)
        self._num_words = num_words
        self.words = ("\n", *_made_up(num_words - 1))
        num_states = num_words**order
        others = [random.permutation(num_words - 1)[: num_successors - 1] + 1 for _ in range(num_states)]
        self.successors = np.insert(np.stack(others), 0, _LINE_END, axis=1)
        self.probabilities = random.dirichlet(np.ones(num_successors), num_states)

    @property
    def entropy_rate(self) -> float:
        """Nats per word."""
        of_state = -np.sum(self.probabilities * np.log(self.probabilities), axis=1)
        return float(self._stationary() @ of_state)

    def draw(self, num_words: int, random: np.random.RandomState) -> list[int]:
        """A stretch of the chain, long after its start."""
        limits = np.cumsum(self.probabilities, axis=1).tolist()
        successors, num_states = self.successors.tolist(), len(self.successors)
        state, drawn = 0, []
        for uniform in random.uniform(size=_BURN_IN + num_words):
            at = min(bisect.bisect_right(limits[state], uniform), len(limits[state]) - 1)
            drawn.append(successors[state][at])
            state = (state * self._num_words + drawn[-1]) % num_states
        return drawn[_BURN_IN:]

    def text(self, num_words: int, random: np.random.RandomState) -> bytes:
        """A stretch of the chain as text, UTF-8."""
        words = (self.words[number] for number in self.draw(num_words, random))
        return " ".join(words).replace(" \n", "\n").replace("\n ", "\n").encode()

    def _stationary(self) -> np.ndarray:
        """The share of each state in a long text, float64 [states]."""
        num_states = len(self.successors)
        next_state = (np.arange(num_states)[:, np.newaxis] * self._num_words + self.successors) % num_states
        share, change = np.full(num_states, 1 / num_states), np.inf
        while change > _REST:
            flow = np.bincount(next_state.ravel(), (share[:, np.newaxis] * self.probabilities).ravel(), num_states)
            share, change = flow, np.abs(flow - share).sum()
        return share


class MarkovText(WindowSource):
    """Text of made-up words, drawn by a Markov chain of known entropy rate.

    Batches: "ids" int64 [B, T + 1], T = `context_length`, as of dataset text with unit=word; `num_words` + 1 ids
    (no word is unknown). A model that knows the chain has `entropy_rate` as its loss; `generate` writes the
    same text into files.

    Args:
        options: the chain and the sizes.
        data_dir: not used.

    Attributes:
        chain: the chain.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `MarkovText`."""

        num_words: int = option(10, "different words, one of which is the end of a line", least=2)
        order: int = option(2, "words that decide about the next one", least=1)
        num_successors: int = option(4, "words that can follow", least=2)
        context_length: int = option(64, "T, how many ids of a window are to be told", least=1)
        num_train: int = option(400_000, "length of the text to train on", least=1)
        num_test: int = option(50_000, "length of the text to test on", least=1)
        seed: int = option(0, "seed of everything", least=0, below=2**32)

        def __post_init__(self) -> None:
            if self.num_successors > self.num_words:
                raise OptionError(f"num_successors={self.num_successors} exceeds num_words={self.num_words}")
            if self.num_words**self.order * self.num_successors > _MAX_TRANSITIONS:
                raise OptionError(
                    f"num_words={self.num_words} order={self.order}: num_words ** order * num_successors is"
                    f" {self.num_words**self.order * self.num_successors}, the most is {_MAX_TRANSITIONS}; lower them"
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
    """Text drawn by a Markov chain, train.txt and test.txt, and in truth.json its entropy rate, in nats per word."""
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


def _made_up(count: int) -> list[str]:
    """Different words of consonants and vowels in turn, all of one length."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    length = 2
    while len(syllables) ** length < count:
        length += 1
    spread = len(syllables) ** length // max(count, 1)  # so that they do not all begin alike
    words = []
    for number in range(0, count * spread, spread):
        parts = []
        for _ in range(length):
            number, part = divmod(number, len(syllables))
            parts.append(syllables[part])
        words.append("".join(parts))
    return words
