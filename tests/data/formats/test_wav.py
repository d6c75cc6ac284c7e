"""WAV files with a list of transcripts: framed, padded and numbered; errors name broken lists and sounds."""

from __future__ import annotations

import wave

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.data.formats.transcript_list import write
from ps_trainer.data.formats.wav import Wav
from ps_trainer.data.generators import generate
from ps_trainer.data.generators.telephone_tones import COLUMNS, KEYS, ROWS, Tones
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError, OptionError
from tests.data.reading import read_batches, read_leased, read_shards
from tests.data.sharding import NUM_WORKERS

RATE, WINDOW, HOP = 1000, 20, 10


def noise(length, seed=0):
    return np.random.RandomState(seed).randint(-(2**15), 2**15, length).astype(np.int16)


def write_set(folder, transcripts, lengths=None, name="train"):
    sounds = [noise(length, seed) for seed, length in enumerate(lengths or [200] * len(transcripts))]
    write(folder, name, sounds, transcripts, RATE)
    return sounds


def create(folder, **options):
    return Wav(Wav.Options(**{"test_every": 1000, **options}), data_dir=str(folder))


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


def transcripts_of(ids, alphabet=" 'abcdefghijklmnopqrstuvwxyz"):
    return ["".join(alphabet[i] for i in row if i >= 0) for row in ids]


def edit(folder, line, change, name="train.csv"):
    lines = (folder / name).read_text().split("\n")
    lines[line - 1] = change(lines[line - 1])
    (folder / name).write_text("\n".join(lines))


def test_frames_are_normalised_log_power_of_windows(tmp_path):
    """The definition in NumPy: Hann window, Fourier transform, logarithm, mean 0 and variance 1."""
    write_set(tmp_path, ["a"])
    sounds = write_set(tmp_path, ["ab", "it's"], [95, 60], name="test")
    batch = all_of_test(create(tmp_path, test_files=("test.csv",)))
    assert batch["frames"].shape == (2, 200 // HOP, WINDOW // 2 + 1)
    np.testing.assert_array_equal(batch["num_frames"], [10, 6])
    for sound, frames, num_frames in zip(sounds, batch["frames"], batch["num_frames"], strict=True):
        padded = np.concatenate([sound / 2**15, np.zeros(WINDOW)])
        cut = np.stack([padded[at * HOP :][:WINDOW] for at in range(num_frames)])
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
        log = np.log(np.abs(np.fft.rfft(cut * hann)) ** 2 + 1e-6)
        np.testing.assert_allclose(frames[:num_frames], (log - log.mean()) / log.std(), atol=1e-3)
        np.testing.assert_array_equal(frames[num_frames:], 0)
    np.testing.assert_array_equal(batch["num_ids"], [2, 4])
    np.testing.assert_array_equal(batch["ids"], [[2, 3, -1, -1], [10, 21, 1, 20]])


@pytest.mark.parametrize(("separator", "end"), [("\t", "\n"), (",", "\r\n")])
def test_lists_may_have_tabs_other_line_ends_and_absolute_names(tmp_path, separator, end):
    (tmp_path / "sounds").mkdir()
    write_set(tmp_path / "sounds", ["one", "two", "three"])
    text = (tmp_path / "sounds" / "train.csv").read_text()
    text = text.replace("train/", f"{tmp_path}/sounds/train/").replace(",", separator).replace("\n", end)
    (tmp_path / "list.csv").write_text(text, newline="")
    source = create(tmp_path, train_files=("list.csv",), test_every=2)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (1, 2, 28)
    assert transcripts_of(all_of_test(source)["ids"]) == ["one", "three"]


def test_shards_cover_the_sounds_of_all_lists_once(tmp_path):
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    write_set(tmp_path, words[:6], name="one")
    write_set(tmp_path, words[6:], name="two")
    write_set(tmp_path, ["z"], name="test")
    source = create(tmp_path, train_files=("one.csv", "two.csv"), test_files=("test.csv",))
    for num_workers in NUM_WORKERS:
        assert sorted(transcripts_of(read_shards(source, num_workers)["ids"])) == words
    assert sorted(transcripts_of(read_leased(source, "ids"))) == words


@pytest.mark.parametrize("seed", range(1))
def test_random_transcripts_of_any_alphabet_are_read_back(tmp_path, seed):
    random = np.random.RandomState(seed)
    alphabet = "".join(random.permutation(list("abc 'äß零一二😀")))
    transcripts = ["".join(random.choice(list(alphabet), random.randint(1, 6))) for _ in range(6)]
    write_set(tmp_path, transcripts, list(random.randint(2 * 6 * HOP, 300, 6)))
    source = create(tmp_path, alphabet=alphabet, test_every=2)
    assert transcripts_of(all_of_test(source)["ids"], alphabet) == transcripts[::2]


def test_a_training_batch_has_sounds_of_similar_length(tmp_path):
    lengths = [300, 80, 290, 90, 100, 280, 70, 310]
    write_set(tmp_path, ["ab" * (length // 100 + 1) for length in lengths], lengths)
    write_set(tmp_path, ["a"], [400], name="test")
    source = create(tmp_path, test_files=("test.csv",), alphabet="ab")
    shard = Shard(0, 1)
    batches = read_batches(lambda: source.train(shard=shard, batch_size=4, seed=0, num_epochs=1))
    frames = sorted((batch["frames"].shape[1], *sorted(batch["num_frames"])) for batch in batches)
    assert frames == [(10, 7, 8, 9, 10), (31, 28, 29, 30, 31)]
    assert sorted(batch["ids"].shape[1] for batch in batches) == [4, 8]
    (whole,) = read_batches(lambda: source.in_order("train", batch_size=8))
    for batch in batches:
        width = batch["frames"].shape[1]
        for one, count in zip(batch["frames"], batch["num_frames"], strict=True):
            (at,) = np.flatnonzero(whole["num_frames"] == count)
            np.testing.assert_allclose(one, whole["frames"][at, :width], atol=1e-5)


def test_another_list_is_read_from_its_own_folder(tmp_path):
    """Its own longest sound and transcript decide the padding, if they are longer than those of the training list."""
    write_set(tmp_path, ["a", "b"], [80, 80])
    (tmp_path / "other").mkdir()
    write_set(tmp_path / "other", ["abc", "ca", "b"], [300, 90, 40], name="mine")
    source = create(tmp_path, alphabet="abc")
    (batch,) = read_batches(lambda: source.read(tmp_path / "other" / "mine.csv", 3))
    assert transcripts_of(batch["ids"], "abc") == ["abc", "ca", "b"]
    assert list(batch["num_frames"]) == [30, 9, 4]
    assert batch["frames"].shape == (3, 30, WINDOW // 2 + 1)
    edit(tmp_path / "other", 3, lambda line: line.replace("ca", "cd"), name="mine.csv")
    with pytest.raises(DataError, match="mine.csv: line 3: the transcript has 'd', which alphabet does not have"):
        source.read(tmp_path / "other" / "mine.csv", 3)


def test_generated_tones_are_read_like_the_built_in_set(tmp_path):
    counts = ("num_train=3", "num_test=5")
    files = generate.generate("tones", counts, tmp_path / "set")
    assert sorted(files) == sorted(path for path in (tmp_path / "set").rglob("*") if path.is_file())
    options = ("test_files=test.csv", "alphabet=0123456789", "window_secs=0.032", "hop_secs=0.016")
    read = all_of_test(component_tables.DATASETS.create("wav", options, data_dir=str(tmp_path / "set")))
    made = all_of_test(component_tables.DATASETS.create("tones", counts, data_dir=None))
    for key, values in made.items():
        found, values = (array[:, : min(read[key].shape[1], values.shape[1])] if array.ndim > 1 else array
                         for array in (read[key], values))  # fmt: skip
        np.testing.assert_allclose(found, values, atol=1e-4)


def test_a_digit_is_the_two_tones_of_its_key():
    source = Tones(Tones.Options(num_train=1, num_test=40, min_digits=1, max_digits=1, noise=0.02))
    arrays = source.arrays["test"]
    for audio, length, (digit,) in zip(arrays["audio"], arrays["num_samples"], arrays["ids"], strict=True):
        power = np.abs(np.fft.rfft(audio[:length])) ** 2
        hertz = np.fft.rfftfreq(length, 1 / 4000)
        low = hertz[np.argmax(np.where(hertz < 1075, power, 0))]
        high = hertz[np.argmax(np.where(hertz > 1075, power, 0))]
        row = np.argmin(np.abs(np.array(ROWS) - low))
        column = np.argmin(np.abs(np.array(COLUMNS) - high))
        assert KEYS[row * 3 + column] == str(digit)


def change_header(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def with_format(content, number):
    """The content of a WAV file, in whose header another number stands for the format; 3: floats."""
    return content[:20] + number.to_bytes(2, "little") + content[22:]


def with_numbers(content, channels, rate):
    """The content of a WAV file whose header has other numbers of channels and of samples per second."""
    return content[:22] + channels.to_bytes(2, "little") + rate.to_bytes(4, "little") + content[28:]


def test_a_broken_list_is_named_with_the_line(tmp_path):
    write_set(tmp_path, ["one", "two"])
    original = (tmp_path / "train.csv").read_text()
    for change, message in (
        (
            lambda line: line + ",more",
            r"line 3: the line has 4 columns; it must have 3 \(wav_filename, wav_filesize, transcript\): train/00001",
        ),
        (
            lambda line: line.replace("two", "Two!"),
            "line 3: the transcript has '!T', which alphabet does not have: 'Two!'",
        ),
        (lambda line: line.replace("two", ""), "line 3: the transcript is empty"),
        (lambda line: line.replace("00001", "7"), "line 3: .*train/7.wav: cannot be read: No such file"),
        (
            lambda line: line.replace("two", "t" * 11),
            "train/00001.wav has 20 frames, but .* 11 .* needs 21; lower hop",
        ),
    ):
        edit(tmp_path, 3, change)
        with pytest.raises(DataError, match=f"train.csv: {message}" if message.startswith("line") else message):
            create(tmp_path)
        (tmp_path / "train.csv").write_text(original)
    edit(tmp_path, 1, lambda line: "a,b,c")
    with pytest.raises(DataError, match="line 1 must be wav_filename,wav_filesize,transcript"):
        create(tmp_path)
    with pytest.raises(DataError, match="has no other.csv but train.csv; .*train_files=train.csv; dataset wav needs"):
        create(tmp_path, train_files=("other.csv",))


def test_a_sound_of_another_form_is_named(tmp_path):
    write_set(tmp_path, ["one", "two"])
    file = tmp_path / "train" / "00001.wav"
    original = file.read_bytes()
    for data, message in (
        (original[:100], "the header tells 200 samples, but 56 bytes follow; the file is truncated or empty"),
        (original[:-1], "the header tells 200 samples, but 399 bytes follow; the file is truncated or empty"),
        (original[:40] + bytes(4), "the header tells 0 samples, but 0 bytes follow; the file is truncated or empty"),
        (with_numbers(original, 0, RATE), "not a PCM WAV file .bad # of channels.; convert it"),
        (
            with_numbers(original, 1, 0),
            "the header tells 0 samples per second; write the file again with its true rate",
        ),
        (b"ID3" + original, "not a PCM WAV file .*; convert it, for example with `sox"),
        (with_format(original, 3), "not a PCM WAV file .unknown format: 3.; convert it, for example with `sox"),
        (original[:30], "it ends within the header of a WAV file; download it again"),
        (b"", "it ends within the header of a WAV file; download it again"),
    ):
        file.write_bytes(data)
        with pytest.raises(DataError, match=f"train.csv: line 3: {file}: {message}"):
            create(tmp_path)
    for channels, width, rate, message in (
        (2, 2, RATE, "2 channels of 16 bits; it must have 1 of 16"),
        (1, 1, RATE, "1 channels of 8 bits"),
        (1, 2, 2 * RATE, "2000 samples per second, but the sounds before it 1000"),
    ):
        with wave.open(str(file), "wb") as sound:
            sound.setparams((channels, width, rate, 0, "NONE", ""))
            sound.writeframes(bytes(2000))
        with pytest.raises(DataError, match=message):
            create(tmp_path)


def as_streamed(content, file_size, num_bytes):
    """The content of a WAV file with other sizes, and with the name of a program before the samples, as ffmpeg does."""
    sizes = [size.to_bytes(4, "little") for size in (file_size, num_bytes)]
    name = b"Lavf of data 61"
    program = b"LIST" + (27).to_bytes(4, "little") + b"INFOISFT" + len(name).to_bytes(4, "little") + name + b"\0"
    return content[:4] + sizes[0] + content[8:36] + program + b"data" + sizes[1] + content[44:]


@pytest.mark.parametrize(("file_size", "num_bytes"), [(2**32 - 1, 2**32 - 1), (0x7FFFF024, 0x7FFFF000)])
def test_a_sound_from_a_pipe_is_read_to_its_end(tmp_path, file_size, num_bytes):
    write_set(tmp_path, ["one", "two", "three"], [200, 190, 180])
    whole = all_of_test(create(tmp_path, test_every=2))
    for file in (tmp_path / "train").glob("*.wav"):
        original = file.read_bytes()
        file.write_bytes(as_streamed(original, file_size, num_bytes) + b"\0")  # half a sample at the end does not count
    source = create(tmp_path, test_every=2)
    streamed = all_of_test(source)
    for name, values in whole.items():
        np.testing.assert_array_equal(streamed[name], values)
    (batch,) = read_batches(lambda: source.read(file, 1))
    assert list(batch["num_frames"]) == [len(original[44:]) // 2 // HOP]


def test_a_sound_from_a_pipe_with_a_true_size_ends_there(tmp_path):
    write_set(tmp_path, ["one", "two"])
    whole = all_of_test(create(tmp_path, test_every=2))
    file = tmp_path / "train" / "00000.wav"
    original = file.read_bytes()
    file.write_bytes(as_streamed(original, 2**32 - 1, 400) + b"tail")
    np.testing.assert_array_equal(all_of_test(create(tmp_path, test_every=2))["frames"], whole["frames"])
    file.write_bytes(as_streamed(original, 2**32 - 1, 404))
    with pytest.raises(DataError, match="the header tells 202 samples, but 400 bytes follow"):
        create(tmp_path)


def test_a_sound_that_is_damaged_later_is_named_with_its_line(tmp_path):
    write_set(tmp_path, ["one", "two", "three"])
    source = create(tmp_path, test_every=2)
    (tmp_path / "train" / "00002.wav").write_bytes(b"RIFF")
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        all_of_test(source)
    name = tmp_path / "train" / "00002.wav"
    assert f"{tmp_path / 'train.csv'}: line 4: {name} cannot be decoded as a sound" in str(raised.value)


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ("wav", ["train_files="], "train_files is empty; name a list"),
        (
            "wav",
            ["alphabet=aba"],
            "alphabet='aba' must have at least one character, each only once, and no comma or tab",
        ),
        ("wav", ["alphabet=a,b"], "no comma or tab"),
        ("tones", ["max_digits=1"], "max_digits=1 is less than min_digits=2"),
        ("tones", ["num_train=100000"], "lower num_train, num_test, max_digits or sample_rate"),
    ],
)
def test_wrong_options_are_named(dataset, options, message):
    with pytest.raises(OptionError, match=message):
        component_tables.DATASETS.create(dataset, options, data_dir=None)


def test_one_sound_of_any_length_is_an_example_without_transcript(tmp_path):
    write_set(tmp_path, ["a", "b"], [200, 100])
    write(tmp_path, "more", [noise(100, 1), noise(300)], ["b", "cc"], RATE)  # the first is the second training sound
    source = create(tmp_path)
    (batch,) = read_batches(lambda: source.read(tmp_path / "more" / "00000.wav", 1))
    (longer,) = read_batches(lambda: source.read(tmp_path / "more" / "00001.wav", 1))
    (listed,) = read_batches(lambda: source.read(tmp_path / "more.csv", 1))[:1]
    np.testing.assert_array_equal(batch["frames"], listed["frames"][:, :20])
    assert (list(batch["num_frames"]), list(longer["num_frames"])) == ([100 // HOP], [300 // HOP])
    assert [list(batch[name]) for name in ("num_ids",)] == [[0]] and (batch["ids"] == -1).all()
    write(tmp_path, "other", [noise(100)], ["b"], 2 * RATE)
    with pytest.raises(DataError, match=r"has 2000 samples per second, but the training sounds have 1000; convert"):
        source.read(tmp_path / "other" / "00000.wav", 1)
