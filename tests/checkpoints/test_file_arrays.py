"""Arrays in files: their content, the memory of the process, and disks that are full or unsuitable."""

from __future__ import annotations

import errno
import os
import sys

import numpy as np
import pytest

from benchmarks.process_memory import rss_mib
from ps_trainer.checkpoints import file_arrays

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system has no such files")
FLOAT = np.dtype(np.float32)


def test_a_released_array_keeps_its_content_and_takes_no_memory(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("memory is measured on Linux only")
    array = file_arrays.allocate(2**26, FLOAT, tmp_path)  # 256 MiB
    before = rss_mib(os.getpid())
    array[:] = 1.5
    full = rss_mib(os.getpid())
    assert full - before > 200
    file_arrays.release(np.reshape(array, [-1, 64])[5:])
    assert rss_mib(os.getpid()) < full - 200
    assert array[0] == array[-1] == 1.5
    assert not list(tmp_path.iterdir())


def test_small_arrays_and_those_without_a_folder_lie_in_memory(tmp_path):
    assert file_arrays.allocate(file_arrays.LARGE_BYTES // 4 - 1, FLOAT, tmp_path) is None
    assert file_arrays.allocate(file_arrays.LARGE_BYTES // 4, FLOAT, None) is None
    array = np.ones([3], FLOAT)
    file_arrays.release(array)
    assert not file_arrays.is_in_file(array) and array.tolist() == [1, 1, 1]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_full_disk_is_an_error_and_an_unsuitable_one_is_not(tmp_path, monkeypatch, code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    monkeypatch.setattr(file_arrays, "LARGE_BYTES", 4)
    if code == errno.ENOSPC:
        with pytest.raises(OSError, match="No space left"):
            file_arrays.allocate(1, FLOAT, tmp_path)
    else:
        assert file_arrays.allocate(1, FLOAT, tmp_path) is None
    assert file_arrays.allocate(1, FLOAT, tmp_path / "missing") is None
