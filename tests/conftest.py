"""Shared fixtures: logits whose true temperature is known."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


def draw(n: int, classes: int, temperature: float, *, seed: int = 0, scale: float = 2.0):
    """Logits and labels with labels ~ softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    z = scale * rng.standard_normal((n, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # the Gumbel trick: a draw from softmax(z)
    return z * temperature, labels


@pytest.fixture
def known():
    return draw


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference numbers beside the checkout, where there is one."""
    folder = Path(os.environ.get("PSEUDOCAL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "facts").is_dir():
        pytest.skip("the folder of reference numbers is not here")
    return folder
