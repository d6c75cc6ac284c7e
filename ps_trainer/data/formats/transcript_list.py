"""Lists of WAV files with their transcripts: checked line by line, sound by sound, and written."""

from __future__ import annotations

import itertools
import pathlib
import wave
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ps_trainer.data.formats.spectrogram import framing
from ps_trainer.data.formats.streamed_sound import is_streamed
from ps_trainer.errors import DataError

if TYPE_CHECKING:
    from ps_trainer.data.formats.wav import Wav

COLUMNS = ("wav_filename", "wav_filesize", "transcript")
SEPARATORS = (",", "\t")
HEADERS = tuple(separator.join(COLUMNS) for separator in SEPARATORS)

SAMPLE_BYTES = 2
LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
"""The default alphabet."""
_CONVERT = "convert it, for example with `sox in.wav -c 1 -b 16 -e signed out.wav`"


class Longest(NamedTuple):
    """The largest lengths so far, and the rate that all sounds have; None before the first sound."""

    num_samples: int = 0
    num_ids: int = 0
    sample_rate: int | None = None


def alphabet_of(paths: Sequence[pathlib.Path]) -> str:
    """Collects the characters of the transcripts in lists, sorted by code point; "" if the default alphabet has all."""
    found: set[str] = set()
    for path in paths:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
            found.update(line.replace("\t", ",").rpartition(",")[2])
    return "" if found <= set(LETTERS) else "".join(sorted(found))


def write(
    folder: pathlib.Path, name: str, sounds: Sequence[np.ndarray], transcripts: Sequence[str], rate: int
) -> list[pathlib.Path]:
    """Writes sounds as `<folder>/<name>/00000.wav`, …, and their list as `<folder>/<name>.csv`.

    Args:
        folder: Existing folder to write into.
        name: Name of the list and of the folder of its sounds.
        sounds: Sounds, each int16 [samples].
        transcripts: Transcript of each sound, without commas and tabs.
        rate: Number of samples per second.

    Returns:
        The paths of all files, the list last.
    """
    (folder / name).mkdir()
    paths, lines = [], [",".join(COLUMNS)]
    for number, (sound, transcript) in enumerate(zip(sounds, transcripts, strict=True)):
        paths.append(folder / name / f"{number:05d}.wav")
        with wave.open(str(paths[-1]), "wb") as file:
            file.setparams((1, SAMPLE_BYTES, rate, len(sound), "NONE", "not compressed"))
            file.writeframes(sound.astype("<i2").tobytes())
        lines.append(f"{name}/{paths[-1].name},{paths[-1].stat().st_size},{transcript}")
    paths.append(folder / f"{name}.csv")
    paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def scan(path: pathlib.Path, options: Wav.Options, longest: Longest) -> tuple[Longest, list[int]]:
    """Checks every line of a list and the header of every sound.

    Args:
        path: List to check.
        options: Alphabet and frames of the sounds.
        longest: Lengths of the lists before this one.

    Returns:
        The largest lengths so far, and the number of samples of each sound.

    Raises:
        DataError: A line or a sound is wrong; the message names the line.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            # Not `splitlines`: it also cuts at characters such as U+2028, where TensorFlow's reader does not.
            header, *lines = file.read().rstrip("\r\n").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start}: not UTF-8; convert the file") from error
    if header.strip() not in HEADERS:
        raise DataError(f"{path}: line 1 must be {','.join(COLUMNS)}, with commas or tabs; is it the right file?")
    sizes = []
    for number, line in enumerate(lines, 2):
        try:
            entry = _scan_line(line.removesuffix("\r"), path.resolve().parent, options, longest.sample_rate)
        except DataError as error:
            raise DataError(f"{path}: line {number}: {error}") from error
        sizes.append(entry.num_samples)
        num_samples, num_ids = max(longest.num_samples, entry.num_samples), max(longest.num_ids, entry.num_ids)
        longest = Longest(num_samples, num_ids, entry.sample_rate)
    return longest, sizes


def _scan_line(line: str, folder: pathlib.Path, options: Wav.Options, wanted_rate: int | None) -> Longest:
    """Checks a line; returns its lengths."""
    columns = line.replace("\t", ",").split(",")
    if len(columns) != len(COLUMNS):
        wanted = f"{len(COLUMNS)} ({', '.join(COLUMNS)})"
        raise DataError(f"the line has {len(columns)} columns; it must have {wanted}: {line[:80]}")
    name, _, transcript = columns
    strange = sorted(set(transcript) - set(options.alphabet))
    if strange or not transcript:
        problem = f"has {''.join(strange)!r}, which alphabet does not have" if strange else "is empty"
        raise DataError(f"the transcript {problem}: {transcript[:80]!r}")
    num_samples, rate = scan_sound(folder / name)
    if rate != (wanted_rate or rate):
        raise DataError(f"{name} has {rate} samples per second, but the sounds before it {wanted_rate}; convert it")
    num_frames = framing(rate, options.window_secs, options.hop_secs).num_frames(num_samples)
    # The CTC loss puts a blank between two equal characters, which takes a frame more.
    needed = len(transcript) + sum(one == other for one, other in itertools.pairwise(transcript))
    if num_frames < needed:
        raise DataError(
            f"{name} has {num_frames} frames, but its transcript of {len(transcript)} characters needs"
            f" {needed}; lower hop_secs={options.hop_secs}, or remove the line"
        )
    return Longest(num_samples, len(transcript), rate)


def scan_sound(path: pathlib.Path) -> tuple[int, int]:
    """Reads the header of a sound and returns the number of samples and the samples per second.

    Raises:
        DataError: The sound cannot be read or has the wrong form. The message does not name the line of the list.
    """
    try:
        with path.open("rb") as content, wave.open(content) as file:
            form = file.getparams()
            num_bytes = path.stat().st_size - content.tell()  # the header has been read
            content.seek(0)
            start = content.read(8)
    except EOFError as error:
        raise DataError(f"{path}: it ends within the header of a WAV file; download it again") from error
    except wave.Error as error:
        raise DataError(f"{path}: not a PCM WAV file ({error}); {_CONVERT}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if (form.nchannels, form.sampwidth) != (1, SAMPLE_BYTES):
        raise DataError(
            f"{path} has {form.nchannels} channels of {8 * form.sampwidth} bits; it must have 1 of 16; {_CONVERT}"
        )
    if not form.framerate:
        raise DataError(f"{path}: the header tells 0 samples per second; write the file again with its true rate")
    told_bytes = SAMPLE_BYTES * form.nframes
    num_samples = num_bytes // SAMPLE_BYTES if is_streamed(start, told_bytes) else form.nframes
    if not num_samples or num_bytes < SAMPLE_BYTES * num_samples:
        raise DataError(
            f"{path}: the header tells {form.nframes} samples, but {num_bytes} bytes follow; the file is truncated or"
            " empty: download it again"
        )
    return num_samples, form.framerate
