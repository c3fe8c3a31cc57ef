"""The third stage: pseudo-target sets, each from the same pairs that `PseudoCal().fit(network, images)` would draw.

What a network says of the real images was written by the stage before, so they are not predicted again: pairs are
pairs of row numbers here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Labelled, Logits, Predictor
from pseudocal.batches import shuffled, take
from pseudocal.calibrators import ensemble
from pseudocal.lab.adapt.files import save_arrays
from pseudocal.lab.bench.calibrators import COMPARED, Synthesis
from pseudocal.lab.bench.stages.predict import all_logits, image_predictor, load_classifier
from pseudocal.lab.bench.store import NamedArrays, Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, shown
from pseudocal.predictors import as_predictor
from pseudocal.synthesis import STRATEGIES, Pairs, apart, mixup, pairs_within

BATCH_SIZE = 128  # as in `PseudoCal.fit`
PIXELS = {"mean": 0.0, "std": 1 / 255}  # of images with values 0 to 255, for augmentations that expect 0 to 1


def synthesise(task: Task, name: str, store: Store) -> None:
    """Write `mixes/NAME.npz`."""
    how = COMPARED[name].synthesis
    assert how is not None
    tasks = store.members(task) if COMPARED[name].needs_ensemble else [task]
    logits = _joined([load_arrays(store.folder(each) / "target.npz")["logits"] for each in tasks])
    if how.strategy == "PseudoCal":
        found = _mixes(task, tasks, how, logits, store)
    else:
        found = _alternative(task, how, logits, store)
    if len(found["labels"]) == 0:
        raise InputError(f"expected at least one row from {COMPARED[name].title}, got none of {len(logits)} pairs")
    save_arrays(store.folder(task) / "mixes" / f"{name}.npz", **found)


def _mixes(task: Task, tasks: Sequence[Task], how: Synthesis, logits: Logits, store: Store) -> NamedArrays:
    """Mixup: every image has been mixed with its partner; the pairs that the model tells apart are kept."""
    images = domains_of(task, store.root)[1].inputs
    view = View(how.lam, task.seed)
    mixed = _joined([all_logits(load_classifier(each, store), shown(each, images, view)) for each in tasks])
    drawn = list(_row_pairs(logits, task.seed))
    first, second = np.concatenate([pairs.x for pairs in drawn]), np.concatenate([pairs.partner for pairs in drawn])
    kept = apart(Pairs(np.arange(len(logits)), logits, first, second))
    found = mixup(lambda _: mixed[kept.first], kept, lam=how.lam, labels=how.labels)  # the mixes are predicted already
    return {"logits": found.logits, "labels": found.labels, "first": kept.first, "second": kept.second}


def _alternative(task: Task, how: Synthesis, logits: Logits, store: Store) -> NamedArrays:
    """Another synthesis of the paper's ablation, batch by batch."""
    strategy, predict, inputs = _strategy(task, how, store)
    rng = np.random.default_rng(task.seed).spawn(4)[2]
    parts = [
        strategy(predict, replace(pairs, rows=take(inputs, pairs.rows)), rng=rng)
        for pairs in _row_pairs(logits, task.seed)
    ]
    labelled = [part for part in parts if len(part)]
    return {key: np.concatenate([getattr(part, key) for part in labelled or parts]) for key in ("logits", "labels")}


def _row_pairs(logits: Logits, seed: int) -> Iterator[Pairs]:
    """The pairs of each batch that `PseudoCal(seed=seed)` draws from an array, as row numbers."""
    rng = np.random.default_rng(seed).spawn(4)[0]
    yield from pairs_within(logits.__getitem__, shuffled(np.arange(len(logits)), BATCH_SIZE, rng), rng=rng)


def _strategy(task: Task, how: Synthesis, store: Store) -> tuple[Callable[..., Labelled], Predictor, Any]:
    """A synthesis, the model that it asks, and what that model is shown; ManifoldMix mixes what the backbone gives."""
    images = domains_of(task, store.root)[1].inputs
    strategy = STRATEGIES[how.strategy]
    if how.strategy == "ManifoldMix":
        network = load_classifier(task, store)
        return partial(strategy, module=network, layer="backbone"), as_predictor(network), shown(task, images, View())
    settings = PIXELS if how.strategy in ("MocoV2Aug", "RandAug") else {}
    return partial(strategy, **settings), image_predictor(task, store), images


def _joined(logits: Sequence[Logits]) -> Logits:
    return ensemble(logits) if len(logits) > 1 else logits[0]
