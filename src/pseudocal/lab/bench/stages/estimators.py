"""Estimators of this package, PseudoCal as released, and a constant temperature.

`agreement`, `surrogate`, `mean-estimate` and `labels-50` need a second model: the next member of
the task's ensemble, trained with another seed. `write_estimates` collects what it says in one pass
over the target; each estimator then draws its own conclusion.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators import Calibration, PseudoCal, tempscal
from pseudocal.calibrators.agreement import Agreement
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.labels import LabelSample, rows_of_any_logits
from pseudocal.calibrators.surrogate import Surrogate
from pseudocal.files import save_json
from pseudocal.lab.adapt.tensors import Tensors, predict_arrays
from pseudocal.lab.bench.cached import CachedModel
from pseudocal.lab.bench.calibrators import CONSTANT, MixupVariant, find_compared
from pseudocal.lab.bench.stages.predict import all_logits, load_classifier
from pseudocal.lab.bench.store import Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, network_inputs
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.scaling import TemperatureScaling

LABELS = 50  # the labels of `labels-50`
RELEASED_BATCH = 108  # inputs of a batch in PseudoCal's released code
LAM = MixupVariant().lam  # the paper's weight of the larger input


def write_estimates(task: Task, seed: int, path: Path, store: Store) -> None:
    """Write what the mixup samples, a second model and a surrogate estimate.

    The features of the surrogate are those of the second model.
    """
    second = second_model(task, store)
    own_real, own_mixed = _outputs(task, seed, store)
    its_real, its_mixed = _outputs(second, seed, store)
    model = CachedModel(own_real["logits"], own_mixed["logits"])
    opinions = [
        CachedModel(its_real["logits"], its_mixed["logits"]),
        Surrogate(CachedModel(its_real["features"], its_mixed["features"])),
    ]
    method = PseudoCal(lam=LAM, epochs=1, seed=seed)
    evidence = method.collect(
        model, model.inputs, second_opinion=opinions, batch_size=DEFAULT_BATCH_SIZE
    )
    if evidence.mixup_samples.seen == 0:
        raise InputError(evidence.why_no_mixup_samples(None))
    agreement, surrogate = evidence.agreements
    estimates = {
        "mixup": evidence.temperature().temperature,
        "agreement": _about(agreement),
        "surrogate": _about(surrogate),
        "second seed": second.seed,
    }
    save_json(path, estimates)


def _about(agreement: Agreement) -> dict[str, Any]:
    return {
        "accuracy": agreement.accuracy,
        "error": agreement.error,
        "rate": agreement.rate,
        "shared": agreement.shared,
        "usable": agreement.usable,
    }


def second_model(task: Task, store: Store) -> Task:
    """Return the member of the task's ensemble after its own."""
    members = store.members(task)
    return members[(members.index(task) + 1) % len(members)]


def _outputs(task: Task, seed: int, store: Store) -> tuple[NamedArrays, NamedArrays]:
    """Read outputs on the target, and predict its mixup samples with the pairs of a seed."""
    images = domains_of(task, store)[1].inputs
    mixed = network_inputs(task, images, View(LAM, seed), store.device)
    network = load_classifier(task, store)
    real = load_arrays(store.folder(task) / "target.npz")
    return real, predict_arrays(network, Tensors(mixed, store.device))


def estimate(task: Task, name: str, path: Path, store: Store) -> Calibration:
    """Match the mean confidence to the accuracy that an estimator implies.

    As in `PseudoCal`, the temperature is that of the mixup samples if no opinion is usable.

    Args:
        task: the task.
        name: "agreement", "surrogate" or "mean-estimate", the plain mean of their accuracies, or a
            repetition of one of these.
        path: what `write_estimates` wrote.
        store: the output folder.

    """
    found = json.loads(path.read_text())
    estimator = find_compared(name).estimator
    opinions = ["agreement", "surrogate"] if estimator == "mean-estimate" else [estimator]
    usable = [found[each] for each in opinions if found[each]["usable"]]
    settings = {"second seed": found["second seed"], "estimator": "mixup"}
    if not usable:
        return Calibration(name, TemperatureScaling(found["mixup"]), settings)
    accuracy = float(np.mean([each["accuracy"] for each in usable]))
    error = float(np.mean([each["error"] for each in usable]))
    scaling = match_confidence(_target_logits(task, store), accuracy, error)
    return Calibration(name, scaling, settings | {"estimator": estimator, "accuracy": accuracy})


def refine_with_labels(
    task: Task,
    name: str,
    path: Path,
    labels_of: Callable[[NDArray[np.intp]], NDArray[Any]],
    store: Store,
) -> Calibration:
    """Refine the label-free estimates with labels of the rows that `rows_to_label` chooses.

    Args:
        task: the task.
        name: "labels-50", or a repetition of it.
        path: what `write_estimates` wrote.
        labels_of: looks the labels of rows up.
        store: the output folder.

    """
    logits = _target_logits(task, store)
    by_agreement = estimate(task, "agreement", path, store)
    estimates = {"mixup": json.loads(path.read_text())["mixup"]}
    if by_agreement.settings["estimator"] == "agreement" and not by_agreement.bound:
        estimates["agreement"] = by_agreement.temperature
    before = Calibration(name, by_agreement.scaling, estimates=estimates)
    seed = find_compared(name).seed(task.seed)
    rows = rows_of_any_logits(logits, min(LABELS, len(logits)), seed=seed)
    return before.refined(logits, LabelSample(rows, labels_of(rows), seed=seed))


def constant(task: Task, name: str, store: Store) -> Calibration:
    """Divide all logits by the same number in every task."""
    return Calibration(name, TemperatureScaling(CONSTANT))


def pseudocal_released(task: Task, name: str, store: Store) -> Calibration:
    """PseudoCal as its released code computes it (`first_batch_counts`)."""
    classes = _target_logits(task, store).argmax(axis=1)
    rng = np.random.default_rng(find_compared(name).seed(task.seed))
    order, partner = released_pairs(len(classes), rng)
    counts = first_batch_counts(classes[order] != classes[partner])
    if counts.sum() == 0:
        raise InputError(f"expected two predicted classes, got class {classes[0]} for all inputs")
    first = order[: len(counts)]
    second = partner[: len(counts)]
    images = domains_of(task, store)[1].inputs
    mixed = LAM * np.asarray(images[first], np.float32) + (1 - LAM) * np.asarray(
        images[second], np.float32
    )
    inputs = network_inputs(task, mixed, View(), store.device)  # other heads share the features
    logits = all_logits(load_classifier(task, store), inputs)
    rows = np.repeat(np.arange(len(counts)), counts)
    samples = Labelled(logits[rows], classes[first][rows])
    settings = {"lam": LAM, "batch_size": RELEASED_BATCH, "samples": int((counts > 0).sum())}
    return Calibration(name, tempscal(samples, reference=True).scaling, settings)


def released_pairs(
    n: int, rng: np.random.Generator, batch_size: int = RELEASED_BATCH
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Shuffle n rows into batches, and pair each row with one of its batch."""
    order = rng.permutation(n)
    batches = [order[start : start + batch_size] for start in range(0, n, batch_size)]
    return order, np.concatenate([rng.permutation(batch) for batch in batches])


def first_batch_counts(
    kept: NDArray[np.bool_], batch_size: int = RELEASED_BATCH
) -> NDArray[np.intp]:
    """Count how often each row of the first batch is used, as in PseudoCal's released code.

    That code keeps the pairs of two predicted classes. It notes their positions in their batch but
    looks them up among the samples of all batches, so every position points into the first batch.
    Three batches of two pairs, of which the first is kept once and the second twice:

    >>> first_batch_counts(np.array([True, False, False, True, False, True]), batch_size=2)
    array([1, 2])
    """
    positions = np.arange(len(kept)) % batch_size
    return np.bincount(positions[kept], minlength=min(batch_size, len(kept)))


def _target_logits(task: Task, store: Store) -> NDArray[Any]:
    return load_arrays(store.folder(task) / "target.npz")["logits"]


WITHOUT_SECOND_MODEL: dict[str, Callable[[Task, str, Store], Calibration]] = {
    "constant": constant,
    "pseudocal-released": pseudocal_released,
}
