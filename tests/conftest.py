"""Shared fixtures.

Logits with a known temperature, clusters and a cheap model for them, a session of Ray, a disk.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("any speed", parent=settings(), deadline=None)
settings.load_profile("any speed")  # a busy machine fails no test

# the key that signs records: not that of who runs the tests
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="pseudocal-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# a shell ignores Ctrl-C in its background jobs, and so would this process and all that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)

CENTRES = np.random.default_rng(1).normal(size=(10, 16))


def draw(n: int, classes: int, temperature: float, *, seed: int = 0, scale: float = 2.0):
    """Logits and labels with labels ~ softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    z = scale * rng.standard_normal((n, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(
        axis=1
    )  # the Gumbel trick: a draw from softmax(z)
    return z * temperature, labels


@pytest.fixture
def known():
    return draw


@pytest.fixture(scope="session")
def ray():
    ray = pytest.importorskip("ray")
    from pseudocal.distributed.ray_session import close_session, open_session

    assert open_session(num_cpus=2)
    yield ray
    close_session()


@pytest.fixture
def disk(tmp_path):
    """Make a small disk, and take it away afterwards."""
    mounted = []

    def make(size: str) -> Path:
        folder = tmp_path / f"disk {size}"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"):
            pytest.skip("only root may mount a small disk")
        if subprocess.run(words, capture_output=True).returncode:
            pytest.skip("no disk may be mounted here")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


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
