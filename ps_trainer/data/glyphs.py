"""Pictures of printed digits, made up: somewhere in the picture, of some size and colour, on a noisy ground."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps_trainer.data.base import MAX_ARRAY_BYTES, ArraySource
from ps_trainer.errors import OptionError
from ps_trainer.options import option

# Seven rows of five pixels for each digit, the leftmost pixel the highest bit.
FONT = (
    (0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E),
    (0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E),
    (0x0E, 0x11, 0x01, 0x06, 0x08, 0x10, 0x1F),
    (0x1E, 0x01, 0x01, 0x0E, 0x01, 0x01, 0x1E),
    (0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02),
    (0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E),
    (0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E),
    (0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08),
    (0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E),
    (0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C),
)
ROWS, COLUMNS = 7, 5
GROUND, INK = (0, 80), (176, 256)  # from which values each channel's colour is drawn, of 255
_AT_LEAST = {"size": 8, "channels": 1, "num_train": 1, "num_test": 1}


class Glyphs(ArraySource):
    """Made-up pictures of the printed digits 0 to 9, somewhere in the picture; as many as you like.

    Batches: "image" float32 [B, size, size, channels] in 0..1; "label" int64 [B], 0..9. Convolutions learn them, a
    linear model does not. Each picture shows one digit of a font of 5x7 pixels, magnified in height and in width by
    factors of its own (1 to `size // 7`), anywhere in the picture, in a light colour (each channel 176 to 255) on a
    dark ground (0 to 79), with normal noise of deviation `noise` on every value.

    Args:
        options: sizes, noise and seed.
        data_dir: not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Glyphs`; OptionError where one is out of range."""

        size: int = option(16, "pixels, in height and width, at least 8")
        channels: int = option(3, "values per pixel")
        num_train: int = option(4096, "training examples")
        num_test: int = option(1024, "test examples")
        noise: float = option(20.0, "standard deviation of the noise on a pixel in 0..255")
        seed: int = option(0, "of the pictures, at least 0")

        def __post_init__(self):
            for name, least in _AT_LEAST.items():
                if getattr(self, name) < least:
                    raise OptionError(f"{name}={getattr(self, name)} is too small; the least is {least}")
            if not 0 <= self.noise <= 255:
                raise OptionError(f"noise={self.noise} must be in 0..255")
            if not 0 <= self.seed < 2**32:
                raise OptionError(f"seed={self.seed} must be in 0 .. 2**32 - 1")
            num_bytes = max(self.num_train, self.num_test) * (self.size * self.size * self.channels + 8)
            if num_bytes > MAX_ARRAY_BYTES:
                raise OptionError(
                    f"images and labels take {num_bytes} bytes, the most is {MAX_ARRAY_BYTES};"
                    " lower num_train, num_test, size or channels"
                )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        # RandomState, because its sequence is frozen for all versions of NumPy; that of default_rng is not.
        random = np.random.RandomState(options.seed)
        arrays = [_draw_all(options, count, random) for count in (options.num_train, options.num_test)]
        super().__init__(*arrays, num_classes=len(FONT))


def bitmap(digit: int) -> np.ndarray:
    """bool [7, 5]: which pixels of the font's digit are set."""
    return (np.array(FONT[digit])[:, np.newaxis] >> np.arange(COLUMNS)[::-1] & 1).astype(bool)


def _draw_all(options: Glyphs.Options, count: int, random: np.random.RandomState) -> dict[str, np.ndarray]:
    labels = random.randint(0, len(FONT), count)
    images = np.stack([_draw(bitmap(label), options, random) for label in labels])
    return {"image": images, "label": labels.astype(np.int64)}


def _draw(glyph: np.ndarray, options: Glyphs.Options, random: np.random.RandomState) -> np.ndarray:
    """uint8 [size, size, channels]."""
    is_set = np.zeros((options.size, options.size), bool)
    drawn = np.kron(glyph, np.ones(random.randint(1, options.size // ROWS + 1, 2), bool))
    top, left = (random.randint(0, options.size - side + 1) for side in drawn.shape)
    is_set[top : top + drawn.shape[0], left : left + drawn.shape[1]] = drawn
    ground, colour = (random.randint(*values, options.channels) for values in (GROUND, INK))
    image = np.where(is_set[..., np.newaxis], colour, ground) + options.noise * random.normal(
        size=(options.size, options.size, options.channels)
    )
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)
