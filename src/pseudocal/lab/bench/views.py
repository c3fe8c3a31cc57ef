"""What a network is shown: the images of a task's domains as they are, or mixed in pairs, or the features of them.

Above a frozen backbone every head of a target domain sees the same features, since who is mixed with whom depends on
the seed alone. So the features of each view are computed once for each (backbone, domain, view) and kept on disk; a
head keeps the pairs that it tells apart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.batches import blend
from pseudocal.lab.adapt.backbones import Backbone, Choice, build_backbone, compute_features, features_key
from pseudocal.lab.adapt.runs import seeded
from pseudocal.lab.bench.store import save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Domain, Indexable, cache_folder, load, partial_set
from pseudocal.synthesis import partners

BATCH_SIZE = 128  # of inputs that are paired with each other, as in `PseudoCal.fit`


@dataclass(frozen=True)
class View:
    """Images as they are, or each mixed with a partner.

    Attributes:
        lam: the larger share of a mix; None for the images as they are.
        seed: of the pairs.

    """

    lam: float | None = None
    seed: int = 0

    def of(self, images: Indexable) -> Indexable:
        """The images seen this way, one row for each of them."""
        if self.lam is None:
            return images
        return Mixed(images, self.partners(len(images)), self.lam)

    def partners(self, n: int) -> NDArray[np.intp]:
        """With whom each of n images is mixed: as `PseudoCal(seed=seed).fit` pairs the rows of an array."""
        return partners(n, batch_size=BATCH_SIZE, seed=self.seed)


@dataclass(frozen=True, eq=False)
class Mixed:
    """Row i is the mix of image i, the larger share, and its partner."""

    images: Indexable
    partner: NDArray[np.intp]
    lam: float

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the images."""
        return self.images.shape

    def __getitem__(self, rows: Any, /) -> NDArray[Any]:
        shares = np.concatenate([self.images[rows], self.images[self.partner[rows]]])
        first = np.arange(len(shares) // 2)
        mixed = blend(shares, first, first + len(first), self.lam)
        return np.asarray(mixed, dtype=np.float32)


def domains_of(task: Task, root: Path | None) -> tuple[Domain, Domain]:
    """Source and target with their labels; the target of a partial set has some of the classes only."""
    source, target = (_loaded(task.data, name, root) for name in (task.source, task.target))
    return source, partial_set(task.data, target) if task.scenario == "partial-set" else target


@lru_cache(maxsize=16)  # each is read once by a process
def _loaded(data: str, name: str, root: Path | None) -> Domain:
    return load(data, name, **({"root": root} if root else {}))[name]


@lru_cache(maxsize=4)
def backbone_of(name: str, weights: str, seed: int) -> Backbone:
    """The backbone that training starts from; the seed matters where its weights are drawn."""
    with seeded(seed):
        return build_backbone(Choice(name, weights)).eval()


def has_frozen_backbone(task: Task) -> bool:
    """Whether the backbone stays as it is, so that the head alone is trained."""
    return backbone_of(task.backbone, task.weights, task.seed).pretrained if task.frozen is None else task.frozen


def shown(task: Task, images: Indexable, view: View) -> Indexable:
    """What the trained part of a network gets to see of a view: its images, or the features of a frozen backbone."""
    return view_features(task, images, view) if has_frozen_backbone(task) else view.of(images)


def view_features(task: Task, images: Indexable, view: View) -> NDArray[np.float32]:
    """Features of a view, read from the cache folder if these images met these weights before."""
    backbone = backbone_of(task.backbone, task.weights, task.seed)
    name = features_key(backbone, images)
    if view.lam is not None:  # other pairs are other images
        pairs = hashlib.sha256(view.partners(len(images)).tobytes()).hexdigest()[:16]
        name = f"{name}-mixed-{view.lam}-{pairs}"
    path = cache_folder() / "features" / f"{name}.npy"
    if not path.exists():
        save_array(path, compute_features(backbone, view.of(images)))
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded
