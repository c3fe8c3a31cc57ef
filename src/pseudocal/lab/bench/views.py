"""What is shown to a network of the target: images as they are, mirrored, or mixed in pairs.

Above a frozen backbone every head of a target domain sees the same of them, since who is mixed with whom depends on
the seed alone. So features of each view are computed once for each (backbone, domain, view) and kept on disk; a head
keeps the pairs that it tells apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.batches import blend
from pseudocal.lab.adapt.backbones import Backbone, Choice, build_backbone
from pseudocal.lab.adapt.features import compute_features, fingerprint
from pseudocal.lab.adapt.loop import seeded
from pseudocal.lab.adapt.rows import Indexable
from pseudocal.lab.bench.domains import domains_of
from pseudocal.lab.bench.store import save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Inputs, cache_folder
from pseudocal.synthesis import partners


@dataclass(frozen=True)
class View:
    """A kind of view: "real", "flipped", or "mixed" with a share and the seed of the pairs."""

    kind: str = "real"
    lam: float = 0.65
    seed: int = 0

    def __str__(self) -> str:
        return f"mixed-{self.lam}-{self.seed}" if self.kind == "mixed" else self.kind

    def of(self, images: Inputs) -> Indexable:
        """The images seen this way, one row for each of them."""
        if self.kind == "mixed":
            return Mixed(images, partners(len(images), seed=self.seed), self.lam)
        return Flipped(images) if self.kind == "flipped" else images


@dataclass(frozen=True, eq=False)
class Flipped:
    """Images mirrored left to right."""

    images: Inputs

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any, /) -> NDArray[Any]:
        return self.images[rows][..., ::-1]


@dataclass(frozen=True, eq=False)
class Mixed:
    """Row i is the mix of image i, the larger share, and its partner."""

    images: Inputs
    partner: NDArray[np.intp]
    lam: float

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any, /) -> NDArray[Any]:
        shares = np.concatenate([self.images[rows], self.images[self.partner[rows]]])
        first = np.arange(len(shares) // 2)
        mixed = blend(shares, first, first + len(first), self.lam)
        return np.asarray(mixed, dtype=np.float32)


@lru_cache(maxsize=4)
def backbone_of(name: str, weights: str, seed: int) -> Backbone:
    """The backbone that training starts from; the seed matters where its weights are drawn."""
    with seeded(seed):
        return build_backbone(Choice(name, weights)).eval()


def is_frozen(task: Task) -> bool:
    """Whether the backbone stays as it is."""
    return backbone_of(task.backbone, task.weights, task.seed).pretrained if task.frozen is None else task.frozen


def seen(task: Task, view: View, root: Path | None) -> Indexable:
    """What the trained part of a network is shown: a view of the target, or the features of it if so much is frozen."""
    images = domains_of(task, root)[1].inputs
    return features(task, images, view) if is_frozen(task) else view.of(images)


def features(task: Task, images: Inputs, view: View) -> NDArray[np.float32]:
    """Features of a view, read from the cache folder if these images met these weights before."""
    backbone = backbone_of(task.backbone, task.weights, task.seed)
    name = fingerprint(backbone, images)
    name = name if view.kind == "real" else f"{name}-{view}"
    path = cache_folder() / "features" / f"{name}.npy"
    if not path.exists():
        save_array(path, compute_features(backbone, view.of(images)))
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded
