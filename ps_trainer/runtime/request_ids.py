"""Makes the ids of TensorFlow's requests unique; repeated ids would end a long run by chance.

TensorFlow gives every request of a step to a task a 64-bit id. A task rejects a request whose id is among the last
100,000 that it saw: "The same RunGraph (Worker) request was received twice". The id is the first number of a generator
that belongs to the thread (`GetUniqueRequestId`, `ThreadLocalNew64`). Every step of a session runs in a new thread, and
a generator's seed has 32 bits. So the ids come from 2^32 values, not 2^64. After 100,000 requests a task rejects one in
43,000. Other tasks may have run a part of the rejected step by then. Measured with TensorFlow 2.21: 10 of 400,000
steps, where 8 are expected.

TensorFlow's library calls the generator through its table of imported functions (ELF: the global offset table). This
module writes another imported function into that entry: `New64`, which has one generator for the whole process.
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
_WORDS_PER_ENTRY = 3  # 64-bit words of an entry in the relocation table, and in the symbol table


@functools.cache
def make_unique() -> bool:
    """Gives this process's requests ids from one 64-bit generator. Call this before a session is created.

    Returns:
        Whether that was possible. If not (another operating system or build of TensorFlow), the function logs a
        warning, and ps tasks will reject single steps.
    """
    try:
        _bind(_PER_THREAD, _PER_PROCESS)
    except (OSError, AttributeError, KeyError, LookupError, ValueError) as error:
        logging.warning(
            "TensorFlow %s gives requests ids that repeat, and ps_trainer could not fix that here (%s: %s): on average"
            " one step in 43,000 is rejected as 'received twice' and ends the run; keep checkpoints, and restart it",
            tf.__version__,
            type(error).__name__,
            error,
        )
        return False
    return True


def _bind(name: str, other: str) -> None:
    """Redirects calls of the function `name` from TensorFlow's library to `other`."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(f"the fix works on 64-bit Linux only, this is {sys.platform}")
    folder = pathlib.Path(tf.sysconfig.get_lib())
    callee = ctypes.CDLL(str(folder / _CALLEE))
    slots = _slots(ctypes.CDLL(str(folder / _CALLER)), {name, other})
    for key in (name, other):
        # The entry of `name` may hold the address of `other` already, from an earlier call in this process.
        if slots[key].value not in (_address(callee, key), _address(callee, other)):
            raise ValueError(f"{_CALLER} imports an unexpected function for {key}")
    _check_writable(ctypes.addressof(slots[name]))
    slots[name].value = slots[other].value


def _check_writable(address: int, maps: pathlib.Path = pathlib.Path("/proc/self/maps")) -> None:
    """Raises OSError if this process may not write to `address`; writing would end the process by a signal.

    Many distributions link libraries with `-z relro -z now`. The loader then makes the pages with the table of imported
    functions read-only.
    """
    for line in maps.read_text().splitlines():
        span, permissions = line.split()[:2]
        begin, end = (int(bound, 16) for bound in span.split("-"))
        if begin <= address < end:
            if "w" not in permissions:
                raise OSError(f"the table of imported functions of {_CALLER} is on a read-only page")
            return
    raise OSError(f"{maps} does not list the table of imported functions of {_CALLER}")


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def _slots(library: ctypes.CDLL, names: set[str]) -> dict[str, ctypes.c_uint64]:
    """Returns the entries of imported functions in a loaded library's global offset table, to read and to write."""
    # A handle from glibc's dlopen is a `struct link_map`: load address, name, dynamic section.
    load_address, _, dynamic = (ctypes.c_uint64 * _WORDS_PER_ENTRY).from_address(library._handle)
    table = {}
    while (entry := (ctypes.c_uint64 * 2).from_address(dynamic))[0] != _DT_NULL:
        table[entry[0]] = entry[1]
        dynamic += ctypes.sizeof(entry)
    relocations = _entries(table[_DT_JMPREL], table[_DT_PLTRELSZ] // (8 * _WORDS_PER_ENTRY))
    indices = relocations[:, 1] >> np.uint64(32)
    # First word of a symbol: offset of its name, 32 bits; type and visibility, 16; section, 16 (0 for imports).
    symbols = _entries(table[_DT_SYMTAB], int(indices.max()) + 1)[indices.astype(np.int64), 0]
    found = {}
    for index in np.flatnonzero(symbols >> np.uint64(48) == 0):
        name = ctypes.string_at(table[_DT_STRTAB] + int(symbols[index] & np.uint64(0xFFFFFFFF))).decode()
        if name in names:
            found[name] = ctypes.c_uint64.from_address(load_address + int(relocations[index, 0]))
    return found


def _entries(address: int, number: int) -> np.ndarray:
    """Returns the 64-bit words from an address on, as an array `[number, 3]`."""
    words = (ctypes.c_uint64 * (_WORDS_PER_ENTRY * number)).from_address(address)
    return np.frombuffer(memoryview(words), dtype=np.uint64).reshape(number, _WORDS_PER_ENTRY)
