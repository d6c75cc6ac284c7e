"""Ids of TensorFlow's requests: one generator serves the process, so that each request has another id."""

import contextlib
import ctypes
import logging
import pathlib
import subprocess
import sys
import threading

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.runtime import request_ids

WORD = (1 << 64) - 1


def untempered(word):
    """The word of the Mersenne Twister's (mt19937_64) state that gave an output."""
    for shift, mask in ((-43, WORD), (37, 0xFFF7EEE000000000), (17, 0x71D67FFFEDA60000), (-29, 0x5555555555555555)):
        there = word
        for _ in range(64):
            word = there ^ ((word << shift if shift > 0 else word >> -shift) & mask)
    return word


def follow(words):
    """The number of words that follow from the words 312, 311 and 156 places before them."""
    mixed = [(a & ~0x7FFFFFFF) | (b & 0x7FFFFFFF) for a, b in zip(words, words[1:], strict=False)]
    twisted = [(z >> 1) ^ (0xB5026F5AA96619E9 if z & 1 else 0) for z in mixed]
    return sum(last == middle ^ z for z, middle, last in zip(twisted, words[156:], words[312:], strict=False))


@pytest.fixture
def unpatched(monkeypatch):
    """Makes the next call repeat its work."""
    request_ids.make_unique.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    request_ids.make_unique.cache_clear()
    assert request_ids.make_unique()


def test_threads_of_one_request_each_draw_from_one_generator():
    assert request_ids.make_unique()
    library = ctypes.CDLL(str(pathlib.Path(tf.sysconfig.get_lib()) / "libtensorflow_cc.so.2"))
    new_id = library._ZN10tensorflow18GetUniqueRequestIdEv
    new_id.restype, new_id.argtypes = ctypes.c_uint64, ()
    ids = []
    for _ in range(1_000):
        thread = threading.Thread(target=lambda: ids.append(new_id()))
        thread.start()
        thread.join()
    assert len(set(ids)) == 1_000
    # Servers of other tests may draw in between; ids from different generators would not follow even once.
    assert follow([untempered(word) for word in ids]) > 0


# Runs each argument as a script in a forked process. They share one import of TensorFlow, which takes seconds.
FORK = """
import ctypes, mmap, os, pathlib, sys
import ps_trainer.training.task, tensorflow.compat.v1 as tf
from ps_trainer.runtime import request_ids
for script in sys.argv[1:]:
    if not os.fork():
        exec(script)
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0
"""
NEW_ID = """
library = ctypes.CDLL(str(pathlib.Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
print(library._ZN3tsl6random5New64Ev())
"""
READ_ONLY = """
library = ctypes.CDLL(str(pathlib.Path(tf.sysconfig.get_lib()) / request_ids._CALLER))
slot = request_ids._slots(library, {request_ids._PER_THREAD})[request_ids._PER_THREAD]
page = ctypes.addressof(slot) // mmap.PAGESIZE * mmap.PAGESIZE
assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ)
print(request_ids.make_unique())
"""


@pytest.fixture(scope="module")
def forked():
    """Output and log of two processes that draw an id, and of one whose table is read-only, each a line of output."""
    command = [sys.executable, "-c", FORK, NEW_ID, NEW_ID, READ_ONLY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_forked_tasks_do_not_share_the_generator(forked):
    (first, second, _), _ = forked
    assert int(first) != int(second)


def test_a_second_call_does_no_work(unpatched):
    assert request_ids.make_unique()
    request_ids.make_unique.cache_clear()
    assert request_ids.make_unique()


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        ("_PER_PROCESS", "_ZN3tsl6random5NewXYEv", "NewXY"),
        ("_CALLER", "libtensorflow_other.so.2", "libtensorflow_other"),
        ("_PER_THREAD", "_ZNK3xla9HloModule11RandomNew64Ev2", "HloModule"),
    ],
)
def test_an_unknown_build_is_left_unchanged_and_logged(unpatched, caplog, attribute, value, says):
    unpatched.setattr(request_ids, attribute, value)
    with caplog.at_level(logging.WARNING):
        assert not request_ids.make_unique()
    assert says in caplog.text
    assert "received twice" in caplog.text


def test_a_read_only_table_is_left_unchanged_and_logged(forked):
    (_, _, is_unique), log = forked
    assert is_unique == "False"
    assert "is on a read-only page" in log and "received twice" in log


MAPS = "1000-2000 r--p 00000000 08:01 12 /lib/a.so\n2000-3000 rw-p 00001000 08:01 12 /lib/a.so\n"


@pytest.mark.parametrize(
    ("address", "says"), [(0x1FFF, "read-only"), (0x2000, None), (0x2FFF, None), (0x3000, "does not list")]
)
def test_a_page_is_writable_where_the_kernel_reports_it(tmp_path, address, says):
    maps = tmp_path / "maps"
    maps.write_text(MAPS)
    with pytest.raises(OSError, match=says) if says else contextlib.nullcontext():
        request_ids._check_writable(address, maps)


def test_another_operating_system_is_left_unchanged_and_logged(unpatched, caplog):
    unpatched.setattr(request_ids.sys, "platform", "darwin")
    with caplog.at_level(logging.WARNING):
        assert not request_ids.make_unique()
    assert "this is darwin" in caplog.text
