"""Speech: WAV files and a list of their transcripts.

The list is a text file with a header and one line for each sound. Commas or tabs separate the three columns:

    wav_filename,wav_filesize,transcript
    clean/1089-134686-0000.wav,332204,he hoped there would be stew for dinner

A name that does not begin with / is relative to the list's folder. The size, in bytes, is not used. The sounds are PCM
with 16 bits and one channel, all at the same rate.

Source: `official/research/deep_speech/data` of the TensorFlow models; "Multimedia Programming Interface and Data
Specifications 1.0", IBM and Microsoft, 1991, for WAV.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import streamed_sound
from ps_trainer.data.formats.spectrogram import framing, log_spectrogram
from ps_trainer.data.formats.transcript_list import (
    LETTERS,
    SEPARATORS,
    Longest,
    scan,
    scan_sound,
)
from ps_trainer.data.pipeline.data_folder import missing_files
from ps_trainer.data.pipeline.decode_errors import fail, map_named
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile, FileSource
from ps_trainer.data.pipeline.line_source import text_file
from ps_trainer.data.pipeline.prediction_input import SOUND_SUFFIX, ContentDecoder
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_SOUNDS = 2**17
"""Size of the shuffle buffer in sounds; it holds their lines only, not the sounds."""


class Wav(FileSource):
    """Speech: WAV files and lists of transcripts from --data_dir, as log spectrograms and the numbers of characters.

    Batches:

    * "frames" float32 [B, T, F]: log spectrograms with mean 0 and variance 1 in each sound, zeros after its end.
    * "num_frames" int64 [B]: frames of each sound.
    * "ids" int64 [B, L]: the place of each character of the transcript in `alphabet`, from 0; -1 after the last.
    * "num_ids" int64 [B]: characters of each transcript.

    T and L are the largest numbers of frames and characters in all lists; F = window / 2 + 1, with the window in
    samples. A training batch has sounds of similar length, and is only as long as the longest of them.

    Lists have the columns `wav_filename,wav_filesize,transcript`. The constructor reads the lists and the header of
    every sound. Training reads the sounds when it needs them; the error about a broken sound names its line. A sound
    that a program such as ffmpeg wrote to a pipe has no size in its header, and is read to its end.

    Args:
        options: Names of the lists, the alphabet, and the frames of the spectrograms.
        data_dir: Folder of the lists.
        facts: Facts about the lists. With recorded ones the lists may be missing.

    Raises:
        DataError: The folder, a list or a sound is missing. A list is broken, or a character is not in the alphabet. A
            sound has another form or rate, or has fewer frames than its transcript needs.
    """

    max_shuffled = SHUFFLED_SOUNDS
    record_name = "line"
    reads_sounds = True
    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Wav`."""

        train_files: tuple[str, ...] = option(("train.csv",), "names of the lists to train on")
        test_files: tuple[str, ...] = option((), "names of the lists to test on; default: a part of the training lists")
        test_every: int = option(10, "without test_files, every n-th sound is a test example", least=2)
        alphabet: str = option(LETTERS, "characters of the transcripts, in the order of their numbers")
        window_secs: float = option(0.02, "length of a frame in seconds", above=0, most=1)
        hop_secs: float = option(0.01, "seconds from the start of a frame to the start of the next", above=0, most=1)
        group_lengths: bool = option(True, "whether a training batch has sounds of similar length, with little padding")

        def __post_init__(self) -> None:
            if not self.train_files:
                raise OptionError("train_files is empty; name a list, for example train_files=train.csv")
            if (
                not self.alphabet
                or len(set(self.alphabet)) < len(self.alphabet)
                or set(SEPARATORS) & set(self.alphabet)
            ):
                raise OptionError(
                    f"alphabet={self.alphabet!r} must have at least one character, each only once, and no comma or tab"
                )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        names = [*options.train_files, *options.test_files]
        needs = f"dataset wav needs --data_dir=<folder> with {', '.join(names)}"
        folder = self.facts.folder(data_dir, needs)
        missing = [] if self.facts.is_recorded else [name for name in names if not (folder / name).is_file()]
        if missing:
            raise missing_files(folder, names, missing, needs)
        self._options = options
        self._longest = Longest()
        self._sizes: list[list[int]] = []  # samples of each sound, by file
        self.groups_lengths = options.group_lengths
        self.of_any_length = ("frames",) if options.group_lengths else ()  # as the model has trained on any length
        self.num_classes = len(options.alphabet)
        self.transcript_vocabulary = RecordedWords("char", tuple(options.alphabet))
        train, test = (
            [self._own_list(folder / name) for name in names] for names in (options.train_files, options.test_files)
        )
        super().__init__(train, test, test_every=options.test_every)

    def _own_list(self, path: pathlib.Path) -> CountedFile:
        """Returns a list of the dataset, which may be gone if its facts are recorded."""

        def look() -> list[Any]:
            file = self._count_file(path)
            return [str(file.path), file.num_records, *self._longest]

        options = self._options
        settings = [str(path), options.alphabet, options.window_secs, options.hop_secs]
        found = self.facts.remember(f"list {path.name}", settings, look, is_there=path.is_file())
        resolved, num_records, *longest = found
        self._longest = Longest(*longest)
        return CountedFile(pathlib.Path(resolved), num_records, 1)

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        """Checks a list and its sounds, and keeps the largest lengths."""
        file = text_file(path, num_header_lines=1)
        if file.is_packed:
            raise DataError(f"{path}: a list must not be compressed; unpack it")
        self._longest, sizes = scan(path, self._options, self._longest)
        self._sizes = [*self._sizes, sizes]
        return file

    def _to_predict(self, path: pathlib.Path) -> Wav:
        """Returns a copy that reads another list, or a WAV file of any length, which has no transcript."""
        other = super()._to_predict(path)
        if path.suffix.lower() != SOUND_SUFFIX:
            return other
        num_samples, rate = scan_sound(path)
        if rate != (self._longest.sample_rate or rate):
            raise DataError(
                f"{path} has {rate} samples per second, but the training sounds have {self._longest.sample_rate};"
                f" convert it, for example with `sox in.wav -r {self._longest.sample_rate} out.wav`"
            )
        other._longest = Longest(max(num_samples, self._longest.num_samples), self._longest.num_ids, rate)
        return other

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        if path.suffix.lower() != SOUND_SUFFIX:
            return super()._read_file(path)
        if set(SEPARATORS) & set(str(path.resolve())):
            raise DataError(f"{path.resolve()}: a name with a comma or a tab cannot be in a list; rename it")
        self._files.append(("other", CountedFile(path.resolve(), 1)))
        zero = tf.constant(0, tf.int64)
        line = {"line": f"{path.resolve()},0,", "file": zero + len(self._files) - 1, "at": zero}
        return tf.data.Dataset.from_tensors(line)

    def content_decoder(self, path: pathlib.Path) -> ContentDecoder | None:
        """Checks a WAV file, and returns how to decode its content; None for a list."""
        if path.suffix.lower() != SOUND_SUFFIX:
            return super().content_decoder(path)
        other = self._to_predict(path)
        return ContentDecoder(other._longest, other._decode_content, ": cannot be decoded as a sound")

    def _decode_content(self, content: tf.Tensor) -> dict[str, tf.Tensor]:
        record = self._record(streamed_sound.decode(content), tf.zeros([0], tf.int64))
        return self._decode({name: value[tf.newaxis] for name, value in record.items()})

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TextLineDataset(path, compression_type=compression).map(lambda line: {"line": line})

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        def name_it(record: dict[str, tf.Tensor]) -> tf.Operation:
            name, _ = self._columns(record)
            return fail(self._place(record["file"], record["at"]), ": ", name, " cannot be decoded as a sound")

        return map_named(records, self._read_line, name_it)

    def _record_lengths(self, records: dict[str, tf.Tensor]) -> tf.Tensor:
        firsts = list(itertools.accumulate(map(len, self._sizes), initial=0))
        sizes = tf.constant(np.concatenate(self._sizes), tf.int64)
        return tf.gather(sizes, tf.gather(tf.constant(firsts, tf.int64), records["file"]) + records["at"])

    def _cut_padding(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        frames, ids = (tf.reduce_max(batch[name]) for name in ("num_frames", "num_ids"))
        return batch | {"frames": batch["frames"][:, :frames], "ids": batch["ids"][:, :ids]}

    def _columns(self, record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the name of the sound's file and the transcript, both string []."""
        columns = tf.strings.split([tf.strings.regex_replace(record["line"], "\t", ",")], ",").values
        folder = tf.gather([str(file.path.parent) for _, file in self._files], record["file"])
        is_absolute = tf.strings.regex_full_match(columns[0], "/.*")
        return tf.where(is_absolute, columns[0], tf.strings.join([folder, "/", columns[0]])), columns[2]

    def _read_line(self, record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Reads the sound of a line and converts the characters of its transcript to numbers."""
        name, transcript = self._columns(record)
        characters_L = tf.strings.unicode_decode(transcript, "UTF-8")
        alphabet_N = tf.constant([ord(character) for character in self._options.alphabet])
        ids_L = tf.argmax(tf.equal(characters_L[:, tf.newaxis], alphabet_N), axis=1)
        return self._record(streamed_sound.decode(tf.io.read_file(name)), ids_L)

    def _record(self, audio_S: tf.Tensor, ids_L: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "audio": _pad(audio_S, self._longest.num_samples, 0.0),
            "num_samples": tf.size(audio_S, out_type=tf.int64),
            "ids": _pad(ids_L, self._longest.num_ids, -1),
            "num_ids": tf.size(ids_L, out_type=tf.int64),
        }

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if self._longest.sample_rate is None:
            raise DataError("the lists name no sound; give at least one")
        frames = framing(self._longest.sample_rate, self._options.window_secs, self._options.hop_secs)
        frames_BTF, num_frames_B = log_spectrogram(batch["audio"], batch["num_samples"], frames)
        return {"frames": frames_BTF, "num_frames": num_frames_B, "ids": batch["ids"], "num_ids": batch["num_ids"]}


def _pad(values: tf.Tensor, length: int, filling: float) -> tf.Tensor:
    """Pads a vector to `length`; the op fails if the vector is longer."""
    padded = tf.pad(values, [[0, length - tf.shape(values)[0]]], constant_values=tf.cast(filling, values.dtype))
    return tf.ensure_shape(padded, [length])
