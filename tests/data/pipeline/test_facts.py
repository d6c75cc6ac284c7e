"""Facts about files: computed once on a machine, and taken from a record after the files are gone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import transcript_list
from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.data.formats.image_folder import ImageFolder
from ps_trainer.data.formats.libsvm import LibSvm
from ps_trainer.data.formats.movielens import MovieLens
from ps_trainer.data.formats.parallel_text import ParallelText
from ps_trainer.data.formats.text import Text
from ps_trainer.data.formats.text_windows import TextWindows
from ps_trainer.data.formats.tfrecord import TfRecord
from ps_trainer.data.formats.wav import Wav
from ps_trainer.data.pipeline import dataset_record, facts_cache
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.errors import DataError
from tests.data.reading import read_batches

CASES = {
    "csv": (Csv, {"label": "y"}, {"train.csv": "x,c,y\n1,a,no\n3,b,yes\n2,a,yes\n5,b,no\n"}, "x,c\n3,b\n2,z\n"),
    "libsvm": (LibSvm, {"train_files": ("a.svm",)}, {"a.svm": "1 1:1\n-1 7:2\n1 3:1\n"}, "7:1 2:3\n"),
    "text": (Text, {"context_length": 4, "unit": "word"}, {"train.txt": "a b c a b a d e\n" * 9}, "a b x\n"),
    "parallel_text": (
        ParallelText,
        {"target": "de", "test_files": (), "max_length": 4, "test_every": 2},
        {"train.en": "one two\nthree\none\n", "train.de": "eins zwei\ndrei\neins\n"},
        "three one six\n",
    ),
}  # fmt: skip


def write_png(path, value):
    with tf.Graph().as_default(), tf.Session() as session:
        path.write_bytes(session.run(tf.io.encode_png(tf.fill([4, 4, 3], tf.constant(value, tf.uint8)))))


def write_examples(path, values):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for value in values:
            example = tf.train.Example()
            example.features.feature["x"].int64_list.value.append(value)
            writer.write(example.SerializeToString())


def made(name, folder, facts=None):
    cls, options, _, _ = CASES[name]
    return cls(cls.Options(**options), data_dir=str(folder), facts=facts)


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_dataset_reads_a_new_file_after_its_own_are_gone(tmp_path, name):
    folder, new = tmp_path / "data", tmp_path / "new"
    folder.mkdir()
    for file, text in CASES[name][2].items():
        (folder / file).write_text(text)
    new.write_text(CASES[name][3])
    trained = made(name, folder)
    wanted = read_batches(lambda: trained.read(new, 8))
    (tmp_path / dataset_record.FILE).write_text(dataset_record.as_text(name, trained))
    recorded = dataset_record.read_facts(tmp_path, name)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    again = made(name, folder, Facts(recorded))
    assert str(read_batches(lambda: again.read(new, 8))) == str(wanted)
    assert dataset_record.sizes_of(again) == dataset_record.sizes_of(trained)
    assert again.num_train_examples == trained.num_train_examples
    with pytest.raises(DataError):
        made(name, folder)


def write_images(folder):
    for at, name in enumerate(("cat", "dog", "emu")):
        (folder / name).mkdir()
        for number in range(2):
            write_png(folder / name / f"{number}.png", 80 * at + number)
    write_png(folder.parent / "new.png", 200)
    return ImageFolder, {"height": 4, "width": 4, "test_every": 2}


def write_records(folder):
    for number in range(2):
        write_examples(folder / f"{number}.tfrecord", range(5 * number, 5 * number + 5))
    write_examples(folder.parent / "new", [7, 8])
    return TfRecord, {"features": ("x:int64",)}


def write_sounds(folder):
    sounds = [np.arange(400 + 100 * number, dtype=np.int16) for number in range(3)]
    transcript_list.write(folder, "train", sounds, ["ab", "ba", "a"], 1000)
    transcript_list.write(folder.parent, "other", sounds[:1], ["a"], 1000)
    (folder.parent / "other" / "00000.wav").rename(folder.parent / "new.wav")
    return Wav, {"alphabet": "ab", "test_every": 2}


@pytest.mark.parametrize(
    ("write", "new"),
    [(write_images, "new.png"), (write_records, "new"), (write_sounds, "new.wav")],
    ids=["images", "records", "sounds"],
)
def test_a_recorded_dataset_of_binary_files_reads_a_new_one_after_its_own_are_gone(tmp_path, write, new):
    folder = tmp_path / "data"
    folder.mkdir()
    cls, options = write(folder)
    trained = cls(cls.Options(**options), data_dir=str(folder))
    wanted = read_batches(lambda: trained.read(tmp_path / new, 8))
    (tmp_path / dataset_record.FILE).write_text(dataset_record.as_text("it", trained))
    shutil.rmtree(folder)
    again = cls(cls.Options(**options), data_dir=str(folder), facts=Facts(dataset_record.read_facts(tmp_path, "it")))
    assert str(read_batches(lambda: again.read(tmp_path / new, 8))) == str(wanted)
    assert dataset_record.sizes_of(again) == dataset_record.sizes_of(trained)
    for name in ("class_names", "num_train_examples", "num_test_examples"):
        assert getattr(again, name, None) == getattr(trained, name, None)
    with pytest.raises(DataError):
        cls(cls.Options(**options), data_dir=str(folder))


@pytest.mark.parametrize("write", [write_images, write_records], ids=["images", "records"])
def test_binary_files_may_be_gone_although_their_folder_is_still_there(tmp_path, write):
    folder = tmp_path / "data"
    folder.mkdir()
    cls, options = write(folder)
    trained = cls(cls.Options(**options), data_dir=str(folder))
    (tmp_path / dataset_record.FILE).write_text(dataset_record.as_text("it", trained))
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("moved to tape")
    again = cls(cls.Options(**options), data_dir=str(folder), facts=Facts(dataset_record.read_facts(tmp_path, "it")))
    assert again.num_train_examples == trained.num_train_examples


def test_a_trained_model_is_tested_on_the_records_of_another_folder(tmp_path):
    folders = [tmp_path / name for name in ("data", "other")]
    for folder, name, values in zip(folders, ("a", "b"), (range(5), range(30)), strict=True):
        folder.mkdir()
        write_examples(folder / f"{name}.tfrecord", values)
    options = TfRecord.Options(features=("x:int64",))
    trained = TfRecord(options, data_dir=str(folders[0]))
    (tmp_path / dataset_record.FILE).write_text(dataset_record.as_text("it", trained))
    facts = Facts(dataset_record.read_facts(tmp_path, "it"))
    other = TfRecord(options, data_dir=str(folders[1]), facts=facts)
    assert (trained.num_test_examples, other.num_test_examples) == (1, 3)


def test_a_model_keeps_the_classes_that_it_was_trained_with(tmp_path, caplog):
    """A folder that is added later would move the numbers of the classes after it. So it is left out."""
    folder = tmp_path / "data"
    folder.mkdir()
    cls, options = write_images(folder)
    trained = cls(cls.Options(**options), data_dir=str(folder))
    (tmp_path / dataset_record.FILE).write_text(dataset_record.as_text("it", trained))
    (folder / "ant").mkdir()
    write_png(folder / "ant" / "0.png", 3)
    facts = Facts(dataset_record.read_facts(tmp_path, "it"))
    shutil.rmtree(folder / trained.classes[0])
    again = cls(cls.Options(**options), data_dir=str(folder), facts=facts)
    assert again.classes == trained.classes and "the trained model has no class ant" in caplog.text
    assert (trained.num_test_examples, again.num_test_examples) == (3, 2)


def test_the_recorded_words_win_over_a_text_that_has_changed(tmp_path):
    (tmp_path / "train.txt").write_text(CASES["text"][2]["train.txt"])
    before = made("text", tmp_path)
    (tmp_path / "train.txt").write_text("z y x z y z w v u z z z\n" * 9)
    assert made("text", tmp_path, Facts(before.facts.entries)).vocabulary == before.vocabulary
    assert made("text", tmp_path).vocabulary != before.vocabulary


def test_other_options_do_not_take_the_recorded_words(tmp_path):
    (tmp_path / "train.txt").write_text(CASES["text"][2]["train.txt"])
    before = made("text", tmp_path)
    options = Text.Options(context_length=4, unit="word", max_vocab=4)
    assert Text(options, data_dir=str(tmp_path), facts=Facts(before.facts.entries)).vocab_size == 4


def test_a_test_file_that_grows_is_counted_again(tmp_path):
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("a b c d e\n" * 4)
    before = made("text", tmp_path)
    (tmp_path / "test.txt").write_text("a b c d e\n" * 8)
    after = made("text", tmp_path, Facts(before.facts.entries))
    assert (before.num_test_examples, after.num_test_examples) == (4 * 6 // 4, 8 * 6 // 4)


def test_sizes_of_ratings_and_features_cover_all_lines(tmp_path):
    (tmp_path / "u.data").write_text("5\t9\t3\t0\n12\t4\t1\t0\n3\t30\t2\t0\n")
    ratings = MovieLens(MovieLens.Options(), data_dir=str(tmp_path))
    assert dataset_record.sizes_of(ratings) == {"num_users": 13, "num_items": 31}
    (tmp_path / "a.svm").write_text("1 qid:99 1:1 # 1000:1\n-1 7:2\n1\n")
    assert made("libsvm", tmp_path).num_features == 8


def test_windows_of_words_are_the_same_from_the_record(tmp_path):
    (tmp_path / "train.txt").write_text("the cat eats the fish and the dog eats the bone\n" * 20)
    options = TextWindows.Options(window=2, num_test=3, subsample=0)
    first = TextWindows(options, data_dir=str(tmp_path))
    again = TextWindows(options, data_dir=str(tmp_path), facts=Facts(json.loads(json.dumps(first.facts.entries))))
    assert str(read_batches(lambda: again.test(batch_size=9))) == str(read_batches(lambda: first.test(batch_size=9)))
    assert again.num_train_examples == first.num_train_examples
    assert (again.information == first.information).all()


@pytest.mark.parametrize("text", ["", "[]", '{"dataset": "csv", "facts": {"columns": {}}}'])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / dataset_record.FILE).write_text(text)
    with pytest.raises(DataError, match=r"dataset.json cannot be read .*remove it"):
        dataset_record.read_facts(tmp_path, "csv")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setenv(facts_cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(facts_cache, "MIN_BYTES", 1)
    return tmp_path / "cache"


def test_a_fact_is_computed_once_for_all_tasks_and_again_when_a_file_changes(tmp_path, shared):
    path, calls, is_asked = tmp_path / "data", [], threading.Event()
    path.write_text("abc")

    def compute():
        calls.append(1)
        is_asked.wait(30)  # until the others want the same fact
        return [path.read_text()]

    values = []
    tasks = [threading.Thread(target=lambda: values.append(Facts().find("text", [path], 1, compute))) for _ in range(3)]
    for task in tasks:
        task.start()
    is_asked.set()
    for task in tasks:
        task.join(60)
    assert (values, len(calls)) == ([["abc"]] * 3, 1)
    status = path.stat()
    path.write_text("abd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the checksum tells them apart
    assert Facts().find("text", [path], 1, compute) == ["abd"]
    assert Facts().find("text", [path], 2, compute) == ["abd"] and len(calls) == 3


def test_a_damaged_entry_is_computed_again_and_an_unusable_folder_does_no_harm(tmp_path, shared, monkeypatch):
    path, calls = tmp_path / "data", []
    path.write_text("abc")
    for _ in range(2):
        assert Facts().find("text", [path], 1, lambda: calls.append(1) or 5) == 5
        for entry in shared.glob("*.json"):
            entry.write_text("0\n[6]")
    assert len(calls) == 2
    monkeypatch.setenv(facts_cache.VARIABLE, str(path / "below a file"))
    assert Facts().find("text", [path], 1, lambda: 7) == 7


class FakeTimeModule:
    """Passes time only in `sleep`."""

    def __init__(self):
        self.slept = 0.0

    def monotonic(self):
        return self.slept

    def sleep(self, secs):
        self.slept += secs


def test_a_holder_that_is_frozen_is_waited_for_once(shared, monkeypatch):
    fake_time = FakeTimeModule()
    monkeypatch.setattr(facts_cache, "time", fake_time)
    monkeypatch.setattr(facts_cache, "_PATIENCE", facts_cache._Patience(70 * facts_cache._POLL_SECS))
    for number in range(2):
        facts_cache.once(number, lambda: 1, num_bytes=1)
    for entry in shared.glob("*.json"):
        entry.unlink()
    with contextlib.ExitStack() as held:
        for path in shared.glob("*.lock"):
            fcntl.flock(held.enter_context(path.open("w")), fcntl.LOCK_EX)
        assert [facts_cache.once(number, lambda: 5, num_bytes=1) for number in range(2)] == [5, 5]
    assert fake_time.slept == pytest.approx(70 * facts_cache._POLL_SECS, rel=0.02)  # not twice that


def test_a_process_forked_while_a_fact_is_computed_does_not_keep_the_lock(shared, monkeypatch):
    monkeypatch.setattr(facts_cache, "_PATIENCE", facts_cache._Patience(0.0))
    copies = []

    def compute():
        # A fork copies all descriptors. Copies of the same open file keep a lock as long as one of them is open.
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(str(shared)):
                    copies.append(os.dup(int(name)))
        return 1

    facts_cache.once("key", compute, num_bytes=1)
    (path,) = shared.glob("*.lock")
    try:
        assert copies
        with path.open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError if it is locked
    finally:
        for copy in copies:
            os.close(copy)


def test_what_a_dataset_computes_belongs_to_the_number_of_the_cache(tmp_path):
    """If it fails, raise `_FORM` and write the new value here: old entries must not be taken for new ones."""
    random = np.random.RandomState(0)
    shares = 1 / np.arange(1, 31)
    words = random.choice([f"w{number:02}" for number in range(30)], p=shares / shares.sum(), size=2000)
    (tmp_path / "train.txt").write_text(" ".join(words))
    options = TextWindows.Options(window=2, num_test=3, subsample=0.01)
    found = TextWindows(options, data_dir=str(tmp_path)).facts.entries["windows"]["value"]
    assert (facts_cache._FORM, found) == (
        7,
        {"words": [0, 1, 2], "similar": [[1, 2, 3, 7], [0, 2, 7, 9], [0, 3, 1, 9]]},
    )


def test_old_entries_are_removed(tmp_path, shared, monkeypatch):
    monkeypatch.setattr(facts_cache, "_MAX_ENTRIES", 2)
    for number in range(4):
        facts_cache.once(number, lambda: 1, num_bytes=1)
    assert len(list(shared.glob("*.json"))) == 2


def test_a_value_that_cannot_be_written_is_computed_once(tmp_path, monkeypatch):
    def fail(path, found):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv(facts_cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(facts_cache, "_write", fail)
    passes = []
    assert facts_cache.once("key", lambda: passes.append(1) or 7, num_bytes=facts_cache.MIN_BYTES) == 7
    assert passes == [1]


def test_machines_share_a_fact_in_the_folder_of_the_run_unless_nothing_is_shared(tmp_path, shared, monkeypatch):
    path, calls = tmp_path / "data", []
    path.write_text("abc")

    def find(cache):
        monkeypatch.setenv(facts_cache.VARIABLE, cache and str(tmp_path / cache))
        return Facts(run_folder=tmp_path / "run" / "facts").find("text", [path], 1, lambda: calls.append(1) or 5)

    assert [find(cache) for cache in ("one", "two")] == [5, 5] and len(calls) == 1
    # The machine has the fact now, and needs the folder of the run no more.
    shutil.rmtree(tmp_path / "run")
    assert (find("two"), len(calls)) == (5, 1)
    assert (find(""), len(calls)) == (5, 2)


def test_files_in_different_places_have_different_facts(tmp_path, shared):
    """As two machines may have, whose folders of the same name lead to places of their own."""
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("abc")
        os.utime(tmp_path / name / "data", ns=(0, 0))
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / name)
        path = tmp_path / "link" / "data"
        found.append(Facts().of_file(path, "place", lambda path=path: str(path.resolve())))
    assert found == [str(tmp_path / name / "data") for name in ("a", "b")]
