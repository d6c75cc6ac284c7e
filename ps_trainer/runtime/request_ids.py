"""Makes the ids of TensorFlow's requests unique, without which a long run is broken off by chance.

TensorFlow marks every request of a step to a task with a 64-bit id, and a task refuses one whose id is among the
last 100,000 it saw: "The same RunGraph (Worker) request was received twice". The id is the first number of a
generator that belongs to the thread (`GetUniqueRequestId`, `ThreadLocalNew64`), every step of a session has a thread
of its own, and a generator's seed has 32 bits. So ids come from 2^32 values, not 2^64: once a task has had 100,000
requests, one in 43,000 is refused, and with it a step that may have been carried out in part elsewhere. Measured with
TensorFlow 2.21: 10 of 400,000 steps, where 8 are expected.

TensorFlow's library reaches the generator through its table of imported functions (ELF: the global offset table). Here
that entry gets the function that the library imports beside it, `New64`: one generator for the whole process.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

_CALLER = "libtensorflow_cc.so.2"
_CALLEE = "libtensorflow_framework.so.2"
_PER_THREAD = "_ZN3tsl6random16ThreadLocalNew64Ev"
_PER_PROCESS = "_ZN3tsl6random5New64Ev"
# Tags of an ELF library's dynamic section, from the generic ABI.
_DT_NULL, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_JMPREL = 0, 2, 5, 6, 23
_WORDS = 3  # 64-bit words of an entry in the relocation table, and in the symbol table


@functools.cache
def make_unique() -> bool:
    """Lets this process's requests have ids from one generator of 64 bits; call before a session is made.

    Returns:
        Whether they have. If not (another operating system or build of TensorFlow), a warning is logged: steps
        will be refused now and then.
    """
    try:
        _bind(_PER_THREAD, _PER_PROCESS)
    except (OSError, AttributeError, KeyError, LookupError, ValueError) as error:
        logging.warning(
            "TensorFlow %s gives requests ids that repeat, and this could not be mended here (%s: %s): on average one"
            " step in 43,000 is refused as 'received twice' and ends the run; keep checkpoints, and start it again",
            tf.__version__,
            type(error).__name__,
            error,
        )
        return False
    return True


def _bind(name: str, other: str) -> None:
    """Lets calls of the function `name` from TensorFlow's library reach `other`."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(f"known for 64-bit Linux only, this is {sys.platform}")
    folder = pathlib.Path(tf.sysconfig.get_lib())
    callee = ctypes.CDLL(str(folder / _CALLEE))
    slots = _slots(ctypes.CDLL(str(folder / _CALLER)), {name, other})
    for key in (name, other):
        if slots[key].value not in (_address(callee, key), _address(callee, other)):
            raise ValueError(f"{_CALLER} calls something else for {key}")
    _check_writable(ctypes.addressof(slots[name]))
    slots[name].value = slots[other].value


def _check_writable(address: int, maps: pathlib.Path = pathlib.Path("/proc/self/maps")) -> None:
    """Raises OSError where this process may not write to `address`, instead of ending by a signal.

    A library that was linked with `-z relro -z now` (a default of many distributions) has its table of imported
    functions on pages that the loader has made read-only.
    """
    for line in maps.read_text().splitlines():
        span, permissions = line.split()[:2]
        begin, end = (int(bound, 16) for bound in span.split("-"))
        if begin <= address < end:
            if "w" not in permissions:
                raise OSError(f"{_CALLER} has its table of imported functions on a page that is read-only")
            return
    raise OSError(f"{maps} knows nothing of the table of imported functions of {_CALLER}")


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def _slots(library: ctypes.CDLL, names: set[str]) -> dict[str, ctypes.c_uint64]:
    """The entries for imported functions `names` in a loaded library's global offset table, to read and to write."""
    # A handle of glibc's dlopen is a `struct link_map`: load address, name, dynamic section.
    load_address, _, dynamic = (ctypes.c_uint64 * _WORDS).from_address(library._handle)
    table = {}
    while (entry := (ctypes.c_uint64 * 2).from_address(dynamic))[0] != _DT_NULL:
        table[entry[0]] = entry[1]
        dynamic += ctypes.sizeof(entry)
    relocations = _entries(table[_DT_JMPREL], table[_DT_PLTRELSZ] // (8 * _WORDS))
    indices = relocations[:, 1] >> np.uint64(32)
    # First word of a symbol: offset of its name, 32 bits; type and visibility, 16; section, 16, of imports 0.
    symbols = _entries(table[_DT_SYMTAB], int(indices.max()) + 1)[indices.astype(np.int64), 0]
    found = {}
    for index in np.flatnonzero(symbols >> np.uint64(48) == 0):
        name = ctypes.string_at(table[_DT_STRTAB] + int(symbols[index] & np.uint64(0xFFFFFFFF))).decode()
        if name in names:
            found[name] = ctypes.c_uint64.from_address(load_address + int(relocations[index, 0]))
    return found


def _entries(address: int, number: int) -> np.ndarray:
    """`[number, 3]` words of 64 bits that begin at an address."""
    words = (ctypes.c_uint64 * (_WORDS * number)).from_address(address)
    return np.frombuffer(memoryview(words), dtype=np.uint64).reshape(number, _WORDS)
