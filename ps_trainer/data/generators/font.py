"""Characters of TrueType and OpenType fonts as pictures; needs Pillow, and matplotlib to find a font by its name."""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from ps_trainer.errors import OptionError


def find(font: str) -> str:
    """The file of a font.

    Args:
        font: a file, or the name of a font that matplotlib brings along or finds installed, such as "DejaVu Sans".

    Raises:
        OptionError: there is no such font, or no library to look for it or to draw it.
    """
    try:
        from PIL import ImageFont
    except ImportError as error:
        raise OptionError(f"font={font}: drawing it needs Pillow: pip install pillow, or leave font out") from error
    path = font if pathlib.Path(font).is_file() else _find_by_name(font)
    try:
        ImageFont.truetype(path, 8)
    except OSError as error:
        raise OptionError(f"font={font}: {path} is no font that can be drawn: {error}") from error
    return path


@functools.lru_cache(maxsize=4096)
def render(path: str, character: str, height: int) -> np.ndarray:
    """How much of each pixel a character covers, cut out: float32 [height', width'] in 0..1.

    Args:
        path: of the font's file.
        character: which the font has, or what it draws in place of it.
        height: of the font in pixels, of which a character takes a part.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(path, height)
    left, top, right, bottom = font.getbbox(character)
    image = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), character, fill=255, font=font)
    return np.asarray(image, np.float32) / 255


def _find_by_name(font: str) -> str:
    try:
        from matplotlib import font_manager
    except ImportError as error:
        raise OptionError(
            f"font={font}: no such file, and finding a font by its name needs matplotlib: pip install matplotlib, or"
            " give the font's file"
        ) from error
    try:
        return font_manager.findfont(font, fallback_to_default=False)
    except ValueError as error:
        names = sorted({entry.name for entry in font_manager.fontManager.ttflist})
        raise OptionError(f"font={font}: no such file or font; fonts: {', '.join(names)}") from error
