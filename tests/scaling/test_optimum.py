"""`fit_temperature` against a plain bracketing solver on random problems, in a child process with a time limit.

The child is this file run as a script: `python tests/scaling/test_optimum.py FIRST LAST` solves the
problems of these numbers and names those that came out wrong. It says which one it is at, so a
search that hangs is named as well.
"""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import brentq

from pseudocal import fit_temperature
from pseudocal.scaling.temperature import LOG_B

DTYPES = (np.float16, np.float32, np.float64, np.longdouble, np.int32)
INTEGERS = (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)
ACCURACIES = (0.9, 0.97, 0.99, 0.995, 0.999, 0.9999, 1.0)
OFFSETS = (0.0, 0.0, 100.0, -100.0, 1e4, -1e4)


class Problem(NamedTuple):
    """Logits, labels and weights of one number."""

    logits: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None


def problem(number: int) -> Problem:
    """Rows of which a fraction is right and the others are anything.

    Or whose labels were drawn at a temperature.
    """
    rng = np.random.default_rng(number)
    n, classes, scale = (
        int(math.exp(rng.uniform(1, math.log(20_000)))),
        int(rng.integers(2, 12)),
        10 ** rng.uniform(-1.5, 2),
    )
    z = rng.standard_normal((n, classes)) * np.exp(
        rng.choice([0.0, 0.5]) * rng.standard_normal((n, 1))
    )
    labels = np.where(
        rng.random(n) < rng.choice(ACCURACIES), z.argmax(axis=1), rng.integers(0, classes, n)
    )
    if rng.random() < 0.2:
        labels = (z * 10 ** rng.uniform(-0.5, 1) + rng.gumbel(size=z.shape)).argmax(axis=1)
    dtype = DTYPES[rng.integers(len(DTYPES))]
    offset = rng.choice(OFFSETS) * rng.choice([1.0, rng.random()])
    logits = (z * scale + offset * (rng.random((n, 1)) < rng.choice([0.1, 1.0]))).astype(dtype)
    weights = None
    if rng.random() < 0.4:
        unit = float(rng.choice([1.0, 1e300, 1e-300, 1e-320, 1e-5]))
        weights = unit * np.maximum(rng.integers(0, 4, n), rng.random(n) < 0.1)
        weights[rng.integers(n)] = unit
    return Problem(logits, labels.astype(INTEGERS[rng.integers(len(INTEGERS))]), weights)


def reference(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> tuple[float, float]:
    """The temperature, 0 or infinite beyond the range, by bisection and the like.

    And how far it is determined.

    This is the largest slope that could be called zero, for the digits that float64 has, times how
    far T moves with it.
    """
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    at_label = z[np.arange(len(z)), labels.astype(int)]
    w = np.ones(len(z)) if weights is None else weights / weights.max()
    w = w / w.sum()

    def slope(log_b: float) -> float:
        e = np.exp(math.exp(log_b) * z)
        return float(w @ (np.einsum("rc,rc->r", e, z) / e.sum(axis=1) - at_label))

    low, high = slope(LOG_B[0]), slope(LOG_B[1])
    if high <= 0:
        return (0.0 if low < 0 else math.nan), 0.0
    if low >= 0:
        return math.inf, 0.0
    log_b = brentq(slope, *LOG_B, xtol=1e-13)
    change = (slope(log_b + 1e-4) - slope(log_b - 1e-4)) / 2e-4
    return math.exp(-log_b), 1e-14 * float(w @ np.abs(at_label)) / max(change, 1e-300)


def verdict(number: int) -> str | None:
    """What is wrong with the temperature of a problem."""
    one = problem(number)
    expected, loose = reference(*one)
    found = fit_temperature(one.logits, one.labels, weights=one.weights)
    if math.isnan(expected):  # the logits say nothing
        right = found.temperature == 1.0 and found.log_se == math.inf
    elif expected in (0.0, math.inf):
        right = found.bound == ("upper" if expected else "lower")
    else:
        near_an_end = min(abs(math.log(expected) + end) for end in LOG_B) < 1e-5
        right = near_an_end or abs(math.log(found.temperature / expected)) < 1e-5 + loose
    return None if right else f"problem {number}: expected {expected}, got {found}"


def solve(first: int, last: int) -> None:
    """Print what is wrong with each of these problems, and a last line when all are done."""
    warnings.simplefilter("error")
    for number in range(first, last):
        sys.stdout.write(f"at {number}\n")
        if wrong := verdict(number):
            sys.stdout.write(f"{wrong}\n")
    sys.stdout.write("done\n")


def solved(first: int, last: int, limit: float) -> list[str]:
    """What a child says of these problems."""
    try:
        child = subprocess.run(
            [sys.executable, "-u", __file__, str(first), str(last)],
            timeout=limit,
            capture_output=True,
            text=True,
        )
        lines = child.stdout.splitlines()
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"no end: {(late.stdout or b'').splitlines()[-1:]}")
    assert lines[-1:] == ["done"], (lines[-1:], child.stderr)
    return [line for line in lines[:-1] if not line.startswith("at ")]


def test_is_what_a_plain_solver_finds():
    assert solved(0, 300, limit=300) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20_000, 1_000))
def test_is_what_a_plain_solver_finds_20000_times(first):
    assert solved(first, first + 1_000, limit=900) == []


if __name__ == "__main__":
    solve(*map(int, sys.argv[1:]))
