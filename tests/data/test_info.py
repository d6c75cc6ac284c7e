"""Descriptions of paths: kind, counts, examples, and flags that read them; other files are rejected."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import shlex

import pytest

from ps_trainer import component_tables
from ps_trainer.data import detect_format, info
from ps_trainer.data.generators import generate
from ps_trainer.errors import DataError, OptionError

COUNTS = ("num_train=6", "num_test=4")

# Generator with options -> description of its folder.
SAID = {
    ("glyphs", ("size=9",)): ["images and labels in IDX files", "6 training examples, 4 test", "--dataset=mnist "],
    ("glyphs", ("size=32", "channels=3")): ["photographs in files of cifar10", "6 training examples", "10 classes"],
    ("planted_weights", ()): [
        "sparse examples in the format of LIBSVM",
        "6 training examples, 4 test examples",
        "ids int64 [20] from ",
        "--dataset_option=train_files=train.libsvm --dataset_option=test_files=test.libsvm",
    ],
    ("tones", ()): [
        "speech with transcripts",
        "6 training examples, 4 test",
        "alphabet=",
        "10 classes",
        "frames float32",
    ],
    ("planted_clicks", ()): ["in the format of Criteo", "6 training examples, 4 test", "dense float32 [13] from 0 to"],
    ("numbers", ()): [
        "the languages en and zh, line by line",
        "6 training examples, 4 test",
        "--dataset=parallel_text",
    ],
    ("planted_ratings", ()): ["the format of MovieLens, u.data", "9 training examples, 1 test", "example 0: user "],
}


@pytest.fixture
def generated(tmp_path):
    def make(name, *options):
        generate.generate(name, [*options, *COUNTS], tmp_path / "set")
        return tmp_path / "set"

    return make


@pytest.mark.parametrize(("name", "options"), SAID)
def test_a_generated_set_is_described_with_flags_that_read_it(generated, name, options):
    folder = generated(name, *options)
    text = info.describe(folder, reads_all=True)
    for words in SAID[name, options]:
        assert words in text
    assert "every example was read; none is broken" in text
    found = detect_format.detect(folder)
    source = component_tables.DATASETS.create(found.dataset, found.options, data_dir=str(found.data_dir))
    assert source.num_train_examples + source.num_test_examples == 10


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_single_file_of_a_set_is_described(generated, suffix):
    folder = generated("synthetic", "height=3", "width=5")
    path = folder / "train-images-idx3-ubyte"
    if suffix:
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = packed
    assert "an IDX file, one of a set\n  uint8 [6, 3, 5]: 6 items\n  6 training examples" in info.describe(path)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    text = info.describe(path)
    assert "uint8 [6, 3, 5]: 6 items" in text and "need the folder of all four files" in text


def test_a_single_text_file_is_described(generated):
    folder = generated("planted_weights")
    text = info.describe(folder / "test.libsvm")
    assert f"--dataset=libsvm --dataset_option=train_files=test.libsvm --data_dir={folder}" in text
    packed = folder / "packed.gz"
    packed.write_bytes(gzip.compress((folder / "test.libsvm").read_bytes()))
    assert "train_files=packed.gz" in detect_format.detect(packed).options


@pytest.mark.parametrize(("name", "options"), [("text8.gz", ""), ("ptb.train.txt", "--dataset_option=unit=word ")])
def test_running_text_is_recognised_by_its_name(tmp_path, name, options):
    text = ("the cat\n" * 200).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    described = info.describe(tmp_path)
    assert "running text" in described
    assert "--model_option=vocab_size=" in described
    assert f"--dataset=text {options}--data_dir={tmp_path}" in described
    assert detect_format.detect(tmp_path / name) == detect_format.detect(tmp_path)


def test_unknown_or_broken_files_are_rejected(generated, tmp_path):
    with pytest.raises(DataError, match="nothing: no such file or folder"):
        detect_format.detect(tmp_path / "nothing")
    with pytest.raises(DataError, match="the folder is empty"):
        detect_format.detect(tmp_path)
    (tmp_path / "zeros").write_bytes(bytes(100))
    with pytest.raises(DataError, match="the folder holds no known dataset; known formats: IDX files of MNIST"):
        detect_format.detect(tmp_path)
    with pytest.raises(DataError, match="zeros: the format of the file is unknown") as raised:
        detect_format.detect(tmp_path / "zeros")
    # Some names contain commas.
    known = str(raised.value).partition("known formats: ")[2].split("; ")
    assert known == list(detect_format.KNOWN_FORMATS)
    assert any("," in name for name in known)
    folder = generated("synthetic")
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="train-images-idx3-ubyte: byte .* truncated"):
        info.describe(folder)
    packed = folder / "cut.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(DataError, match="cut.gz: cannot be unpacked"):
        detect_format.detect(packed)


def test_text_of_any_name_is_described_by_its_ending(tmp_path):
    (tmp_path / "x.txt").write_text("In the beginning, God created the heaven and the earth\n" * 200)
    assert f"--dataset=text --dataset_option=train_files=x.txt --data_dir={tmp_path}" in info.describe(tmp_path)
    assert detect_format.detect(tmp_path / "x.txt") == detect_format.detect(tmp_path)


def test_a_table_with_a_label_is_described_by_its_columns(tmp_path):
    rows = "".join(f"{number};{'ab'[number % 2]};{'yes' if number % 3 else 'no'}\n" for number in range(30))
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("x;job;rented\n" + rows)
    said = info.describe(tmp_path, reads_all=True)
    for words in (
        "a table of 3 columns", "30 training examples, 30 test examples", "the column rented holds the labels",
        "column x: numbers, mean 14.5, scale 8.655", "column job: 2 words, a, b", "label rented: no, yes",
        "--dataset=csv --dataset_option=train_files=train.csv --dataset_option=test_files=test.csv"
        " --dataset_option=label=rented --dataset_option=delimiter=semicolon",
    ):  # fmt: skip
        assert words in said
    (tmp_path / "test.csv").write_text("x;job\n1;a\n2;b\n")  # no labels: another table
    with pytest.raises(DataError, match=r"looks like a table of 3 columns .* test.csv lacks rented: .*predict"):
        detect_format.detect(tmp_path)


def test_a_table_is_described_with_the_options_that_the_user_gives(tmp_path):
    rows = "".join(f"{number},w{number},{'yes' if number % 3 else 'no'}\n" for number in range(5000))
    (tmp_path / "train.csv").write_text("x,word,rented\n" + rows)
    with pytest.raises(
        DataError, match="more than 4095 different words; leave it out with --dataset_option=columns=wo"
    ):
        info.describe(tmp_path)
    told = info.describe(tmp_path, options=["columns=word:ignore", "test_every=5"])
    assert "4,000 training examples" in told and "column word" not in told
    flags = "label=rented --dataset_option=columns=word:ignore --dataset_option=test_every=5 --data_dir"
    assert f"--dataset=csv --dataset_option=train_files=train.csv --dataset_option={flags}" in told
    with pytest.raises(DataError, match="which column holds the labels"):
        info.describe(tmp_path, options=["label=none"])
    with pytest.raises(OptionError, match="--dataset_option.*did you mean columns"):
        info.describe(tmp_path, options=["column=word:ignore"])


def test_a_table_with_a_byte_order_mark_and_a_delimiter_in_quotes_is_recognised(tmp_path):
    rows = [f'"Smith, {at}",2024-05-04,{"yes" if at % 3 else "no"}' for at in range(30)]
    content = "\n".join(['\ufeff"Name, full",joined,vip', *rows, ""])
    (tmp_path / "train.csv").write_text(content, encoding="utf-8")
    said = info.describe(tmp_path)
    assert "column Name, full: 27 words" in said and "label vip: no, yes" in said
    assert "--dataset=csv --dataset_option=train_files=train.csv --dataset_option=label=vip" in said


def test_a_table_without_a_header_has_numbers_as_names_and_a_name_shows_the_label(tmp_path):
    for first in ("5.1,3.5,1,setosa", "NA,NA,1,setosa", "NA,,1,setosa"):
        (tmp_path / "a.data").write_text("\n".join([first, *["7.0,3.2,1,versicolor", "6.0,3,2,setosa"] * 3, ""]))
        assert detect_format.detect(tmp_path / "a.data").options == ("train_files=a.data", "label=3", "header=false")
    # As scikit-learn's iris.csv: numbers of rows and columns, and the names of the classes in place of the columns.
    (tmp_path / "iris.csv").write_text("150,4,setosa,versicolor\n" + "5.1,3.5,1.4,0\n7.0,3.2,4.7,1\n" * 3)
    options = ("train_files=iris.csv", "label=versicolor", "header=true")
    assert detect_format.detect(tmp_path / "iris.csv").options == options
    (tmp_path / "b.csv").write_text("Class,pay\n1,2.5\n2,3.5\n")
    assert detect_format.detect(tmp_path / "b.csv").options == ("train_files=b.csv", "label=Class")


def test_english_is_the_source_of_a_pair_of_languages(tmp_path):
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_text("a cat\n" * 200)
    described = info.describe(tmp_path)
    assert "--dataset_option=source=en --dataset_option=target=de" in described
    assert "to translate from de into en, exchange the values of source and target" in described


# Name and content of a file -> words about it, for the file itself and for its folder.
NEAR_MISSES = {
    ("t.csv", "age,job,pay\n30,x1,1\n40,x2,0\n"): ["t.csv looks like a table of 3 columns separated by commas",
        "commas: age, job, pay", "--dataset=csv --dataset_option=train_files=t.csv --dataset_option=label=<column>",
        "such as pay"],
    ("t.tsv", "1\t2\n3\t4\n"): ["t.tsv looks like a table of 2 columns separated by tabs: 1, 2",
        "--dataset_option=delimiter=tab"],
    ("t.txt", "a|b|c\n1|2|3\n"): ["separated by pipes: a, b, c", "--dataset_option=delimiter=pipe"],
    ("e.csv", "a;b\n1,5;3\n1.234,5;4\n"): ["--dataset_option=delimiter=semicolon --dataset_option=decimal=, --dat"],
    ("list.csv", "path,text\na.wav,one\n"): ["looks like a list of sounds with the columns path, text",
        "wav_filename,wav_filesize,transcript", "--dataset=wav --dataset_option=train_files=list.csv --data_dir="],
    ("r.csv", "userId,item,rating\n1,2,3\n"): ["looks like ratings with the columns userId, item, rating",
        "copy it to a file ratings.csv, then read it by --dataset=movielens", "--dataset_option=ids=text if users"],
    ("s.csv", "rating,user,film\n5,ann,Alien\n"): ["looks like ratings with the columns rating, user, film; write the",
        "if known, seconds, separated by commas, to a file ratings.csv with a header"],
    ("d.csv", "paid,size,city\nyes,1,a\nno,2,b\nyes,3,c\n"): ["3 columns separated by commas", "such as paid"],
    ("t.data", "age size\n1 2\n3 4\n"): ["2 columns separated by spaces; read it by --dataset=csv", "delimiter=space"],
    ("t.dat", "   1   2.5\n  10   3.5\n"): ["2 columns separated by spaces; write one comma", "sed -E"],
    ("a.svm", "cat 1:0.5 3:1\ndog 2:1\n"): ["format of LIBSVM, with other labels than numbers; write 1 and -1",
        "--dataset=libsvm --dataset_option=train_files=a.svm"],
    ("t.jsonl", "{\"x\": 1}\n"): ["is JSON; write its records to a CSV file", "train_files=t.csv"],
    ("t.arff", "@relation x\n"): ["is an ARFF file; write the names of its attributes in one line"],
    ("t.xlsx", "PK\x03\x04"): ["is a ZIP archive, as files .xlsx are", "save the sheet as CSV"],
    ("book.md", "It was a dark night.\n"): ["looks like running text; read it by --dataset=text --dataset_option"],
    ("a.webp", "RIFF\0WEBP"): ["a.webp is an image with the ending .webp; convert", "--dataset=image_folder"],
    ("a.wav", "RIFF\0"): ["1 WAV files without a list", "wav_filename,wav_filesize,transcript", "--dataset=wav"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), NEAR_MISSES)
def test_a_near_miss_is_named_with_what_is_missing_and_the_flag(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(DataError) as raised:
            detect_format.detect(path)
        for words in NEAR_MISSES[name, content]:
            assert words in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,town\n1,Genève\n".encode("latin-1"), "line 2: not UTF-8 .*iconv -f WINDOWS-1252 -t UTF-8"),
        (b"x,town\n" + b"1,Bern\n" * 20000 + "1,Genève\n".encode("latin-1"), "line 20002: not UTF-8"),
        ("x,town\n1,Bern\n".encode("utf-16"), "line 1: not UTF-8 .*iconv -f UTF-16 -t UTF-8"),
        ("\ufeffx,town\n".encode("utf-16-be"), "iconv -f UTF-16 -t UTF-8"),
        (b"x,town\n", "the file has a header and no row; is it the right file?"),
        (b"x,town\n1,2,3\n", "line 2 has 3 values, but there are 2 columns"),
        (b"", "the file has 0 lines and no example"),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.tsv", "t.csv.gz"])
def test_a_table_that_cannot_be_read_is_named_as_the_dataset_names_it(tmp_path, name, content, message):
    content = content.replace(b",", b"\t") if name == "t.tsv" else content
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=rf"^{tmp_path}/{name}: .*{message}"):
            detect_format.detect(path)


def test_an_empty_file_of_any_name_is_named_as_such(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(DataError, match="data: the file has 0 lines and no example"):
        detect_format.detect(tmp_path / "data")


def test_images_without_folders_of_classes_are_a_near_miss(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="1 images and no folder of a class; --dataset=image_folder needs a folder for"):
        detect_format.detect(tmp_path)
    (tmp_path / "cats").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "cats" / "a.png")
    with pytest.raises(DataError, match="1 images in 1 folder; --dataset=image_folder needs .* at least two"):
        detect_format.detect(tmp_path)


def test_reading_all_finds_a_line_broken_far_down(generated):
    folder = generated("planted_weights")
    path = folder / "test.libsvm"
    path.write_text(path.read_text() + "1 3:x\n")
    assert "6 training examples, 5 test examples" in info.describe(folder)
    with pytest.raises(DataError, match="test.libsvm: line 5: not <label> <index>:<value> .*: 1 3:x"):
        info.describe(folder, reads_all=True)


def test_clicks_with_decimal_ids_are_described_and_read_as_texts(tmp_path):
    line = "\t".join(["1", *["3"] * 13, *["48"] * 26])
    (tmp_path / "train.txt").write_text(f"{line}\n" * 20)
    described = info.describe(tmp_path)
    assert "clicks in the format of Criteo, with other ids" in described
    assert "--dataset=criteo --dataset_option=train_files=train.txt --dataset_option=categories=text" in described
    assert "18 training examples, 2 test examples" in described
    assert detect_format.detect(tmp_path / "train.txt") == detect_format.detect(tmp_path)


def test_sounds_in_folders_are_a_near_miss_with_the_folder_as_transcript(tmp_path):
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes/0.wav").write_bytes(b"RIFF\0")
    with pytest.raises(DataError, match="1 WAV files without a list; .* for example yes/0.wav,0,yes, then"):
        detect_format.detect(tmp_path)


def test_images_with_other_endings_are_a_near_miss(tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats/0.dat").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match="0.dat is an image without one of the endings .jpg, .*; rename such files"):
        detect_format.detect(tmp_path)


def test_missing_idx_files_are_named(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    with pytest.raises(DataError, match="IDX files; train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels"):
        detect_format.detect(tmp_path)


def test_a_table_without_the_labels_of_another_is_for_predictions(tmp_path):
    (tmp_path / "train.csv").write_text("x,y,paid\n1,2,yes\n3,4,no\n")
    (tmp_path / "test.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="train.csv looks like .* such as paid; test.csv lacks paid: .*predict --input"):
        detect_format.detect(tmp_path)


@pytest.mark.parametrize(("start", "encoding"), [(b"Zo\xeb\n", "WINDOWS-1252"), ("Zoë\n".encode("utf-16"), "UTF-16")])
def test_a_text_in_another_encoding_is_named_as_such(tmp_path, start, encoding):
    (tmp_path / "a.txt").write_bytes(start)
    with pytest.raises(
        DataError, match=f"a.txt is not UTF-8; convert it, for example with iconv -f {encoding} -t UTF-8"
    ):
        detect_format.detect(tmp_path / "a.txt")


def test_a_list_of_sounds_is_found_beside_another_table_and_behind_a_byte_order_mark(generated):
    folder = generated("tones")
    (folder / "speakers.csv").write_text("speaker,age,sex,place\n1,20,f,a\n2,30,m,b\n")
    (folder / "train.csv").write_bytes(codecs.BOM_UTF8 + (folder / "train.csv").read_bytes())
    text = info.describe(folder, reads_all=True)
    for words in (
        "speech with transcripts\n  other files are not read: speakers.csv", "6 training examples, 4 test",
        "train_files=train.csv --dataset_option=test_files=test.csv", "every example was read",
    ):  # fmt: skip
        assert words in text


def test_sounds_beside_a_table_that_does_not_list_them_are_a_near_miss_of_that_table(tmp_path):
    (tmp_path / "0.wav").write_bytes(b"RIFF\0")
    (tmp_path / "list.csv").write_text("0.wav\n1.wav\n")
    message = (
        "1 WAV files and list.csv, which is not a list of them; begin it with exactly the line"
        " wav_filename,wav_filesize,transcript .* for example 0.wav,0,one, then read it by --dataset=wav"
        " --dataset_option=train_files=list.csv"
    )
    with pytest.raises(DataError, match=message):
        detect_format.detect(tmp_path)


@pytest.mark.parametrize("inside", ["", "pictures/"])
def test_images_with_a_list_of_their_classes_are_a_near_miss(tmp_path, inside):
    (tmp_path / inside).mkdir(exist_ok=True)
    (tmp_path / inside / "0.png").write_bytes(b"\x89PNG")
    rows = "".join(f"{inside}{at}.png,{'dog' if at % 3 else 'cat'}\n" for at in range(30))
    (tmp_path / "list.csv").write_text(f"file,label\n{rows}")
    for path in (tmp_path, tmp_path / "list.csv"):
        with pytest.raises(DataError) as raised:
            detect_format.detect(path)
        told = str(raised.value)
        assert "list.csv looks like a list of images with the columns file, label; --dataset=image_folder takes" in told
        assert "such as its label, then read them by --dataset=image_folder --data_dir=" in told


@pytest.mark.parametrize("options", [(), ("label=kind",)])
@pytest.mark.parametrize("names", [("x", "kind"), ("x", "label")])
def test_a_parquet_file_without_rows_is_named_as_such(tmp_path, names, options):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({name: pyarrow.array([], pyarrow.string()) for name in names}), tmp_path / "a.pq")
    for path in (tmp_path, tmp_path / "a.pq"):
        with pytest.raises(DataError, match=f"^{tmp_path}/a.pq: the file has no row; is it the right file\\?$"):
            info.describe(path, options=options)


@pytest.mark.parametrize(("separator", "options"), [(",", ()), ("\t", ()), (" ", ("delimiter=space",))])
def test_a_table_is_described_if_the_user_names_the_label(tmp_path, separator, options):
    rows = [["age", "job", "pay"], *[[str(20 + at), "ab"[at % 2], str(100 + at)] for at in range(30)]]
    (tmp_path / "t.dat").write_text("".join(separator.join(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="looks like a table of 3 columns"):
        info.describe(tmp_path, options=options)
    for path in (tmp_path, tmp_path / "t.dat"):
        told = info.describe(path, options=["label=job", *options])
        assert "27 training examples, 3 test examples" in told and "label job: a, b" in told
    with pytest.raises(DataError, match="has no column 'jobs'; did you mean job"):
        info.describe(tmp_path, options=["label=jobs", *options])


@pytest.mark.parametrize("name", ["deu.txt", "pairs.tsv", "train.tsv.gz"])
def test_sentence_pairs_in_two_columns_are_described(tmp_path, name):
    numbers = ["one", "two", "three", "four", "five"]
    text = "".join(f"{a} and {b}\tdie Zahl {a}{b}\n" for a in numbers for b in numbers)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    for path in (tmp_path, tmp_path / name):
        told = info.describe(path, reads_all=True)
        assert "sentence pairs in two columns with a tab between them" in told
        assert "24 training examples, 1 test examples" in told
        assert f"read by --dataset=parallel_text --dataset_option=train_files={name} --data_dir={tmp_path}" in told


def test_a_text_with_its_class_is_a_table_and_not_sentence_pairs(tmp_path):
    rows = "".join(f"the story number {at}\t{'not good' if at % 2 else 'very good'}\n" for at in range(30))
    (tmp_path / "t.tsv").write_text(f"text\tlabel\n{rows}")
    assert detect_format.detect(tmp_path).dataset == "csv"
    (tmp_path / "t.tsv").write_text("".join(f"story {at}\tthe number {at % 16}\n" for at in range(30)))
    assert detect_format.detect(tmp_path).dataset == "parallel_text"
    assert detect_format.detect(tmp_path, ["label=1"]).dataset == "csv"


@pytest.mark.parametrize("header", ["size;price;kind\n", ""])
def test_a_table_with_decimal_commas_is_described_with_the_option_that_reads_them(tmp_path, header):
    rows = "".join(f"{at};{at},25;{'yes' if at % 3 else 'no'}\n" for at in range(30))
    (tmp_path / "t.csv").write_text(header + rows)
    told = info.describe(tmp_path)
    price, kind = ("price", "kind") if header else ("1", "2")
    mean = sum(at + 0.25 for at in range(30) if at % 10) / 27
    assert f"column {price}: numbers, mean {mean:.4g}" in told and f"label {kind}: no, yes" in told
    assert "--dataset_option=delimiter=semicolon" in told and "--dataset_option=decimal=, --data_dir" in told


def test_flags_of_a_near_miss_hold_for_a_folder_with_spaces_in_its_name(tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    for name, text in (("a b.csv", "age,job,pay\n30,x1,1\n40,x2,0\n"), ("book.md", "It was a dark night.\n")):
        (folder / name).write_text(text)
        with pytest.raises(DataError) as raised:
            detect_format.detect(folder / name)
        words = shlex.split(str(raised.value).partition("read it by ")[2].replace(", with", " "))
        assert {f"--data_dir={folder}", f"--dataset_option=train_files={name}"} <= set(words)


def test_hidden_and_other_files_do_not_keep_a_format_from_being_found(generated):
    folder = generated("planted_weights")
    for name in (".DS_Store", "_SUCCESS"):
        (folder / name).write_bytes(b"\0\0\0\1Bud1")
    assert detect_format.detect(folder).options == ("train_files=train.libsvm", "test_files=test.libsvm")


@pytest.mark.parametrize(("compress", "name"), [(bz2.compress, "bzip2"), (lzma.compress, "xz")])
def test_a_file_compressed_with_another_program_is_named_as_such(tmp_path, compress, name):
    path = tmp_path / "t.csv.packed"
    path.write_bytes(compress(b"x,kind\n1,a\n2,b\n" * 9))
    with pytest.raises(DataError, match=f"t.csv.packed is compressed with {name}; unpack it, or compress it with gzip"):
        detect_format.detect(tmp_path)


def test_a_table_with_one_class_is_named_with_the_columns_to_choose_from(tmp_path):
    (tmp_path / "t.csv").write_text("x,job,label\n" + "1,a,good\n2,b,good\n" * 9)
    message = "the label 'label' is 'good' in every row, .*name another column by --dataset_option=label=.* x, job$"
    with pytest.raises(DataError, match=message):
        info.describe(tmp_path)


@pytest.mark.parametrize(("rows", "option"), [("1,2,5\n" * 9, ""), ("ann,2,5\n" * 9, " --dataset_option=ids=text")])
def test_ratings_of_users_with_names_are_described_with_the_option_that_reads_them(tmp_path, rows, option):
    (tmp_path / "ratings.csv").write_text(f"user,item,rating\n{rows}")
    told = info.describe(tmp_path, reads_all=True)
    assert "8 training examples, 1 test" in told and f"read by --dataset=movielens{option} --data_dir=" in told


def test_ratings_under_unknown_names_are_described_with_the_guess(tmp_path):
    guess = "a guess: the first column holds the users, the second the items"
    for header, is_guess in (("Film,Kunde,Note", True), ("userId,movieId,rating", False), ("User,Film,Note", True)):
        (tmp_path / "ratings.csv").write_text(f"{header}\n" + "ann,2,5\n" * 9)
        assert (guess in info.describe(tmp_path)) is is_guess
    (tmp_path / "ratings.csv").unlink()
    (tmp_path / "u.data").write_text("1\t2\t5\n" * 9)
    assert guess not in info.describe(tmp_path)


def test_a_broken_line_is_shown_as_the_file_has_it(tmp_path):
    line = r"""Ann 44,"Movie, the 'B\\17'",73.8"""
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "1,2,5\n" * 9 + f"{line}\n")
    with pytest.raises(DataError) as caught:
        info.describe(tmp_path, reads_all=True)
    assert str(caught.value).endswith(f": {line}")


def test_sentence_pairs_that_come_again_are_no_table(tmp_path):
    pairs = [("a red cat", "eine rote Katze"), ("a blue dog", "ein blauer Hund"), ("good day", "guten Tag")]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(pairs[at % 3]) + "\n" for at in range(60)))
    found = detect_format.detect(tmp_path)
    assert (found.dataset, found.options) == ("parallel_text", ("train_files=pairs.tsv",))
    classes = [
        ("very small", "not red"),
        ("very small", "all red"),
        ("quite large", "not red"),
        ("quite large", "all red"),
    ]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(classes[at % 4]) + "\n" for at in range(60)))
    assert detect_format.detect(tmp_path).dataset == "csv"


@pytest.mark.parametrize("options", [(), ("label=kind",)])
def test_an_empty_parquet_file_is_named_as_such(tmp_path, options):
    pytest.importorskip("pyarrow")
    (tmp_path / "train.parquet").touch()
    for path in (tmp_path, tmp_path / "train.parquet"):
        with pytest.raises(
            DataError, match=r"train.parquet is a Parquet file without content \(0 bytes\); write it again"
        ):
            info.describe(path, options=options)


def test_advice_about_a_table_without_names_holds_for_both_of_its_files(tmp_path):
    for name in ("test.tsv", "train.tsv"):
        (tmp_path / name).write_text("".join(f"{at}\t{at}\t{at * at}\n" for at in range(1, 30)))
    with pytest.raises(
        DataError, match="train.tsv looks like a table of 3 columns separated by tabs: 1, 1, 1; "
    ) as raised:
        detect_format.detect(tmp_path)
    flags = shlex.split(str(raised.value).partition("read it by ")[2].partition(", with")[0])
    options = [flag.partition("=")[2] for flag in flags if flag.startswith("--dataset_option=")]
    named = ["train_files=train.tsv", "test_files=test.tsv", "delimiter=tab", "header=false"]
    assert options == [*named, "label=<column>"] and "such as 2" in str(raised.value)
    source = component_tables.DATASETS.create("csv", [*named, "label=2"], data_dir=str(tmp_path))
    assert (source.num_train_examples, source.num_test_examples) == (29, 29)


def test_a_table_with_line_ends_in_quotes_is_described(tmp_path):
    rows = "".join(f'"line {at}\n\nand more\n\n\n",{["cat", "dog"][at % 2]}\n' for at in range(30))
    (tmp_path / "train.csv").write_text(f'text,"kind\nof animal"\n{rows}')
    told = info.describe(tmp_path, reads_all=True)
    assert "27 training examples, 3 test" in told and "label kind of animal: cat, dog" in told


@pytest.mark.parametrize("name", ["a.svm", "train.txt"])
def test_sparse_lines_with_a_byte_order_mark_are_recognised(tmp_path, name):
    (tmp_path / name).write_text("\ufeff" + "1 3:1\n-1 2:4\n" * 9, encoding="utf-8")
    assert f"--dataset=libsvm --dataset_option=train_files={name}" in info.describe(tmp_path, reads_all=True)


@pytest.mark.parametrize("other", ["README.md", "notes.txt", "other.csv", "a.svm", "p.zip", "test.csv"])
def test_the_advice_about_a_table_beside_other_files_can_be_followed(tmp_path, other):
    rows = "".join(f"{at},{at * 2},{'yes' if at % 3 else 'no'}\n" for at in range(30))
    (tmp_path / "list.csv").write_text(f"a,b,rented\n{rows}")
    content = {"a.svm": "1 1:1\n-1 2:1\n", "p.zip": "PK\3\4", "other.csv": "x,y\n1,2\n", "test.csv": "a,b\n1,2\n"}
    (tmp_path / other).write_text(content.get(other, "In the beginning there was\n"))
    for options in (["label=rented"], ["train_files=list.csv", "label=rented"], ["train_files=list.csv"]):
        told = info.describe(tmp_path, options=options)
        assert "27 training examples, 3 test examples" in told and "label rented: no, yes" in told
        assert f"train_files=list.csv --dataset_option=label=rented --data_dir={tmp_path}" in told.replace(
            "--dataset_option=label=rented --dataset_option=train_files=list.csv",
            "--dataset_option=train_files=list.csv --dataset_option=label=rented",
        )
    assert detect_format.detect(tmp_path, ["label=rented"]).remarks[1:] == (f"other files are not read: {other}",)


def test_the_advice_about_a_parquet_file_beside_another_can_be_followed(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, column in (("a.parquet", "x"), ("b.parquet", "y")):
        parquet.write_table(pyarrow.table({column: list(range(30)), "way": ["up", "on", "off"] * 10}), tmp_path / name)
    with pytest.raises(DataError, match="a.parquet is a Parquet file with the columns x, way; .* such as way"):
        info.describe(tmp_path)
    for name in ("a.parquet", "b.parquet"):
        told = info.describe(tmp_path, options=[f"train_files={name}", "label=way"])
        assert "27 training examples" in told and "label way: off, on, up" in told
    parquet.write_table(pyarrow.table({"x": [[1], [2]]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet is a Parquet file with lists and structs only \(x\)"):
        info.describe(tmp_path)
    parquet.write_table(pyarrow.table({"x": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a.parquet has one column only: x; .* one other column$"):
        info.describe(tmp_path / "a.parquet", options=["label=x"])


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), (",", "commas")])
def test_a_list_of_sounds_with_other_separators_is_named_by_them(tmp_path, separator, name):
    (tmp_path / "0.wav").write_bytes(b"RIFF\0")
    columns = ["wav_filename", "wav_filesize", "transcript"]
    end = " " if separator == "," else ""
    (tmp_path / "list.csv").write_text(f"{separator.join(columns)}{end}\n0.wav{separator}5{separator}one\n")
    message = (
        f"separated by {name}; a list must have the columns {','.join(columns)}, separated by commas or tabs alone"
    )
    with pytest.raises(DataError, match=message):
        detect_format.detect(tmp_path)


@pytest.mark.parametrize("split", ["", "train/"])
def test_a_folder_without_images_beside_those_of_the_classes_is_named(tmp_path, split):
    for name in ("cat", "dog", "notes"):
        (tmp_path / split / name).mkdir(parents=True)
        (tmp_path / split / name / "0.png").write_bytes(b"\x89PNG")
    (tmp_path / split / "notes" / "0.png").rename(tmp_path / split / "notes" / "a.md")
    (tmp_path / "list.csv").write_text("file,label\ncat/0.png,cat\ndog/0.png,dog\n")
    with pytest.raises(
        DataError, match="images in 2 folders, and notes without an image; remove such folders, then read"
    ):
        detect_format.detect(tmp_path)
