"""Arrays that stay in their file.

The same rows as from memory, and an error where a memory map would crash.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.calibrators.blocks import sendable
from pseudocal.stored import ChangedFileError, StoredArray

SHAPES = [(7,), (7, 3), (7, 3, 2), (1, 4), (7, 0)]


def stored(path, array):
    np.save(path, array)
    return StoredArray.of_map(np.load(path, mmap_mode="r"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", "?", "<U5"])
def test_rows_are_those_of_the_array(tmp_path, shape, order, dtype):
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape).astype(dtype), order=order)
    x = stored(tmp_path / "x.npy", array)
    assert (x.shape, x.dtype, x.ndim, x.nbytes, len(x)) == (
        shape,
        array.dtype,
        array.ndim,
        array.nbytes,
        shape[0],
    )
    picks: list[Any] = [
        0,
        -1,
        slice(None),
        slice(2, 5),
        slice(5, 2),
        slice(None, None, -2),
        slice(100),
        [0, 0],
        np.array([], int),
    ]
    if shape[0] == 7:
        picks += [np.array([6, 0, 3]), np.int64(4)]
    for rows in picks:
        np.testing.assert_array_equal(x[rows], array[rows])
        assert x[rows].dtype == array[rows].dtype
    np.testing.assert_array_equal(np.asarray(x), array)
    np.testing.assert_array_equal(list(x), list(array))
    for row in (shape[0], -shape[0] - 1):
        with pytest.raises(IndexError):
            x[row]


def test_it_is_pickled_as_the_name_of_its_file(tmp_path, monkeypatch):
    array = np.random.default_rng(0).normal(size=(10_000, 4))
    np.save(tmp_path / "x.npy", array)
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(sendable(np.load("x.npy", mmap_mode="r")))
    monkeypatch.chdir("/")
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent), array)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_truncated_is_an_error(tmp_path, order):
    x = stored(tmp_path / "x.npy", np.asarray(np.ones((2000, 3)), order=order))
    os.truncate(tmp_path / "x.npy", 0)
    for rows in (0, slice(2), np.array([1999])):
        with pytest.raises(
            ChangedFileError, match=r"x\.npy, which changed while it was read: start again"
        ):
            x[rows]
    with pytest.raises(InputError):
        np.asarray(x)


def test_a_file_that_is_overwritten_is_an_error(tmp_path):
    x = stored(tmp_path / "x.npy", np.ones((5, 3)))
    assert x[0].sum() == 3
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    os.utime(tmp_path / "x.npy", ns=(1, 1))  # file systems have coarse clocks
    with pytest.raises(ChangedFileError):
        x[0]


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no open file")
def test_a_file_that_is_replaced_is_read_to_its_end(tmp_path):
    x = stored(tmp_path / "x.npy", np.ones((5, 3)))
    np.save(tmp_path / "y.npy", np.zeros((5, 3)))
    (tmp_path / "y.npy").replace(tmp_path / "x.npy")
    assert x[:].sum() == 15
