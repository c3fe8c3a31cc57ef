"""The inputs of a network: images of a task's domains, mixup samples of them, or features.

Above a frozen backbone, all heads of a target domain see the same features, since the pairs depend
on the seed only. So features are computed once for each (backbone, domain, view) and cached on
disk; each head then keeps the pairs that it predicts to be of two different classes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.batches import DEFAULT_BATCH_SIZE, blend
from pseudocal.lab.adapt.backbones import Backbone, build_backbone, compute_features, features_key
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.runs import seeded
from pseudocal.lab.adapt.stages import cropped
from pseudocal.lab.adapt.training import find_preset
from pseudocal.lab.bench.store import Store, save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Domain, Indexable, cache_folder, load, partial_set
from pseudocal.lab.data.registry import load_own
from pseudocal.mixup import partners


@dataclass(frozen=True)
class View:
    """The original images, or each image mixed with a partner.

    Attributes:
        lam: the weight of the larger input; None for the original images.
        seed: the seed of the pairs.

    """

    lam: float | None = None
    seed: int = 0

    def of(self, images: Indexable) -> Indexable:
        """Apply the view to images; there is one row for each of them."""
        if self.lam is None:
            return images
        return Mixed(images, self.partners(len(images)), self.lam)

    def partners(self, n: int) -> NDArray[np.intp]:
        """Return the partner of each of n images, as `PseudoCal(seed=seed).fit` pairs them."""
        return partners(n, batch_size=DEFAULT_BATCH_SIZE, seed=self.seed)


@dataclass(frozen=True, eq=False)
class Mixed:
    """Mixup samples of images: row i mixes image i, the larger part, with its partner."""

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
        both = np.concatenate([self.images[rows], self.images[self.partner[rows]]])
        first = np.arange(len(both) // 2)
        mixed = blend(both, first, first + len(first), self.lam)
        return np.asarray(mixed, dtype=np.float32)


def domains_of(task: Task, store: Store) -> tuple[Domain, Domain]:
    """Load the source and the target with their labels.

    The target of a partial set has a subset of the classes.

    The source of a network that keeps its own classifier has no images here: only its classes are
    needed.
    """
    own = store.own_folder(task.data)
    place = (store.place(task.data), store.lists_of(task.data), store.prefix, own)
    target = _load_domain(task.data, task.target, *place)
    if find_preset(task.method, task.preset).own_classifier:
        nothing = np.empty((0, *target.inputs.shape[1:]), np.uint8)
        return Domain(task.source, nothing, target.labels[:0], target.classes), target
    source = _load_domain(task.data, task.source, *place)
    if task.scenario == "partial-set":
        target = partial_set(task.data, target)
    return source, target


@lru_cache(maxsize=16)  # each is read once per process
def _load_domain(
    data: str,
    name: str,
    root: Path | None,
    lists: Path | None,
    prefix: tuple[str, str] | None,
    own: Path | None,
) -> Domain:
    if own is not None:
        return cropped(load_own(own, name, prefix=prefix)[name])
    options: dict[str, Any] = {"root": root, "lists": lists, "prefix": prefix}
    given = {key: value for key, value in options.items() if value is not None}
    domains = load(data, name, **given)
    return cropped(domains[name])  # image files are decoded once


@lru_cache(maxsize=4)
def backbone_of(name: str, weights: str, seed: int) -> Backbone:
    """Build the backbone that training starts from.

    The seed matters only if its weights are random.
    """
    with seeded(seed):
        return build_backbone(Choice(name, weights)).eval()


def has_frozen_backbone(task: Task) -> bool:
    """Whether the backbone is frozen, so that only the head is trained."""
    if task.checkpoint is not None:
        return False
    if task.frozen is not None:
        return task.frozen
    return backbone_of(task.backbone, task.weights, task.seed).pretrained


def network_inputs(task: Task, images: Indexable, view: View, device: str = "cpu") -> Indexable:
    """Return the inputs of the trained part of a network.

    The images of a view, or their frozen features.
    """
    if has_frozen_backbone(task):
        return view_features(task, images, view, device)
    return view.of(images)


def view_features(
    task: Task, images: Indexable, view: View, device: str = "cpu"
) -> NDArray[np.float32]:
    """Compute the features of a view, or read them from the cache folder."""
    backbone = backbone_of(task.backbone, task.weights, task.seed)
    name = features_key(backbone, images)
    if view.lam is not None:  # other pairs give other mixup samples
        pairs = hashlib.sha256(view.partners(len(images)).tobytes()).hexdigest()[:16]
        name = f"{name}-mixed-{view.lam}-{pairs}"
    path = cache_folder() / "features" / f"{name}.npy"
    if not path.exists():
        save_array(path, compute_features(backbone, view.of(images), device=device))
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded
