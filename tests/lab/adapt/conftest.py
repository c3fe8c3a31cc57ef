from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.method import Preset, Problem
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import DescentPlan, descend, seeded
from pseudocal.lab.adapt.stages import _draw
from pseudocal.lab.adapt.tensors import Tensors, predict_tensors
from pseudocal.lab.data import Domain

CLASSES = 4
torch.set_num_threads(
    1
)  # these networks are tiny: threads that wait for each other cost more than they give


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@dataclass(frozen=True)
class Toy:
    """Gaussian clusters in 8 dimensions.

    The target's are moved and turned, so that source-only does badly.
    """

    source: Domain
    target: Domain


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy(clusters(0, shift=0.0), clusters(1, shift=2.0))


def clusters(seed: int, shift: float, rows: int = 200, classes: range = range(CLASSES)) -> Domain:
    rng = np.random.default_rng(seed)
    labels = rng.choice(list(classes), rows)
    centres = 2.0 * np.eye(CLASSES, 8)
    x = centres[labels] + 0.5 * rng.standard_normal((rows, 8)) + shift * np.eye(CLASSES, 8)[0]
    names = tuple(f"class {i}" for i in range(CLASSES))
    return Domain("toy", x.astype(np.float32), labels.astype(np.int64), names)


@dataclass(frozen=True)
class Outcome:
    network: Network
    method: nn.Module
    features: Tensor
    logits: Tensor
    accuracy: float

    @property
    def p(self) -> Tensor:
        return self.logits.softmax(dim=1)


@pytest.fixture(scope="session")
def adapt(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Train on feature rows directly: what the frozen mode does, without files."""
    never_written = tmp_path_factory.mktemp("adapt") / "none.safetensors"

    def run(
        preset: Preset,
        source: Domain | None,
        target: Domain,
        *,
        network: Network | None = None,
        iterations: int = 150,
        **extra: object,
    ) -> Outcome:
        rows = Tensors(target.inputs)
        with seeded(0):
            network = network or Network(nn.Identity(), build_head(preset.head, 8, 16, CLASSES))
            problem = Problem(CLASSES, network.head.width, rows)
            method = preset.method(problem, **{**preset.options, **extra})
        plan = DescentPlan(preset, 0, iterations, never_written, checkpoint_every=10**9)
        descend(network, method, _draw(source, rows, plan), plan)
        features, logits = predict_tensors(network, rows)
        accuracy = (logits.argmax(dim=1) == torch.from_numpy(target.labels)).float().mean().item()
        return Outcome(network, method, features, logits, accuracy)

    return run


@pytest.fixture
def images() -> tuple[Domain, Domain]:
    """Two small domains of 16 x 16 images: bars at four places, light on dark and dark on light."""
    return bars(0, flip=False), bars(1, flip=True)


def bars(seed: int, *, flip: bool, rows: int = 80) -> Domain:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    x = rng.integers(0, 60, (rows, 1, 16, 16))
    for i, label in enumerate(labels):
        x[i, 0, 4 * label : 4 * label + 3] += 180
    pixels = (255 - x if flip else x).astype(np.uint8)
    names = tuple(f"bar {i}" for i in range(CLASSES))
    return Domain("flipped" if flip else "plain", pixels, labels, names)
