"""Passes over arrays.

Every float16 there is, memory maps that give their memory back, strips in order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pseudocal import metrics, passes
from pseudocal.passes import dot, let_go, on_threads, picked, row_sums, scaled, strips


@pytest.mark.parametrize("b", [1.0, 0.37, 9999.0, 1e-6, 1e5])
def test_every_finite_float16_is_widened_exactly(b):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 32)
    out = np.empty(finite.shape, dtype=np.float32)
    with np.errstate(under="ignore", over="ignore"):
        scaled(finite, b, out)
        np.testing.assert_allclose(
            out, finite.astype(np.float32) * np.float32(b), rtol=2e-7, atol=1e-37
        )


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(strange):
    z = np.array([[1.0, -2.0, strange, -3.0]], dtype=np.float16)
    out = np.empty(z.shape, dtype=np.float32)
    scaled(z, 2.0, out)
    np.testing.assert_array_equal(out, 2 * z.astype(np.float32))


@pytest.mark.parametrize("shape", [(0, 4), (1, 3), (819, 10), (1000, 19), (5, 20_000)])
def test_pieces_of_rows_add_up_as_whole_ones_do(shape):
    x = np.random.default_rng(0).normal(size=shape)
    sums = np.empty(shape[0])
    row_sums(x, sums)
    np.testing.assert_allclose(sums, x.sum(axis=1), atol=1e-11)


def test_strips_come_back_in_order(monkeypatch):
    monkeypatch.setattr(passes, "WORTHWHILE", 1)
    monkeypatch.setattr(passes, "cores", lambda: 3)
    parts = strips(range(0, 70, 7))
    assert len(parts) == 3
    with on_threads(3) as in_parallel:
        found = list(in_parallel(list, parts))
    assert [i for part in found for i in part] == list(range(0, 70, 7))


@pytest.mark.parametrize("n", [1, 8191, 8192, 8193, 40_000])
def test_pieces_of_a_product_add_up(n):
    x, y = np.random.default_rng(0).normal(size=(2, n))
    assert dot(x, y) == pytest.approx(np.sum(x * y), rel=1e-11)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_rows_that_were_let_go_are_still_there(tmp_path, mode):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(60_000.0).reshape(6000, 10))
    mapped = np.load(path, mmap_mode=mode)
    if mode != "r":
        mapped[17] = -1.0
    expected = np.array(mapped)
    let_go(mapped, 0, len(mapped))
    let_go(mapped[3000:], 10, 500)
    np.testing.assert_array_equal(mapped, expected)
    np.testing.assert_array_equal(picked(mapped, np.arange(0, 6000, 7)), expected[::7])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/smaps")
def test_a_pass_holds_little_of_a_memory_map(tmp_path, known):
    path = tmp_path / "z.npy"
    logits, labels = known(1000, 64, 2.0)
    np.save(path, np.tile(logits.astype(np.float16), (400, 1)))  # 51 MB
    mapped = np.load(path, mmap_mode="r")
    metrics.ece(metrics.Outcomes.from_logits(mapped, np.tile(labels, 400)))
    assert _mapped_bytes(path) < 8e6


def _mapped_bytes(path):
    """How much of a file lies in the memory of this process (Linux)."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(1024 * int(below.split()[1]) for below in lines if below.startswith("Rss"))
    raise AssertionError("expected the file among the maps")
