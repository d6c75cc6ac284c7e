"""Draws characters of TrueType and OpenType fonts; needs Pillow, and matplotlib to find a font by its name."""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from ps_trainer.errors import OptionError


def find(font: str) -> str:
    """Finds the file of a font.

    Args:
        font: Path of a file, or name of a font that is installed or part of matplotlib, such as "DejaVu Sans".

    Raises:
        OptionError: The font does not exist, or the library to find it or to draw it is not installed.
    """
    try:
        from PIL import ImageFont
    except ImportError as error:
        raise OptionError(f"font={font}: drawing it needs Pillow: pip install pillow, or leave font out") from error
    path = font if pathlib.Path(font).is_file() else _find_by_name(font)
    try:
        ImageFont.truetype(path, 8)
    except OSError as error:
        raise OptionError(f"font={font}: Pillow cannot read {path}: {error}") from error
    return path


@functools.lru_cache(maxsize=4096)
def render(path: str, character: str, height: int) -> np.ndarray:
    """Draws a character, without margins: the share of each pixel that it covers, float32 [height', width'] in 0..1.

    Args:
        path: Path of the font's file.
        character: Character to draw. A font without it draws its substitute.
        height: Height of the font in pixels; a character takes a part of it.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(path, height)
    left, top, right, bottom = font.getbbox(character)
    image = Image.new("L", (max(1, int(right - left)), max(1, int(bottom - top))))
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
