"""Shared fixtures: logits whose true temperature is known, and one Ray session on this machine."""

from __future__ import annotations

import logging
import os

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
def ray():
    ray = pytest.importorskip("ray")
    from pseudocal.distributed.ray_executor import QUIET

    os.environ.update(QUIET)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()
