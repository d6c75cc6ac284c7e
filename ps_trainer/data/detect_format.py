"""Detects the format of a file or folder from its content and names, by one function per format in `KNOWN_FORMATS`."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ps_trainer.data import detect_table, near_misses
from ps_trainer.data.formats import (
    census,
    cifar,
    criteo,
    idx,
    image_folder,
    libsvm,
    mnist,
    movielens,
    record_file,
    text,
    transcript_list,
)
from ps_trainer.data.pipeline.line_source import first_line, first_lines, head
from ps_trainer.errors import DataError

_LANGUAGE = "[a-z]{2}"  # ISO 639-1


class DetectedFormat(NamedTuple):
    """Format of a file or folder.

    Attributes:
        kind: Format in words.
        remarks: Sentences about the file or folder, found without a loader.
        dataset: Name of the dataset that reads it; None if something is missing, which `remarks` then name.
        options: Options of the dataset, each as `key=value`.
        data_dir: Value of the dataset's `--data_dir`.
    """

    kind: str
    remarks: tuple[str, ...] = ()
    dataset: str | None = None
    options: tuple[str, ...] = ()
    data_dir: pathlib.Path | None = None


Detector = Callable[[pathlib.Path], DetectedFormat | None]
"""Function that detects one format; it returns None for another one."""


def detect(path: pathlib.Path, options: Sequence[str] = ()) -> DetectedFormat:
    """Detects the format of a file, or of the files in a folder.

    Args:
        path: Path of the file or folder.
        options: Options of the dataset that the user gives, each as `key=value`.

    Raises:
        DataError: The path does not exist or cannot be read, or its format is unknown.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    given = dict(text.partition("=")[::2] for text in options)
    # Of a folder, the first file to train on that the user names shows the format.
    first = path / given.get("train_files", "").partition(",")[0]
    path = first if path.is_dir() and first.is_file() else path
    # Whoever names a label means a table.
    detectors: list[Detector] = [
        functools.partial(one, given=given) for one in (_detect_parquet, _detect_csv) if given.get("label")
    ]
    try:
        for detect_one in (*detectors, *KNOWN_FORMATS.values()):
            found = detect_one(path)
            if found is not None:
                return found
        near_miss = near_misses.describe(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if near_miss is not None:
        raise DataError(f"{path}: {near_miss}")
    known = "; ".join(KNOWN_FORMATS)
    what = "the folder holds no known dataset" if path.is_dir() else "the format of the file is unknown"
    raise DataError(f"{path}: {what}; known formats: {known}")


def _detect_idx(path: pathlib.Path) -> DetectedFormat | None:
    if path.is_dir():
        has_all = all(_any_of(path, prefix, kind, dims) for prefix, kind, dims in mnist.FILES)
        return DetectedFormat("images and labels in IDX files", (), "mnist", (), path) if has_all else None
    data = head(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in idx.TYPE_NAMES or not 1 <= data[3] <= 8:
        return None
    shape = idx.read_idx(path, num_dims=data[3]).shape
    remark = f"{idx.TYPE_NAMES[data[2]]} {list(shape)}: {shape[0]} items"
    whole = _detect_idx(path.parent)
    if whole is None:
        return DetectedFormat(
            "an IDX file", (remark, "datasets mnist and fashion_mnist need the folder of all four files")
        )
    return whole._replace(kind="an IDX file, one of a set", remarks=(remark,))


def _detect_cifar(path: pathlib.Path) -> DetectedFormat | None:
    folder = path if path.is_dir() else path.parent
    for cls in (cifar.Cifar10, cifar.Cifar100):
        names = [name for split in cls.file_names.values() for name in split]
        if path.is_file() and path.name not in names:
            continue
        for inner in (folder, folder / cls.folder_name):
            if all((inner / name).is_file() for name in names):
                return DetectedFormat(f"photographs in files of {cls.name}", (), cls.name, (), folder)
    return None


def _detect_movielens(path: pathlib.Path) -> DetectedFormat | None:
    folder = path if path.is_dir() else path.parent
    for form in movielens.FORMATS:
        if path.is_file() and path.name != form.file_name:
            continue
        found = [*folder.glob(form.file_name), *folder.glob(f"ml-*/{form.file_name}")]
        if found:
            options = ("ids=text",) if movielens.has_names(found[0], form) else ()
            kind = f"ratings in the format of MovieLens, {form.file_name}"
            guess = "a guess: the first column holds the users, the second the items"
            remarks = () if movielens.names_both(found[0], form) else (guess,)
            return DetectedFormat(kind, remarks, "movielens", options, folder)
    return None


def _detect_libsvm(path: pathlib.Path) -> DetectedFormat | None:
    return _line_files(path, libsvm.LINE, "sparse examples in the format of LIBSVM", "libsvm")


def _detect_criteo(path: pathlib.Path) -> DetectedFormat | None:
    found = _line_files(path, criteo.LINE, "clicks in the format of Criteo", "criteo")
    # Eight decimal digits match the pattern of hexadecimal hashes as well.
    if found is None or any(map(criteo.has_decimal_ids, _files_of(path))):
        found = _line_files(path, criteo.TEXT_LINE, "clicks in the format of Criteo, with other ids", "criteo")
        found = found and found._replace(options=(*found.options, "categories=text"))
    return found


def _detect_census(path: pathlib.Path) -> DetectedFormat | None:
    folder = path if path.is_dir() else path.parent
    names = census.Census.file_names.values()
    if path.is_file() and path.name.removesuffix(".gz") not in names:
        return None
    if not all(any((folder / (name + suffix)).is_file() for suffix in ("", ".gz")) for name in names):
        return None
    return DetectedFormat("people of the census income set", (), "census", (), folder)


def _detect_tfrecord(path: pathlib.Path) -> DetectedFormat | None:
    features = {file: found for file in _files_of(path) if (found := record_file.features_of(file)) is not None}
    if not features:
        return None
    files, first = list(features), next(iter(features.values()))
    if not first:
        remark = f"the first example of {files[0].name} has no feature; write the values as features of each example"
        return DetectedFormat("tf.train.Example in TFRecord files", (remark,))
    options = (f"features={','.join(first)}", *_splits(files))
    remark = f"{len(files)} files; the features are those of the first example: change what differs in others"
    remarks = (remark, *_left_out(_files_of(path), files))
    return DetectedFormat("tf.train.Example in TFRecord files", remarks, "tfrecord", options, _folder_of(path))


def _detect_image(path: pathlib.Path) -> DetectedFormat | None:
    if not path.is_dir():
        return None
    folder = path / "train" if (path / "train").is_dir() and (path / "test").is_dir() else path
    classes = [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")]
    has_images = [any(file.suffix.lower() in image_folder.SUFFIXES for file in one.rglob("*")) for one in classes]
    if len(classes) < 2 or not all(has_images):
        return None
    return DetectedFormat("images in a folder for each class", (), "image_folder", (), path)


def _detect_wav(path: pathlib.Path) -> DetectedFormat | None:
    lists = [path] if path.is_file() else sorted(path.glob("*.[ct]sv"))
    files = [file for file in lists if first_line(file) in transcript_list.HEADERS]
    if not files:
        return None
    alphabet = transcript_list.alphabet_of(files)
    options = (*_splits(files), *([f"alphabet={alphabet}"] if alphabet else []))
    return DetectedFormat("speech with transcripts", _left_out(lists, files), "wav", options, _folder_of(path))


def _detect_pairs(path: pathlib.Path) -> DetectedFormat | None:
    files = _files_of(path)
    if not files or not all(map(detect_table.has_sentence_pairs, files)):
        return None
    remark = (
        "a guess: the first column is translated into the second one; for the other direction exchange the columns of"
        " the file"
    )
    kind = "sentence pairs in two columns with a tab between them"
    remarks = (remark, "the third column, the attribution of the texts, is not read")
    has_third = any(detect_table.has_attributions(first_lines(file, 1)) for file in files)
    return DetectedFormat(kind, remarks[: 1 + has_third], "parallel_text", _splits(files), _folder_of(path))


def _detect_text(path: pathlib.Path) -> DetectedFormat | None:
    folder = path if path.is_dir() else path.parent
    for train, test in text.FORMS:
        shipped = [name + end for name in (train, test) if name for end in ("", ".gz")]
        is_there = any((folder / name).is_file() for name in shipped if name.startswith(train))
        if is_there and (path.is_dir() or path.name in shipped):
            return DetectedFormat("running text", (), "text", ("unit=word",) if train.startswith("ptb") else (), folder)
    return None


def _detect_parallel(path: pathlib.Path) -> DetectedFormat | None:
    folder = _folder_of(path)
    languages: dict[str, set[str]] = {}
    for file in sorted(folder.iterdir()):
        stem, _, language = file.name.removesuffix(".gz").rpartition(".")
        if file.is_file() and stem and re.fullmatch(_LANGUAGE, language) and first_line(file):
            languages.setdefault(stem, set()).add(language)
    pairs = {stem: tuple(sorted(both)) for stem, both in languages.items() if len(both) == 2}
    if path.is_file():
        pairs = {stem: both for stem, both in pairs.items() if path.name.startswith(f"{stem}.")}
    if not pairs or len(set(pairs.values())) != 1:
        return None
    # Two letters do not say which way to translate; English first is the order of the dataset's defaults.
    source, target = sorted(next(iter(pairs.values())), key=lambda language: (language != "en", language))
    names = _splits([pathlib.Path(stem) for stem in pairs])
    options = (f"source={source}", f"target={target}", *names, *(() if len(names) > 1 else ("test_files=",)))
    return DetectedFormat(
        f"text in the languages {source} and {target}, line by line",
        (f"to translate from {target} into {source}, exchange the values of source and target",),
        "parallel_text",
        options,
        folder,
    )


def _detect_other_text(path: pathlib.Path) -> DetectedFormat | None:
    files = [file for file in _files_of(path) if file.name.removesuffix(".gz").endswith(".txt")]
    if not files or not all(first_line(file) for file in files) or any(map(near_misses.columns_of, files)):
        return None
    remark = "a guess from the ending .txt; these files have no name that --dataset=text knows, so an option names them"
    return DetectedFormat("running text", (remark,), "text", _splits(files), _folder_of(path))


def _detect_csv(path: pathlib.Path, given: Mapping[str, str] = MappingProxyType({})) -> DetectedFormat | None:
    return _tables(path, detect_table.detect, given, "csv")


def _detect_parquet(path: pathlib.Path, given: Mapping[str, str] = MappingProxyType({})) -> DetectedFormat | None:
    return _tables(path, detect_table.detect_parquet, given, "parquet", "in Parquet files")


def _tables(
    path: pathlib.Path,
    detect_file: Callable[[pathlib.Path, Mapping[str, str]], detect_table.DetectedTable | None],
    given: Mapping[str, str],
    dataset: str,
    where: str = "",
) -> DetectedFormat | None:
    """Detects files that are all tables of the same columns; if the user names the label, other files may lie there."""
    files, is_named = _files_of(path), bool(given.get("label"))
    tables = {file: table for file in files if (table := detect_file(file, given)) is not None}
    if is_named:
        tables = {file: table for file, table in tables.items() if table.label in table.columns} or tables
    first = next(iter(tables.values()), None)
    same = [file for file, table in tables.items() if first is not None and table.columns == first.columns]
    if first is None or (len(same) < len(files) and not is_named):
        return None
    remarks = (f"a guess: the column {first.label} holds the labels; for another one, change label=…",)
    options = (*_splits(same), *first.options)
    kind = " ".join(filter(None, [f"a table of {len(first.columns)} columns", where]))
    return DetectedFormat(kind, (*remarks, *_left_out(files, same)), dataset, options, _folder_of(path))


# Strict tests come first. Criteo's training file has the name train.txt, too, which `_detect_text` would accept.
KNOWN_FORMATS: dict[str, Detector] = {
    "IDX files of MNIST and its relatives": _detect_idx,
    "CIFAR-10 and CIFAR-100 in the binary version": _detect_cifar,
    "MovieLens ratings": _detect_movielens,
    "The census income set, also called Adult": _detect_census,
    "Clicks in the format of Criteo": _detect_criteo,
    "Sparse examples in the format of LIBSVM": _detect_libsvm,
    "WAV files with lists of transcripts": _detect_wav,
    "TFRecord files of tf.train.Example": _detect_tfrecord,
    "Folders of images, one for each class": _detect_image,
    "Sentence pairs in files of two columns with a tab between them": _detect_pairs,
    "Running text: text8, the Penn Treebank, train.txt": _detect_text,
    "Aligned text in two languages, such as train.en and train.zh": _detect_parallel,
    "Tables with a column of labels, in Parquet files": _detect_parquet,
    "Tables with a column of labels, in files of commas, tabs, semicolons or pipes (CSV)": _detect_csv,
    "Running text under another name, in files *.txt": _detect_other_text,
}
"""Description of a format -> function that detects it; `detect` tries them in this order."""


def _any_of(folder: pathlib.Path, prefix: str, kind: str, num_dims: int) -> bool:
    return any((folder / name).is_file() for name in mnist.accepted_names(prefix, kind, num_dims))


def _line_files(path: pathlib.Path, pattern: str, kind: str, dataset: str) -> DetectedFormat | None:
    """Detects one file or a folder of files whose first lines match a pattern; files named `test` are to test on."""
    files = _files_of(path)
    if not files or not all(re.fullmatch(pattern, first_line(file)) for file in files):
        return None
    return DetectedFormat(kind, (), dataset, _splits(files), _folder_of(path))


def _files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Lists the file itself, or the files in a folder without those such as .DS_Store, and Spark's _SUCCESS."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith((".", "_")))


def _left_out(all_files: Sequence[pathlib.Path], files: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """Makes a remark on files beside those that the dataset reads."""
    others = [file.name for file in all_files if file not in files]
    return (f"other files are not read: {', '.join(others)}",) if others else ()


def _folder_of(path: pathlib.Path) -> pathlib.Path:
    return path if path.is_dir() else path.parent


def _splits(files: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """Makes the options that name the files. Of several files, those with `test` in their name are to test on."""
    names: dict[str, list[str]] = {"test_files": [], "train_files": []}
    for file in files:
        is_test = len(files) > 1 and "test" in file.name
        names["test_files" if is_test else "train_files"].append(file.name)
    return tuple(f"{key}={','.join(values)}" for key, values in sorted(names.items(), reverse=True) if values)
