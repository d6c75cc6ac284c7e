"""Sound files with what is said in them: WAV files and a list of transcripts.

The list is a text file with a header and one line for each sound, with commas or tabs between the three columns:

    wav_filename,wav_filesize,transcript
    clean/1089-134686-0000.wav,332204,he hoped there would be stew for dinner

A name that does not begin with / is one in the list's folder. The size, in bytes, is not used. The sounds are PCM of 16
bits, of one channel, all at the same rate.

Source: `official/research/deep_speech/data` of the TensorFlow models; "Multimedia Programming Interface and Data
Specifications 1.0", IBM and Microsoft, 1991, for WAV.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import wave
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.spectrogram import framing, log_spectrogram
from ps_trainer.data.pipeline.counted_files import CountedFile, FileSource
from ps_trainer.data.pipeline.data_source import folder_of
from ps_trainer.data.pipeline.decode_errors import fail, map_named
from ps_trainer.data.pipeline.line_files import text_file
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

COLUMNS = ("wav_filename", "wav_filesize", "transcript")
SEPARATORS = (",", "\t")
HEADERS = tuple(separator.join(COLUMNS) for separator in SEPARATORS)
SHUFFLED_SOUNDS = 2**17
"""Sounds among which the next one is drawn: all of a smaller shard, a sliding window over a larger one."""

SAMPLE_BYTES = 2
_LETTERS = " 'abcdefghijklmnopqrstuvwxyz"


class Wav(FileSource):
    """Speech: WAV files and lists of transcripts from --data_dir, as log spectrograms and the numbers of characters.

    Batches: "frames" float32 [B, T, F], mean 0 and variance 1 in each sound, zeros after its end; "num_frames" int64
    [B]; "ids" int64 [B, L], for each character of the transcript its place in `alphabet`, from 0, -1 after the last;
    "num_ids" int64 [B]. T and L are those of the longest in all lists; F = window / 2 + 1, a window being in samples.

    Lists have the form of `wav_filename,wav_filesize,transcript`: see the module. The constructor reads them, and the
    header of every sound; the sounds are read when they are needed, and a broken one is named with its line.

    Args:
        options: names of the lists, and what is made of the sounds.
        data_dir: folder of the lists.

    Raises:
        DataError: no folder, a missing or broken list, a character that is not in the alphabet, a sound that is missing
            or of another form or rate, or has fewer frames than its transcript needs.
    """

    max_shuffled = SHUFFLED_SOUNDS
    record_name = "line"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Wav`."""

        train_files: tuple[str, ...] = option(("train.csv",), "names of the lists to train on, with commas")
        test_files: tuple[str, ...] = option((), "names of the lists to test on; none: a part of the training lists")
        test_every: int = option(10, "without test_files, of so many sounds one is a test example", least=2)
        alphabet: str = option(_LETTERS, "the characters of transcripts, in the order of their numbers")
        window_secs: float = option(0.02, "seconds of a frame", above=0, most=1)
        hop_secs: float = option(0.01, "seconds from a frame to the next", above=0, most=1)

        def __post_init__(self) -> None:
            if not self.train_files:
                raise OptionError("train_files names no list; name one, such as train_files=train.csv")
            if (
                not self.alphabet
                or len(set(self.alphabet)) < len(self.alphabet)
                or set(SEPARATORS) & set(self.alphabet)
            ):
                raise OptionError(f"alphabet={self.alphabet!r} must have characters, each once, and no comma or tab")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        names = [*options.train_files, *options.test_files]
        needs = f"dataset wav needs --data_dir=<folder> with {', '.join(names)}"
        folder = folder_of(data_dir, needs)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} has no {', '.join(missing)}; {needs}")
        self._options = options
        self._longest = _Longest()
        self.num_classes = len(options.alphabet)
        train, test = (
            [self._counted(folder / name) for name in names] for names in (options.train_files, options.test_files)
        )
        super().__init__(train, test, test_every=options.test_every)

    def _counted(self, path: pathlib.Path) -> CountedFile:
        """Checks a list and its sounds, and keeps the greatest lengths."""
        file = text_file(path, num_header_lines=1)
        if file.is_packed:
            raise DataError(f"{path}: a list is read as it is; unpack it")
        self._longest = _scan(path, self._options, self._longest)
        return file

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TextLineDataset(path, compression_type=compression).map(lambda line: {"line": line})

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        def name_it(record: dict[str, tf.Tensor]) -> tf.Operation:
            name, _ = self._columns(record)
            return fail(self._place(record["file"], record["at"]), ": ", name, " is no sound that can be decoded")

        return map_named(records, self._read_line, name_it)

    def _columns(self, record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Name of the sound's file, and transcript; string [] both."""
        columns = tf.strings.split([tf.strings.regex_replace(record["line"], "\t", ",")], ",").values
        folder = tf.gather([str(file.path.parent) for _, file in self._files], record["file"])
        is_absolute = tf.strings.regex_full_match(columns[0], "/.*")
        return tf.where(is_absolute, columns[0], tf.strings.join([folder, "/", columns[0]])), columns[2]

    def _read_line(self, record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """A line as its sound, and the numbers of its characters."""
        name, transcript = self._columns(record)
        audio, _ = tf.audio.decode_wav(tf.io.read_file(name), desired_channels=1)
        characters_L = tf.strings.unicode_decode(transcript, "UTF-8")
        alphabet_N = tf.constant([ord(character) for character in self._options.alphabet])
        ids_L = tf.argmax(tf.equal(characters_L[:, tf.newaxis], alphabet_N), axis=1)
        return {
            "audio": _filled_up(audio[:, 0], self._longest.num_samples, 0.0),
            "num_samples": tf.shape(audio, out_type=tf.int64)[0],
            "ids": _filled_up(ids_L, self._longest.num_ids, -1),
            "num_ids": tf.size(ids_L, out_type=tf.int64),
        }

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        frames = framing(self._longest.sample_rate, self._options.window_secs, self._options.hop_secs)
        frames_BTF, num_frames_B = log_spectrogram(batch["audio"], batch["num_samples"], frames)
        return {"frames": frames_BTF, "num_frames": num_frames_B, "ids": batch["ids"], "num_ids": batch["num_ids"]}


class _Longest(NamedTuple):
    """The greatest lengths so far, and the rate that all sounds have; None before the first."""

    num_samples: int = 0
    num_ids: int = 0
    sample_rate: int | None = None


def alphabet_of(paths: Sequence[pathlib.Path]) -> str:
    """The characters of the transcripts of lists, in the order of their code points; "" where the default has all."""
    found: set[str] = set()
    for path in paths:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
            found.update(line.replace("\t", ",").rpartition(",")[2])
    return "" if found <= set(_LETTERS) else "".join(sorted(found))


def write(
    folder: pathlib.Path, name: str, sounds: Sequence[np.ndarray], transcripts: Sequence[str], rate: int
) -> list[pathlib.Path]:
    """Writes sounds as `<folder>/<name>/00000.wav`, …, and their list as `<folder>/<name>.csv`.

    Args:
        folder: which is there.
        name: of the set.
        sounds: int16 [samples] each.
        transcripts: of each, without commas and tabs.
        rate: samples per second.

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


def _scan(path: pathlib.Path, options: Wav.Options, longest: _Longest) -> _Longest:
    """Checks every line of a list."""
    with path.open(encoding="utf-8", newline="") as file:
        try:
            header, *lines = file.read().rstrip("\r\n").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start}: not UTF-8: convert it") from error
    if header.strip() not in HEADERS:
        raise DataError(f"{path}: line 1: must be {','.join(COLUMNS)}, with commas or tabs: is it the right file?")
    for number, line in enumerate(lines, 2):
        try:
            longest = _scan_line(line.removesuffix("\r"), path.resolve().parent, options, longest)
        except DataError as error:
            raise DataError(f"{path}: line {number}: {error}") from error
    return longest


def _scan_line(line: str, folder: pathlib.Path, options: Wav.Options, longest: _Longest) -> _Longest:
    columns = line.replace("\t", ",").split(",")
    if len(columns) != len(COLUMNS):
        raise DataError(f"{len(columns)} columns, wanted {len(COLUMNS)}, {', '.join(COLUMNS)}: {line[:80]}")
    name, _, transcript = columns
    strange = sorted(set(transcript) - set(options.alphabet))
    if strange or not transcript:
        problem = f"holds {''.join(strange)!r}, which alphabet has not" if strange else "is empty"
        raise DataError(f"the transcript {problem}: {transcript[:80]!r}")
    num_samples, rate = _scan_sound(folder / name)
    if rate != (longest.sample_rate or rate):
        raise DataError(f"{name}: {rate} samples per second, those before {longest.sample_rate}; convert it")
    num_frames = framing(rate, options.window_secs, options.hop_secs).num_frames(num_samples)
    # A blank must stand between two equal characters.
    needed = len(transcript) + sum(one == other for one, other in itertools.pairwise(transcript))
    if num_frames < needed:
        raise DataError(
            f"{name}: {num_frames} frames cannot tell a transcript of {len(transcript)} characters, which needs"
            f" {needed}; lower hop_secs={options.hop_secs}, or remove the line"
        )
    return _Longest(max(longest.num_samples, num_samples), max(longest.num_ids, len(transcript)), rate)


def _scan_sound(path: pathlib.Path) -> tuple[int, int]:
    """Number of samples, and samples per second; the error does not name the line."""
    try:
        with wave.open(str(path), "rb") as file:
            form = file.getparams()
        num_bytes = path.stat().st_size
    except (wave.Error, EOFError) as error:
        raise DataError(f"{path}: is no WAV file of PCM ({error or 'it ends too early'})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if (form.nchannels, form.sampwidth) != (1, SAMPLE_BYTES):
        raise DataError(
            f"{path}: {form.nchannels} channels of {8 * form.sampwidth} bits; wanted 1 of 16: convert it, such as by"
            " `sox in.wav -c 1 -b 16 out.wav`"
        )
    if not form.nframes or num_bytes < SAMPLE_BYTES * form.nframes:
        raise DataError(
            f"{path}: {form.nframes} samples in {num_bytes} bytes; it is truncated or empty: fetch it again"
        )
    return form.nframes, form.framerate


def _filled_up(values: tf.Tensor, length: int, filling: float) -> tf.Tensor:
    """[n] as [length]; where n is more, the op fails."""
    padded = tf.pad(values, [[0, length - tf.shape(values)[0]]], constant_values=tf.cast(filling, values.dtype))
    return tf.ensure_shape(padded, [length])
