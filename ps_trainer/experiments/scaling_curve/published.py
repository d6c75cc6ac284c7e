"""What the literature says of scaling with the number of workers."""

from __future__ import annotations

from typing import NamedTuple

from ps_trainer.experiments.frame.published import Published, Tag

IMAGES_PER_STEP = 32

_OSDI = "Abadi et al. 2016 (OSDI), Fig. 8"
_BENCHMARKS = "TensorFlow's benchmarks of 2017, synchronous, 64 K80"
_GERON = "Géron 2017, chapter 12, credited to Dean"


class Speedup(NamedTuple):
    """A published speed-up over one worker, for the plot.

    Attributes:
        label: of whom, and how sure we are.
        num_workers: there.
        speedup: throughput over that of one worker.
    """

    label: str
    num_workers: int
    speedup: float


_RATE_1 = Published(
    what="images/s of one worker, Inception-v3, about", value=28, unit="", tag=Tag.SUMMARY, source=_OSDI
)
_RATE_50 = Published(what="the same of each of 50 workers, about", value=22, unit="", tag=Tag.SUMMARY, source=_OSDI)
_RATE_200 = Published(
    what="images/s of 200 workers together, of the order of", value=2300, unit="", tag=Tag.SUMMARY, source=_OSDI
)

PUBLISHED = (
    _RATE_1,
    _RATE_50,
    _RATE_200,
    Published(what="ps tasks in that experiment", value=17, unit="", tag=Tag.RECALLED, source=_OSDI),
    Published(what="median synchronous step over asynchronous, about", value=1.1, unit="", tag=Tag.SUMMARY,
              source=_OSDI),
    *(
        Published(what=f"{name}: {images:g} images/s on 1, and on 64", value=on_64, unit="images/s", tag=Tag.READ,
                  source=_BENCHMARKS)
        for name, images, on_64 in (("Inception-v3", 29.7, 1783), ("ResNet-50", 52.4, 2744), ("ResNet-152", 19.4, 981))
    ),
    Published(what="dense models on 50 GPUs, speed-up of 25 to", value=40, unit="", tag=Tag.READ, source=_GERON),
    Published(what="sparse models on 500 machines, speed-up", value=300, unit="", tag=Tag.READ, source=_GERON),
    Published(what="Inception on 50 GPUs, speed-up", value=32, unit="", tag=Tag.READ, source=_GERON),
)  # fmt: skip

SPEEDUPS = (
    Speedup(f"OSDI '16 [{Tag.SUMMARY.value}: summary], 50 workers", 50, 50 * _RATE_50.value / _RATE_1.value),
    Speedup(f"OSDI '16 [{Tag.SUMMARY.value}: summary], 200 workers", 200, _RATE_200.value / _RATE_1.value),
    Speedup(f"Inception, Géron [{Tag.READ.value}: read]", 50, 32),
    Speedup(f"Inception-v3, TF benchmarks [{Tag.DERIVED.value}: derived]", 64, 1783 / 29.7),
)
