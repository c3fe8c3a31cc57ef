"""The third stage: run `PseudoCal.steps` and keep the mixup samples.

The previous stage has predicted the images, and the features of mixup samples are cached. So
`PseudoCal` is given a model that looks its logits up (`pseudocal.lab.bench.cached`). The fourth
stage concludes from the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pseudocal.arrays import InputError, Labelled, Logits, Predictor
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators import ensemble
from pseudocal.lab.adapt.tensors import save_arrays
from pseudocal.lab.bench.cached import CachedModel
from pseudocal.lab.bench.calibrators import MixupVariant, find_compared
from pseudocal.lab.bench.stages.estimators import write_estimates
from pseudocal.lab.bench.stages.predict import all_logits, image_predictor, load_classifier
from pseudocal.lab.bench.store import Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, network_inputs
from pseudocal.lab.data import Indexable
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.mixup import STRATEGIES, Pairs, Strategy
from pseudocal.predictors import as_predictor

# Images have values 0 to 255, and the augmentations expect 0 to 1.
NORMALISATION = {"mean": 0.0, "std": 1 / 255}


def write_mixup_samples(task: Task, name: str, store: Store) -> None:
    """Write `mixup/NAME.npz`: the logits and labels of the mixup samples of one calibrator."""
    compared = find_compared(name)
    if compared.needs_second:
        path = estimates_path(task, name, store)
        if not path.exists():  # several calibrators share it
            write_estimates(task, compared.seed(task.seed), path, store)
        return
    variant = compared.mixup_variant
    assert variant is not None
    tasks = models_behind(task, name, store)
    if variant.strategy == "PseudoCal":
        samples = _mix(task, tasks, variant, compared.seed(task.seed), store)
    else:
        samples = _augment(task, variant, compared.seed(task.seed), store)
    if len(samples["labels"]) == 0:
        n = len(target_logits(tasks, store))
        raise InputError(f"expected at least one row from {compared.title}, got none of {n} pairs")
    save_arrays(store.folder(task) / "mixup" / f"{name}.npz", **samples)


def estimates_path(task: Task, name: str, store: Store) -> Path:
    """Return the file of what a second model says, which several calibrators share."""
    repeat = find_compared(name).repeat
    number = f", repeat={repeat}" if repeat else ""
    return store.folder(task) / "mixup" / f"estimates{number}.json"


def models_behind(task: Task, name: str, store: Store) -> list[Task]:
    """List the tasks whose models a calibrator corrects: the task itself, or its ensemble."""
    if find_compared(name).needs_ensemble:
        return store.members(task)
    return [task]


def target_logits(tasks: Sequence[Task], store: Store) -> Logits:
    """Read the target logits of a model, or compute those of an ensemble."""
    return _mean([load_arrays(store.folder(each) / "target.npz")["logits"] for each in tasks])


def _mean(logits: Sequence[Logits]) -> Logits:
    if len(logits) == 1:
        return logits[0]
    return ensemble(logits)


def _mix(
    task: Task, tasks: Sequence[Task], variant: MixupVariant, seed: int, store: Store
) -> NamedArrays:
    """Mix every image with its partner, as PseudoCal does."""
    logits = target_logits(tasks, store)
    images = domains_of(task, store)[1].inputs
    view = View(variant.lam, seed)
    mixed = [
        all_logits(load_classifier(each, store), network_inputs(each, images, view, store.device))
        for each in tasks
    ]
    model = CachedModel(logits, _mean(mixed))
    method = variant.method(seed)
    steps = list(method.steps(model, model.inputs, batch_size=DEFAULT_BATCH_SIZE))
    samples = _concatenated([step.mixup_samples for step in steps])

    # The row numbers of each sample. PseudoCal drops the pairs with one predicted class.
    rows = np.concatenate([step.rows for step in steps])
    partner = view.partners(len(rows))
    classes = logits.argmax(axis=1)
    first = rows[classes[rows] != classes[partner[rows]]]
    return {**samples, "first": first, "second": partner[first]}


def _augment(task: Task, variant: MixupVariant, seed: int, store: Store) -> NamedArrays:
    """Run another mixup variant of the paper's ablation."""
    strategy, predict, inputs = _strategy(task, variant, store)

    def on_inputs(_: Predictor, pairs: Pairs, *, rng: np.random.Generator) -> Labelled:
        return strategy(predict, replace(pairs, inputs=inputs[pairs.ids]), rng=rng)

    model = CachedModel(target_logits([task], store))
    method = variant.method(seed)
    steps = method.steps(model, model.inputs, batch_size=DEFAULT_BATCH_SIZE, strategy=on_inputs)
    return _concatenated([step.mixup_samples for step in steps])


def _strategy(
    task: Task, variant: MixupVariant, store: Store
) -> tuple[Strategy, Predictor, Indexable]:
    """Return a mixup variant, its model and the inputs of that model.

    ManifoldMix mixes the features of the backbone.
    """
    images = domains_of(task, store)[1].inputs
    strategy = STRATEGIES[variant.strategy]
    if variant.strategy == "ManifoldMix":
        network = load_classifier(task, store)
        inputs = network_inputs(task, images, View(), store.device)
        return partial(strategy, module=network, layer="backbone"), as_predictor(network), inputs
    if variant.strategy in ("MocoV2Aug", "RandAug"):
        strategy = partial(strategy, **NORMALISATION)
    return strategy, image_predictor(task, store), images


def _concatenated(batches: Sequence[Labelled]) -> NamedArrays:
    """Join the mixup samples of all batches; there may be none."""
    filled = [batch for batch in batches if len(batch)] or batches[:1]
    return {
        "logits": np.concatenate([batch.logits for batch in filled]),
        "labels": np.concatenate([batch.labels for batch in filled]),
    }
