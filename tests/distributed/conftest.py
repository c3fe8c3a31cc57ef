"""A cheap model and clusters for it to tell apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CENTRES = np.random.default_rng(1).normal(size=(10, 16))


@pytest.fixture
def model() -> Callable[[Any], Any]:
    """A linear classifier that is three times too sure of itself."""
    return linear()


def linear() -> Callable[[Any], Any]:
    centres = CENTRES

    def predict(x: Any) -> Any:  # a function inside a function, which workers need not import
        return 3 * (x @ centres.T - 0.5 * (centres**2).sum(axis=1))

    return predict


def clusters(n: int, seed: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(0, 10, n)] + 1.5 * rng.normal(size=(n, 16))


def npz_files(folder: Path, files: int, rows: int = 150) -> list[Path]:
    paths = [folder / f"{i:03d}.npz" for i in range(files)]
    for i, path in enumerate(paths):
        np.savez(path, x=clusters(rows, seed=100 + i))
    return paths
