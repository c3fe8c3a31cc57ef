"""The search for the temperature ends, whatever the data.

Problems that once ran for ever, and slopes that lie.

Problems are solved in a child process, this file run as a script, so that a search that hangs is a
failure with the name of its problem rather than a test run that never ends.
"""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from pseudocal import PseudoCal, fit_temperature
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.scaling import temperature as temperature_module
from pseudocal.scaling.slope import Slope
from pseudocal.scaling.temperature import CLOSE, LOG_B, _root

LIMIT = 120  # seconds, for what takes a few


def one_mistake_in_4096() -> None:
    logits, labels = np.tile([[2.0, 0.0]], (4096, 1)), np.zeros(4096, dtype=int)
    labels[0] = 1
    scaling = fit_temperature(logits, labels)
    assert scaling.temperature == pytest.approx(2 / np.log(4095), rel=1e-6)
    assert scaling.bound is None


def accurate(accuracy: float) -> Callable[[], None]:
    def solve() -> None:
        for seed in range(20):
            rng = np.random.default_rng(seed)
            logits = 3 * rng.standard_normal((10_000, 5))
            labels = np.where(
                rng.random(10_000) < accuracy, logits.argmax(axis=1), rng.integers(0, 5, 10_000)
            )
            assert fit_temperature(logits, labels).bound is None

    return solve


def far_clusters() -> None:
    """Two well-separated clusters under PseudoCal.

    Hardly a mixup sample is wrong, or none, and then it says so.
    """
    warnings.simplefilter("ignore", UnreliableCalibrationWarning)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((20_000, 2)) + 5.5 * rng.choice([-1, 1], (20_000, 1))
        assert (
            PseudoCal(seed=seed)
            .fit(lambda x: x @ np.array([[1.0, -1.0], [1.0, -1.0]]), x)
            .temperature
            > 0
        )


PROBLEMS: dict[str, Callable[[], None]] = {
    "one mistake in 4096": one_mistake_in_4096,
    "accuracy 0.999": accurate(0.999),
    "accuracy 0.995": accurate(0.995),
    "far clusters": far_clusters,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_very_accurate_models_have_a_temperature(name):
    child = subprocess.run(
        [sys.executable, __file__, name], timeout=LIMIT, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("seed", range(200))
def test_a_hundred_looks_are_the_most_whatever_the_slopes_say(seed):
    rng, looks = random.Random(seed), []

    def lying(b: float) -> Slope:
        looks.append(b)
        value = rng.choice([-1, 1]) * 10 ** rng.uniform(-9, 9)
        return Slope(value, rng.choice([0.0, 10 ** rng.uniform(-12, 12)]), rng.uniform(-1, 1), 1.0)

    _root(lying, rng.choice([[0.0], [LOG_B[0], 0.5], [LOG_B[1], -3.0]]), CLOSE)
    assert len(looks) <= 100
    assert len(looks) - len(set(looks)) <= 1  # the last may be one of before


@pytest.mark.parametrize("side", [-1, 1])
def test_steps_that_creep_are_cut_short(side):
    """The slope keeps its sign up to a root far off, and says at every point that the root is close by."""
    looks = []

    def creeping(b: float) -> Slope:
        looks.append(b)
        return Slope(side * 8.0 ** -len(looks) if b * 4321 > 1 else -1.0, 1e3, 0.0, 1.0)

    log_b, _ = _root(creeping, [0.0], 1e-12)
    assert len(looks) <= 4 * 45
    assert LOG_B[0] <= log_b <= LOG_B[1]


def test_a_sample_without_a_mistake_costs_one_look_at_the_bound(monkeypatch):
    whole = []

    def counting(logits, targets, weights, rows, b):
        whole.extend([b] if rows is None else [])
        return slope(logits, targets, weights, rows, b)

    slope = vars(temperature_module)["slope"]
    monkeypatch.setattr(temperature_module, "slope", counting)
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((20_000, 5))
    labels = logits.argmax(axis=1)
    assert fit_temperature(logits, labels).bound == "lower"
    assert len(whole) == 1
    *_, sample, _ = temperature_module._samples(logits)
    wrong = np.setdiff1d(np.arange(20_000), sample)[:3]
    labels[wrong] = (labels[wrong] + 1) % 5
    whole.clear()
    assert fit_temperature(logits, labels).bound is None
    assert len(whole) <= 12  # it was without end


if __name__ == "__main__":
    PROBLEMS[sys.argv[1]]()
