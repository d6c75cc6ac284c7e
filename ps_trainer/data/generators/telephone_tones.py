"""Synthetic sounds of telephone numbers: the tones of the keys, in noise, for small speech models."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.spectrogram import framing, log_spectrogram
from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import OptionError
from ps_trainer.options import option

ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477)
"""Frequencies in Hz of the rows and of the columns of the keys."""

KEYS = "123456789*0#"

AMPLITUDE = 0.3
"""Amplitude of each of a key's two tones; 1 is the largest value that a file can hold."""

# Seconds of the shortest and of the longest digit; no frame may be longer than a digit.
_DIGIT_SECS = (0.06, 0.15)


class Tones(ArraySource):
    """Telephone numbers as sounds: two tones at once for each digit, with random lengths and pauses, in noise.

    Batches: "frames" float32 [B, T, F], log spectrograms with zeros after each sound's end; "num_frames" int64 [B];
    "ids" int64 [B, L], the digits, -1 after the last; "num_ids" int64 [B]. T and L are those of the longest possible
    sound.

    A sound is `min_digits` to `max_digits` digits, all equally likely, with a pause before, between and after them. A
    digit lasts 60 to 150 ms, a pause 30 to 80 ms. The tones of a key in row r and column c have the frequencies
    `ROWS[r]` and `COLUMNS[c]`, in Hz (ITU-T Q.23). Each has a random phase and the amplitude 0.3. Normal noise with the
    standard deviation `noise` is added. All digits can be recognised without error.

    Args:
        options: Sizes, noise and seed.
        data_dir: Not used.
    """

    digit_secs = _DIGIT_SECS
    transcript_vocabulary = RecordedWords("char", tuple("0123456789"))
    pause_secs = (0.03, 0.08)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Tones`."""

        min_digits: int = option(2, "number of digits in the shortest sound", least=1)
        max_digits: int = option(6, "number of digits in the longest sound", least=1)
        sample_rate: int = option(4000, "samples per second, at least twice the highest tone", least=3000)
        window_secs: float = option(0.032, "length of a frame in seconds", above=0, most=_DIGIT_SECS[0])
        hop_secs: float = option(
            0.016, "seconds from the start of a frame to the start of the next", above=0, most=_DIGIT_SECS[0]
        )
        noise: float = option(0.1, "standard deviation of the noise", least=0)
        num_train: int = option(1024, "number of training examples", least=1)
        num_test: int = option(256, "number of test examples", least=1)
        seed: int = option(0, "seed of the sounds", least=0, below=2**32)

        def __post_init__(self) -> None:
            if self.max_digits < self.min_digits:
                raise OptionError(f"max_digits={self.max_digits} is less than min_digits={self.min_digits}")
            num_bytes = max(self.num_train, self.num_test) * (2 * self.max_samples + 8 * self.max_digits + 16)
            check_bytes(num_bytes, "num_train, num_test, max_digits or sample_rate")

        @property
        def max_samples(self) -> int:
            """Number of samples in the longest possible sound."""
            longest = self.max_digits * Tones.digit_secs[1] + (self.max_digits + 1) * Tones.pause_secs[1]
            return int(longest * self.sample_rate)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        self._framing = framing(options.sample_rate, options.window_secs, options.hop_secs)
        # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
        random = np.random.RandomState(options.seed)
        arrays = [_draw_all(options, count, random) for count in (options.num_train, options.num_test)]
        super().__init__(*arrays, num_classes=10)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        audio_BS = tf.cast(batch["audio"], tf.float32) / 2**15
        frames_BTF, num_frames_B = log_spectrogram(audio_BS, batch["num_samples"], self._framing)
        return {"frames": frames_BTF, "num_frames": num_frames_B, "ids": batch["ids"], "num_ids": batch["num_ids"]}


def _draw_all(options: Tones.Options, count: int, random: np.random.RandomState) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {
        "audio": np.zeros((count, options.max_samples), np.int16),
        "num_samples": np.zeros(count, np.int64),
        "ids": np.full((count, options.max_digits), -1, np.int64),
        "num_ids": random.randint(options.min_digits, options.max_digits + 1, count).astype(np.int64),
    }
    for at, num_ids in enumerate(arrays["num_ids"]):
        digits = random.randint(0, 10, num_ids)
        audio = _dial(digits, options, random)
        arrays["ids"][at, :num_ids] = digits
        arrays["audio"][at, : len(audio)] = audio
        arrays["num_samples"][at] = len(audio)
    return arrays


def _dial(digits: np.ndarray, options: Tones.Options, random: np.random.RandomState) -> np.ndarray:
    """Makes the sound of some digits, int16 [samples]."""

    def draw_samples(secs: tuple[float, float]) -> int:
        return int(random.uniform(*secs) * options.sample_rate)

    parts = [np.zeros(draw_samples(Tones.pause_secs))]
    for digit in digits:
        row, column = divmod(KEYS.index(str(digit)), len(COLUMNS))
        secs = np.arange(draw_samples(Tones.digit_secs)) / options.sample_rate
        tones = [np.sin(2 * np.pi * (hertz * secs + random.uniform())) for hertz in (ROWS[row], COLUMNS[column])]
        parts += [AMPLITUDE * np.sum(tones, axis=0), np.zeros(draw_samples(Tones.pause_secs))]
    audio = np.concatenate(parts)
    audio += options.noise * random.normal(size=len(audio))
    # A cast beyond the range of 16 bits would wrap around, and be heard as a click.
    return np.clip(np.rint(audio * 2**15), -(2**15), 2**15 - 1).astype(np.int16)
