"""Generators that write generated datasets as files, in formats that loaders read; `generate.py` lists them."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

from ps_trainer.data.formats import cifar, idx, libsvm, movielens, transcript_list
from ps_trainer.data.formats.mnist import FILE_PREFIX, accepted_names
from ps_trainer.data.generators.glyphs import Glyphs
from ps_trainer.data.generators.known_truth import PlantedRatings, PlantedWeights
from ps_trainer.data.generators.random_images import Synthetic
from ps_trainer.data.generators.telephone_tones import Tones
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.errors import OptionError
from ps_trainer.options import option

_MAX_IDX_CLASSES = 10
_LARGEST_RATING = 9.9999


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlyphOptions(Glyphs.Options):
    """Options of `Glyphs`; the generator rejects values that no file format can hold."""

    size: int = option(28, "height and width in pixels; with channels=3 it must be 32", least=8)
    channels: int = option(
        1, "values per pixel: 1 writes files like MNIST's, 3 writes files like CIFAR-10's", choices=(1, cifar.CHANNELS)
    )


def glyphs(options: GlyphOptions, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes pictures of printed digits: with channels=1 as MNIST's files, with channels=3 and size=32 as CIFAR-10's.

    Raises:
        OptionError: No format has this size and number of channels, or there are fewer training examples than files.
    """
    if len(options.characters) > _MAX_IDX_CLASSES:
        raise OptionError(f"characters={options.characters}: these files have at most {_MAX_IDX_CLASSES} classes")
    if options.channels == 1:
        return _write_idx(Glyphs(options), folder)
    if (options.size, options.channels) != (cifar.SIZE, cifar.CHANNELS):
        raise OptionError(
            f"size={options.size} channels={options.channels}: no file format has these; give channels=1 (any size)"
            f" for files like MNIST's, or size={cifar.SIZE} channels={cifar.CHANNELS} for files like CIFAR-10's"
        )
    num_files = len(cifar.Cifar10.file_names["train"])
    if options.num_train < num_files:
        raise OptionError(
            f"num_train={options.num_train} must be at least {num_files}, the number of CIFAR-10's training files"
        )
    source, files = Glyphs(options), []
    for split, names in cifar.Cifar10.file_names.items():
        images, labels = (np.array_split(source.arrays[split][key], len(names)) for key in ("image", "label"))
        for name, image, label in zip(names, images, labels, strict=True):
            files.append(folder / name)
            cifar.write(files[-1], image, label[:, np.newaxis])
    return files


def synthetic(options: Synthetic.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes random images labelled by a known teacher, as MNIST's files.

    Raises:
        OptionError: The images have more than one channel or more than 10 classes.
    """
    if options.channels != 1:
        raise OptionError(f"channels={options.channels}: files like MNIST's have one channel; give channels=1")
    if options.num_classes > _MAX_IDX_CLASSES:
        raise OptionError(f"num_classes={options.num_classes}: files like MNIST's have at most {_MAX_IDX_CLASSES}")
    return _write_idx(Synthetic(options), folder)


def planted_weights(options: PlantedWeights.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes sparse logistic regression in the format of LIBSVM: train.libsvm, test.libsvm; features from 1."""
    source, files = PlantedWeights(options), []
    for split, arrays in source.arrays.items():
        files.append(folder / f"{split}.libsvm")
        # LIBSVM itself reads only ascending indices.
        order = np.argsort(arrays["ids"], axis=1)
        ids, values = (np.take_along_axis(arrays[key], order, axis=1) for key in ("ids", "values"))
        libsvm.write(files[-1], np.where(arrays["label"], 1, -1), ids + 1, values)
    return files


def planted_ratings(options: PlantedRatings.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes ratings of low rank in the format of MovieLens 100K: u.data, training examples first; ids from 1.

    Ratings have four decimals, so that rounding adds no noise, and are limited to 0..9.9999, the range of the format.
    """
    splits = PlantedRatings(options).arrays.values()
    user, item, rating = (np.concatenate([split[key] for split in splits]) for key in ("user", "item", "rating"))
    path = folder / "u.data"
    movielens.write_u_data(path, user + 1, item + 1, np.clip(rating, 0, _LARGEST_RATING))
    return [path]


def tones(options: Tones.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes tones of telephone numbers, as WAV files with lists of transcripts: train.csv and test.csv."""
    files = []
    for split, arrays in Tones(options).arrays.items():
        sounds = [audio[:length] for audio, length in zip(arrays["audio"], arrays["num_samples"], strict=True)]
        transcripts = ["".join(map(str, ids[ids >= 0])) for ids in arrays["ids"]]
        files += transcript_list.write(folder, split, sounds, transcripts, options.sample_rate)
    return files


def _write_idx(source: ArraySource, folder: pathlib.Path) -> list[pathlib.Path]:
    files = []
    for split, prefix in FILE_PREFIX.items():
        arrays = source.arrays[split]
        for kind, array in (("images", arrays["image"][..., 0]), ("labels", arrays["label"].astype(np.uint8))):
            files.append(folder / accepted_names(prefix, kind, array.ndim)[0])
            idx.write_idx(files[-1], array)
    return files
