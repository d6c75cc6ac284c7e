"""Synthetic pictures of printed characters, with random place, size and colour, on a noisy background."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps_trainer.data.generators import font as font_lib
from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.errors import OptionError
from ps_trainer.options import option

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
"""Built-in font: seven rows of five pixels for each digit; the leftmost pixel is the highest bit."""

ROWS, COLUMNS = 7, 5
DIGITS = "0123456789"

BACKGROUND, INK = (0, 80), (176, 256)
"""Ranges, without their ends, of each channel's value in the background and in the character."""


class Glyphs(ArraySource):
    """Synthetic pictures of the printed digits 0 to 9 at random places; any number of examples.

    Batches: "image" float32 [B, size, size, channels] in 0..1; "label" int64 [B], 0..9. A convolutional network can
    learn them, a linear model cannot. Each picture shows one digit of a font of 5x7 pixels at a random place. Height
    and width are each multiplied by a random factor (1 to `size // 7`). The digit has a light colour (each channel 176
    to 255) on a dark background (0 to 79). Every value has normal noise with the standard deviation `noise`.

    With `font`, pictures show `characters` of that font instead, with a height of `size // 2` to `size` pixels. The
    label is the place of the character in that option. Then every worker must have the same font and the same version
    of Pillow.

    Args:
        options: Sizes, noise, characters and seed.
        data_dir: Not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Glyphs`."""

        size: int = option(16, "height and width in pixels", least=8)
        channels: int = option(3, "values per pixel", least=1)
        num_train: int = option(4096, "number of training examples", least=1)
        num_test: int = option(1024, "number of test examples", least=1)
        noise: float = option(20.0, "standard deviation of the noise on a pixel in 0..255", least=0, most=255)
        font: str = option("", "file or name of a font, which needs Pillow; empty: built-in digits of 5x7 pixels")
        characters: str = option(DIGITS, "characters to draw, one class each; without font only digits")
        seed: int = option(0, "seed of the pictures", least=0, below=2**32)

        def __post_init__(self) -> None:
            if len(self.characters) < 2 or len(set(self.characters)) < len(self.characters):
                raise OptionError(f"characters={self.characters!r} must have at least two characters, each only once")
            if not self.font and not set(self.characters) <= set(DIGITS):
                raise OptionError(
                    f"characters={self.characters!r}: the built-in font has only digits; give font as well"
                )
            check_bytes(
                max(self.num_train, self.num_test) * (self.size * self.size * self.channels + 8),
                "num_train, num_test, size or channels",
            )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
        random = np.random.RandomState(options.seed)
        path = font_lib.find(options.font) if options.font else None
        arrays = [_draw_all(options, path, count, random) for count in (options.num_train, options.num_test)]
        super().__init__(*arrays, num_classes=len(options.characters))
        self.class_names = tuple(options.characters)


def bitmap(digit: int) -> np.ndarray:
    """Returns the pixels of a digit of the built-in font, bool [7, 5]."""
    return (np.array(FONT[digit])[:, np.newaxis] >> np.arange(COLUMNS)[::-1] & 1).astype(bool)


def _draw_all(
    options: Glyphs.Options, path: str | None, count: int, random: np.random.RandomState
) -> dict[str, np.ndarray]:
    labels = random.randint(0, len(options.characters), count)
    images = np.stack([_draw(options.characters[label], options, path, random) for label in labels])
    return {"image": images, "label": labels.astype(np.int64)}


def _draw(character: str, options: Glyphs.Options, path: str | None, random: np.random.RandomState) -> np.ndarray:
    """Draws a picture, uint8 [size, size, channels]."""
    covered = np.zeros((options.size, options.size, 1))
    if path is None:
        drawn = np.kron(bitmap(int(character)), np.ones(random.randint(1, options.size // ROWS + 1, 2)))
    else:
        drawn = _fitting(path, character, random.randint(options.size // 2, options.size + 1), options.size)
    top, left = (random.randint(0, options.size - side + 1) for side in drawn.shape)
    covered[top : top + drawn.shape[0], left : left + drawn.shape[1], 0] = drawn
    background, ink = (random.randint(*values, options.channels) for values in (BACKGROUND, INK))
    image = (
        background
        + covered * (ink - background)
        + options.noise * random.normal(size=(options.size, options.size, options.channels))
    )
    # A cast of a value beyond 0..255 would wrap around: noise would turn white into black.
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _fitting(path: str, character: str, height: int, size: int) -> np.ndarray:
    """Draws a character with this height, or with the largest smaller height at which it fits into the picture."""
    drawn = font_lib.render(path, character, height)
    while max(drawn.shape) > size:
        height -= 1
        drawn = font_lib.render(path, character, height)
    return drawn
