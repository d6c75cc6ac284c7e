"""Log spectrograms of sound.

Shape suffixes: B batch, S samples, T frames, F frequencies.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

_FLOOR = 1e-6
"""Added to the power before its logarithm, since log(0) is infinite; rounding to 16 bits makes more noise per frame."""


class Framing(NamedTuple):
    """The division of a sound into frames.

    Attributes:
        window: Number of samples in a frame.
        hop: Number of samples from the start of one frame to the start of the next.
    """

    window: int
    hop: int

    @property
    def num_features(self) -> int:
        """Number of frequencies per frame."""
        return self.window // 2 + 1

    def num_frames(self, num_samples: int | tf.Tensor) -> int | tf.Tensor:
        """Counts the frames of `num_samples` samples; silence fills the last ones."""
        return -(-num_samples // self.hop)  # rounded up


def framing(sample_rate: int, window_secs: float, hop_secs: float) -> Framing:
    """Converts a framing in seconds to samples, at `sample_rate` samples per second: at least 2 and a hop of 1."""
    return Framing(max(2, round(window_secs * sample_rate)), max(1, round(hop_secs * sample_rate)))


def log_spectrogram(audio_BS: tf.Tensor, num_samples_B: tf.Tensor, frames: Framing) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the logarithm of the power at each frequency, by short-time Fourier transforms with a Hann window.

    The values of each sound are shifted and scaled to mean 0 and variance 1, so that its loudness does not matter.

    Args:
        audio_BS: float32 [B, S] in -1..1, with any values after each sound's end. S is static.
        num_samples_B: int64 [B], number of samples of each sound.
        frames: Window and hop.

    Returns:
        float32 [B, T, F], zeros after each sound's end; int64 [B], number of frames of each sound.
    """
    is_sound_BS = tf.sequence_mask(num_samples_B, audio_BS.shape[1])
    spectrum_BTF = tf.signal.stft(
        tf.where(is_sound_BS, audio_BS, tf.zeros_like(audio_BS)),
        frames.window,
        frames.hop,
        fft_length=frames.window,
        pad_end=True,
    )
    power_BTF = tf.math.real(spectrum_BTF * tf.math.conj(spectrum_BTF))
    num_frames_B = frames.num_frames(num_samples_B)
    log_BTF = tf.math.log(power_BTF + _FLOOR)
    is_sound_BT1 = tf.sequence_mask(num_frames_B, tf.shape(log_BTF)[1], dtype=tf.float32)[..., tf.newaxis]
    mean_B11, variance_B11 = tf.nn.weighted_moments(log_BTF, [1, 2], is_sound_BT1, keep_dims=True)
    return (log_BTF - mean_B11) * tf.math.rsqrt(variance_B11 + _FLOOR) * is_sound_BT1, num_frames_B
