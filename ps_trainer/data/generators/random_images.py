"""Random images with the labels of a known teacher."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.options import option

TEACHERS = ("linear", "mlp")
"""Kinds of teachers."""


class Synthetic(ArraySource):
    """Random images labelled by a known teacher, of any size and number of classes.

    Batches: "image" float32 [B, height, width, channels] in 0..1; "label" int64 [B].
    Every pixel is uniform over 0..255, independent of all others. With x the pixels in -1..1, the label is

        linear:  argmax(x @ A)            A [pixels, classes] normal
        mlp:     argmax(relu(x @ A) @ V)  A [pixels, hidden] normal, columns of norm 1;
                                          V [hidden, classes] normal, columns of mean 0 and norm 1

    The labels have no noise: a student that equals the teacher has 100 % accuracy. `softmax` has the form of the
    linear teacher, so with enough training images it comes as close to 100 % as desired. With few training images it
    misses test images near the border of two classes: it reaches about 86 % with 8,192 images after 3,000 steps, and
    92 % with 65,536 after 10,000 (batch 32, sgd at 0.5). With the labels of the mlp teacher `softmax` stays at about
    67 %, while `mlp` reaches 77 % (65,536 images, 8,000 steps, adam at 0.001) and still improves.

    Args:
        options: Sizes, teacher and seed.
        data_dir: Not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Synthetic`."""

        height: int = option(8, "height in pixels", least=1)
        width: int = option(8, "width in pixels", least=1)
        channels: int = option(1, "values per pixel", least=1)
        num_classes: int = option(10, "number of classes", least=2)
        num_train: int = option(8192, "number of training examples", least=1)
        num_test: int = option(1024, "number of test examples", least=1)
        teacher: str = option("linear", "kind of teacher that labels the images", choices=TEACHERS)
        # A single hidden unit has a weight of mean 0 for each class, which is 0.
        teacher_hidden: int = option(8, "number of hidden units of the mlp teacher", least=2)
        seed: int = option(0, "seed of the teacher and the images", least=0, below=2**32)

        def __post_init__(self) -> None:
            check_bytes(
                max(self.num_train, self.num_test) * (self.height * self.width * self.channels + 8),
                "num_train, num_test, height, width or channels",
            )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
        random = np.random.RandomState(options.seed)
        shape = (options.height, options.width, options.channels)
        teacher = _create_teacher(options, int(np.prod(shape)), random)
        arrays = []
        for num_examples in (options.num_train, options.num_test):
            images = random.randint(0, 256, (num_examples, *shape), np.uint8)
            labels = label_images(images, teacher)
            arrays.append({"image": images, "label": labels})
        super().__init__(*arrays, num_classes=options.num_classes)
        self.teacher = teacher


def label_images(images: np.ndarray, teacher: list[np.ndarray]) -> np.ndarray:
    """Computes the teacher's labels.

    Args:
        images: uint8 [n, height, width, channels].
        teacher: Weight matrices, applied in turn with ReLU between them.

    Returns:
        int64 [n].
    """
    # In slices, because float64 takes eight times the memory of the images.
    slices = np.array_split(images, -(-images.nbytes // 2**22))
    return np.concatenate([_teacher_logits(part, teacher).argmax(axis=1) for part in slices]).astype(np.int64)


def _teacher_logits(images: np.ndarray, teacher: list[np.ndarray]) -> np.ndarray:
    x = images.reshape(len(images), -1) / 127.5 - 1
    for weights in teacher[:-1]:
        x = np.maximum(x @ weights, 0)
    return x @ teacher[-1]


def _create_teacher(options: Synthetic.Options, num_pixels: int, random: np.random.RandomState) -> list[np.ndarray]:
    if options.teacher == "linear":
        return [random.normal(size=(num_pixels, options.num_classes))]
    hidden = random.normal(size=(num_pixels, options.teacher_hidden))
    out = random.normal(size=(options.teacher_hidden, options.num_classes))
    # The outputs of a ReLU are positive on average, which would give most images to a few classes. Columns with mean 0
    # and norm 1, over hidden units of equal strength, cancel that average.
    out -= out.mean(axis=0)
    return [hidden / np.linalg.norm(hidden, axis=0), out / np.linalg.norm(out, axis=0)]
