"""The workloads on which ps_trainer runs beside its peers: sizes, one batch of each worker, and initial values.

Every contender computes the same: `peer_models.py` in TensorFlow, `peers/torch_models.py` in PyTorch,
`peers/paddle_models.py` in Paddle. So examples and initial values come from integer arithmetic, which gives the same
bits everywhere. A peer's environment has neither TensorFlow nor ps_trainer, so this file needs NumPy only.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Batch = dict[str, np.ndarray]

LEARNING_RATE = 0.001  # thousands of steps on one batch do not diverge, whatever the staleness

_SEED = 18
BITS = 24
MIXERS = (0x2C1B3C6D, 0x297A2D39)
_ROW_FACTOR, _COLUMN_FACTOR = 2_654_435_761, 10_166_253


class PeerWorkload(NamedTuple):
    """One workload.

    Attributes:
        what: Description of the training, in a few words.
        batch_size: Examples of a worker's step.
        num_dense: Parameters in dense variables.
        row_sizes: For each look-up of a table: number of distinct rows in worker 0's batch, and length of a row.
    """

    what: str
    batch_size: int
    num_dense: int
    row_sizes: Sequence[tuple[int, int]] = ()

    @property
    def pull_bytes(self) -> int:
        """Bytes of parameters that a step takes to the worker."""
        return 4 * self.num_dense + sum(4 * rows * size for rows, size in self.row_sizes)

    @property
    def push_bytes(self) -> int:
        """Bytes of gradients that a step takes from the worker, with the ids of rows, which it also asks for."""
        return 4 * self.num_dense + sum(rows * (4 * size + 8 + 8) for rows, size in self.row_sizes)


PEER_WORKLOADS = {
    "deep": PeerWorkload("40 dense layers 64×64", 32, 40 * (64 * 64 + 64)),
    "wide": PeerWorkload("4 dense layers 512×512", 32, 4 * (512 * 512 + 512)),
    "scalar": PeerWorkload("one scalar: a step without work", 1, 1),
    "large": PeerWorkload("16 MB of parameters, no arithmetic", 1, 4_000_000),
    "table": PeerWorkload("table 1,000,000×64, 32 rows a step", 32, 0, [(32, 64)]),
    "word2vec": PeerWorkload("word2vec, 50,000 words × 128, 64 negative samples", 1024, 0, [(283, 128), (272, 128)]),
    "wide_deep": PeerWorkload(
        "Wide & Deep, 1,000,000 hashes × 10, 26 fields",
        512,
        (260 * 64 + 64) + (64 * 32 + 32) + (32 + 1),
        [(2069, 10), (2069, 1)],
    ),
    "resnet": PeerWorkload("ResNet-20 on 32×32 pixels", 32, 269_722),
    "transformer": PeerWorkload("transformer, 2 layers, 5,000 words × 128", 16, 1_045_896, [(168, 128)]),
    "mlp": PeerWorkload("dense layers 784-256-256-10", 64, (784 * 256 + 256) + (256 * 256 + 256) + (256 * 10 + 10)),
    "logistic": PeerWorkload("logistic regression, 1,000,000 weights, 39 an example", 512, 1, [(2741, 1)]),
    "factorization": PeerWorkload(
        "matrix factorization, 100,000 users and items × 32", 1024, 0, [(275, 32), (308, 32)]
    ),
}


def batch(workload: str, worker: int) -> Batch:
    """Returns the batch that a worker repeats; every worker has its own.

    Args:
        workload: Key of `PEER_WORKLOADS`.
        worker: Index of the worker.
    """
    size = PEER_WORKLOADS[workload].batch_size
    random = np.random.default_rng((_SEED, worker, zlib.crc32(workload.encode())))

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    def integers(below: int, *shape: int) -> np.ndarray:
        return random.integers(below, size=shape, dtype=np.int64)

    def zipf(below: int, *shape: int) -> np.ndarray:
        # Words and users are chosen with such probabilities; a modulo keeps the head.
        return (random.zipf(1.3, shape) - 1) % below

    made: dict[str, Batch] = {}
    if workload in ("deep", "wide", "mlp"):
        width, classes = {"deep": (64, 64), "wide": (512, 512), "mlp": (784, 10)}[workload]
        made[workload] = {"features": floats(size, width), "label": integers(classes, size)}
    elif workload in ("scalar", "large"):
        made[workload] = {"features": floats(size, PEER_WORKLOADS[workload].num_dense)}
    elif workload == "table":
        # Distinct ids, so that each row is looked up once.
        ids = random.choice(1_000_000, size, replace=False).astype(np.int64)
        made[workload] = {"ids": ids, "features": floats(size, 64)}
    elif workload == "word2vec":
        made[workload] = {
            "center": zipf(50_000, size),
            "context": zipf(50_000, size),
            "negative": zipf(50_000, 64),
        }
    elif workload in ("wide_deep", "logistic"):
        fields = {"wide_deep": 26, "logistic": 39}[workload]
        made[workload] = {"ids": zipf(1_000_000, size, fields), "label": integers(2, size).astype(np.float32)}
    elif workload == "resnet":
        made[workload] = {"features": floats(size, 32, 32, 3), "label": integers(10, size)}
    elif workload == "transformer":
        made[workload] = {"tokens": zipf(5_000, size, 33)}
    elif workload == "factorization":
        made[workload] = {"user": zipf(100_000, size), "item": zipf(100_000, size), "label": floats(size)}
    return made[workload]


def factors(name: str, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two vectors of integers from which the initial value of a variable is mixed.

    Args:
        name: Name of the variable.
        shape: Its shape; all dimensions but the last count as rows.

    Returns:
        Int32 vectors, [rows] and [columns].
    """
    num_columns = int(shape[-1]) if shape else 1
    num_rows = int(np.prod(shape[:-1])) if shape else 1
    salt = zlib.crc32(name.encode())
    rows = (np.arange(num_rows, dtype=np.int64) * _ROW_FACTOR + salt) % 2**BITS
    columns = (np.arange(num_columns, dtype=np.int64) * _COLUMN_FACTOR) % 2**BITS
    return rows.astype(np.int32), columns.astype(np.int32)


def initial(name: str, shape: Sequence[int], scale: float) -> np.ndarray:
    """Returns the initial value of a variable: float32 between -scale and scale.

    Args:
        name: Name of the variable.
        shape: Its shape.
        scale: Largest absolute value; 0 gives zeros.
    """
    rows, columns = factors(name, shape)
    mixed = rows[:, np.newaxis] ^ columns
    for factor in MIXERS:
        mixed *= np.int32(factor)  # overflows on purpose, as in every framework
        mixed ^= mixed >> 13
    numbers = (mixed & (2**BITS - 1)).astype(np.float32)
    return ((numbers * np.float32(2.0 ** (1 - BITS)) - np.float32(1)) * np.float32(scale)).reshape(tuple(shape))
