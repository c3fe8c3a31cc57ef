"""The fourth stage: fit calibrators.

Each gets the data that it declares; target labels are not available.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pseudocal.arrays import InputError, Labelled, Logits, as_logits, check_rows
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators import (
    CALIBRATORS,
    Calibration,
    Corrected,
    Material,
    Part,
    calibrate_by_name,
)
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.files import replacing, save_json
from pseudocal.lab.adapt.networks import Head, Network
from pseudocal.lab.adapt.training import find_preset
from pseudocal.lab.bench.cached import saved_evidence
from pseudocal.lab.bench.calibrators import find_compared, takes_seed
from pseudocal.lab.bench.segmentation_tasks import split_source, target_scenes
from pseudocal.lab.bench.stages.estimators import WITHOUT_SECOND_MODEL, estimate
from pseudocal.lab.bench.stages.mixup import estimates_path, models_behind, target_logits
from pseudocal.lab.bench.stages.predict import (
    load_classifier,
    load_whole_network,
    write_outputs,
)
from pseudocal.lab.bench.store import Store, load_arrays, save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, network_inputs
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.lab.plugins import calibrator_hash
from pseudocal.lab.segmentation import load_segmenter
from pseudocal.lab.segmentation.comparison import FITS, SEGMENTATION_CALIBRATORS, at_full_size

PartReader = Callable[[Task, Store], Any]
Fitted = Calibration | Logits  # corrected logits if a calibrator finds no map of logits
DROPOUT = 0.5  # before the classifier, if a head has no dropout of its own


def calibrate_with(task: Task, name: str, store: Store) -> None:
    """Write `calibrations/NAME.json`, or the logits as `.npy` if a calibrator returns logits."""
    path = store.folder(task) / "calibrations" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    if task.segments and name == "ensemble":  # its maps are too large to store: only its seeds
        save_json(path, {"seeds": [member.seed for member in store.members(task)]})
    elif task.segments:
        _calibrate_segmenter(task, name, store).save(path)
    else:
        save_fitted(task, name, fit_calibrator(task, name, store), store)


def fit_calibrator(task: Task, name: str, store: Store) -> Fitted:
    """Fit a calibrator that sees no target labels to the outputs of a classifier.

    Args:
        task: the task.
        name: the name of the calibrator, as a suite has it.
        store: the output folder; nothing is written to it.

    """
    compared = find_compared(name)
    if compared.mixup_variant is not None:
        return _conclude(task, name, store)
    if compared.needs_second:
        return estimate(task, name, estimates_path(task, name, store), store)
    if compared.estimator:
        return WITHOUT_SECOND_MODEL[compared.estimator](task, name, store)
    return checked_fit(task, name, calibrate_listed(task, name, store), store)


def checked_fit(task: Task, name: str, corrected: Corrected, store: Store) -> Fitted:
    """Return what a calibrator found, if its logits can be scored."""
    logits = as_logits(corrected.logits)
    check_rows(logits)
    expected = _target(task, store)["logits"].shape
    if logits.shape != expected:
        raise InputError(f"expected corrected logits {expected} from {name}, got {logits.shape}")
    if corrected.calibration is not None:
        return corrected.calibration
    return logits


def save_fitted(task: Task, name: str, fitted: Fitted, store: Store) -> None:
    """Write what a calibrator found and, of a plugin's, the hash of its code."""
    folder = store.folder(task)
    path = folder / "calibrations" / f"{name}.json"
    if isinstance(fitted, Calibration):
        fitted.save(path)
    else:
        save_array(path.parent / f"{name}.npy", fitted)
    code = calibrator_hash(find_compared(name).calibrator)
    if code is not None:
        with replacing(path.parent / f"{name}.code") as aside:
            aside.write_text(code)


def is_outdated(folder: Path, name: str) -> bool:
    """Whether the plugin of a calibrator was edited after its result was written.

    Args:
        folder: the folder of a task.
        name: the name of the calibrator, as a suite has it.

    """
    code = calibrator_hash(find_compared(name).calibrator)
    if code is None or not any(path.exists() for path in results_of(folder, name)):
        return False
    path = folder / "calibrations" / f"{name}.code"
    return not path.exists() or path.read_text() != code


def results_of(folder: Path, name: str) -> tuple[Path, Path]:
    """The two files one of which has the result of a calibrator."""
    calibrations = folder / "calibrations"
    return calibrations / f"{name}.json", calibrations / f"{name}.npy"


def calibrate_listed(
    task: Task, name: str, store: Store, readers: Mapping[Part, PartReader] | None = None
) -> Corrected:
    """Run a calibrator of the library or of a plugin on the outputs in the store.

    Args:
        task: the task.
        name: the name of the calibrator, as a suite has it.
        store: the output folder.
        readers: how to read further parts: the score stage adds target labels.

    """
    compared = find_compared(name)
    if compared.calibrator not in CALIBRATORS:
        raise InputError(f"expected a known calibrator, got {name!r}: name its file with --plugin")
    settings = dict(compared.settings)
    if takes_seed(compared.calibrator):
        settings["seed"] = compared.seed(task.seed)
    material = material_for(compared.calibrator, task, store, readers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableCalibrationWarning)  # the verdict is in the file
        return calibrate_by_name(compared.calibrator, material, **settings)


def load_fitted_segmenter(task: Task, store: Store) -> Any:
    """Load the segmenter of a task, at the size of its output or, on request, of its images."""
    model = load_segmenter(store.folder(task.training)).to(store.device)
    return at_full_size(model) if dict(task.options).get("full_size", False) else model


def _calibrate_segmenter(task: Task, name: str, store: Store) -> Calibration:
    compared = find_compared(name)
    base = compared.calibrator
    if base not in FITS:
        known = ", ".join(SEGMENTATION_CALIBRATORS)
        raise InputError(f"expected a calibrator for segmentation among {known}, got {name!r}")
    model = load_fitted_segmenter(task, store)
    source_val = split_source(task, store)[1]
    target = target_scenes(task, store).unlabelled()
    per_image = dict(task.options)["pixels_per_image"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableCalibrationWarning)  # the verdict is in the file
        return FITS[base](model, source_val, target, per_image, compared.seed(task.seed))


def _conclude(task: Task, name: str, store: Store) -> Calibration:
    """Conclude PseudoCal from the mixup samples that the previous stage has written."""
    compared = find_compared(name)
    variant = compared.mixup_variant
    assert variant is not None
    samples = load_arrays(store.folder(task) / "mixup" / f"{name}.npz")
    real = target_logits(models_behind(task, name, store), store)
    method = variant.method(compared.seed(task.seed))
    evidence = saved_evidence(method, real, Labelled(samples["logits"], samples["labels"]))
    settings: dict[str, Any] = {"batch_size": DEFAULT_BATCH_SIZE}
    if variant.strategy != "PseudoCal":  # it has its own weights and labels
        settings |= {"lam": None, "labels": None, "strategy": variant.strategy}
    return replace(method.conclude(evidence, settings), method=name)


def material_for(
    name: str, task: Task, store: Store, readers: Mapping[Part, PartReader] | None = None
) -> Material:
    """Read the parts that a calibrator declares, and no others, from the store."""
    known = {**PART_READERS, **HEAD_ONLY.get(name, {}), **(readers or {})}
    return Material(**{part: known[part](task, store) for part in CALIBRATORS[name].parts})


def _target(task: Task, store: Store) -> NamedArrays:
    return load_arrays(store.folder(task) / "target.npz")


def _source(task: Task, store: Store, part: str = "source_val") -> NamedArrays:
    """Read outputs on the source.

    After SHOT they are computed when a calibrator asks, as in the paper's appendix.
    """
    path = store.folder(task) / f"{part}.npz"
    if not path.exists():
        own = find_preset(task.method, task.preset).own_classifier
        if task.method != "shot" or own or not store.has_model(task):
            raise InputError(
                f"expected source data, got {task.method}, {task.scenario}, which has none"
            )
        write_outputs(part, task, store)
    return load_arrays(path)


def _labelled_source(task: Task, store: Store) -> Labelled:
    arrays = _source(task, store)
    return Labelled(arrays["logits"], arrays["labels"])


def _with_dropout(task: Task, store: Store) -> Network:
    """Load the network for MC-Dropout.

    With its own dropout layers, or one added before the classifier.
    """
    network = load_classifier(task, store)
    if any(isinstance(module, _DropoutNd) and module.p > 0 for module in network.modules()):
        return network
    head = network.head
    classifier = nn.Sequential(nn.Dropout(DROPOUT), head.classifier)
    return Network(network.backbone, Head(head.bottleneck, classifier, width=head.width)).eval()


PART_READERS: dict[Part, PartReader] = {
    "source": _labelled_source,
    "source_features": lambda task, store: _source(task, store)["features"],
    "source_train_features": lambda task, store: _source(task, store, "source_train")["features"],
    "target_features": lambda task, store: _target(task, store)["features"],
    "target_logits": lambda task, store: _target(task, store)["logits"],
    "target_inputs": lambda task, store: domains_of(task, store)[1].inputs,
    "model": load_whole_network,
    "head": lambda task, store: load_classifier(task, store).head.classifier,
    "members": lambda task, store: [
        load_whole_network(each, store) for each in store.members(task)
    ],
    "member_logits": lambda task, store: [
        _target(each, store)["logits"] for each in store.members(task)
    ],
}
# Calibrators that are given the head and the features of a frozen backbone in place of the whole
# model and its inputs: a frozen backbone has no active dropout, so its features never change.
HEAD_ONLY: dict[str, dict[Part, PartReader]] = {
    "mc-dropout": {
        "model": _with_dropout,
        "target_inputs": lambda task, store: network_inputs(
            task, domains_of(task, store)[1].inputs, View(), store.device
        ),
    },
}
