"""The third stage.

Pseudo-target sets, made from the same pairs that `PseudoCal().fit(network, images)` would draw.

The previous stage has predicted the real images, so they are not predicted again: a pair is a pair
of row numbers here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Labelled, Logits, Predictor
from pseudocal.batches import DEFAULT_BATCH_SIZE, batches_of
from pseudocal.calibrators import ensemble
from pseudocal.lab.adapt.tensors import save_arrays
from pseudocal.lab.bench.calibrators import COMPARED, MixupVariant
from pseudocal.lab.bench.stages.predict import all_logits, image_predictor, load_classifier
from pseudocal.lab.bench.store import Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, shown
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.mixup import STRATEGIES, Pairs, WithinBatch, with_different_classes
from pseudocal.mixup.mixup import mixup
from pseudocal.predictors import as_predictor
from pseudocal.randomness import Streams

NORMALISATION = {
    "mean": 0.0,
    "std": 1 / 255,
}  # images have values 0 to 255, and the augmentations expect 0 to 1


def make_mixup(task: Task, name: str, store: Store) -> None:
    """Write `mixup_samples/NAME.npz`."""
    how = COMPARED[name].mixup_variant
    assert how is not None
    tasks = store.members(task) if COMPARED[name].needs_ensemble else [task]
    logits = _joined([load_arrays(store.folder(each) / "target.npz")["logits"] for each in tasks])
    if how.strategy == "PseudoCal":
        found = _mixup(task, tasks, how, logits, store)
    else:
        found = _alternative(task, how, logits, store)
    if len(found["labels"]) == 0:
        raise InputError(
            f"expected at least one row from {COMPARED[name].title}, got none of {len(logits)} pairs"
        )
    save_arrays(store.folder(task) / "mixup" / f"{name}.npz", **found)


def _mixup(
    task: Task, tasks: Sequence[Task], how: MixupVariant, logits: Logits, store: Store
) -> NamedArrays:
    """Mix every image with its partner, and keep the pairs with two different predicted classes."""
    images = domains_of(task, store)[1].inputs
    view = View(how.lam, task.seed)
    mixed = _joined(
        [
            all_logits(load_classifier(each, store), shown(each, images, view, store.device))
            for each in tasks
        ]
    )
    rows = np.arange(len(logits))
    kept = with_different_classes(Pairs(rows, logits, rows, view.partners(len(rows))))
    found = mixup(
        lambda _: mixed[kept.first], kept, lam=how.lam, labels=how.labels
    )  # already predicted
    return {
        "logits": found.logits,
        "labels": found.labels,
        "first": kept.first,
        "second": kept.second,
    }


def _alternative(task: Task, how: MixupVariant, logits: Logits, store: Store) -> NamedArrays:
    """Run another mixup variant of the paper's ablation, batch by batch."""
    strategy, predict, inputs = _strategy(task, how, store)
    streams = Streams(task.seed)
    pairing = WithinBatch(streams)
    parts = []
    for batch in batches_of(
        np.arange(len(logits)), DEFAULT_BATCH_SIZE, streams.order()
    ):  # of row numbers
        pairs = pairing.of(replace(batch, inputs=inputs[batch.rows]), logits[batch.rows])
        parts.append(strategy(predict, pairs, rng=streams.mixup_variant(batch.number)))
    labelled = [part for part in parts if len(part)]
    return {
        key: np.concatenate([getattr(part, key) for part in labelled or parts])
        for key in ("logits", "labels")
    }


def _strategy(
    task: Task, how: MixupVariant, store: Store
) -> tuple[Callable[..., Labelled], Predictor, Any]:
    """Return a mixup variant, its model and the inputs of that model.

    ManifoldMix mixes the features of the backbone.
    """
    images = domains_of(task, store)[1].inputs
    strategy = STRATEGIES[how.strategy]
    if how.strategy == "ManifoldMix":
        network = load_classifier(task, store)
        inputs = shown(task, images, View(), store.device)
        return partial(strategy, module=network, layer="backbone"), as_predictor(network), inputs
    settings = NORMALISATION if how.strategy in ("MocoV2Aug", "RandAug") else {}
    return partial(strategy, **settings), image_predictor(task, store), images


def _joined(logits: Sequence[Logits]) -> Logits:
    return ensemble(logits) if len(logits) > 1 else logits[0]
