"""The fourth stage: fit calibrators.

Each gets the data that it declares; target labels are not available.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import CALIBRATORS, Calibration, Material, Part, calibrate_by_name
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.files import save_json
from pseudocal.lab.adapt.networks import Head, Network
from pseudocal.lab.adapt.training import find_preset
from pseudocal.lab.bench.calibrators import COMPARED, RANDOM
from pseudocal.lab.bench.segmenters import halves, target_of
from pseudocal.lab.bench.stages.predict import load_classifier, write_outputs
from pseudocal.lab.bench.store import Store, load_arrays, save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, domains_of, shown
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.lab.segmentation import load_segmenter
from pseudocal.lab.segmentation.comparison import FITS, SEGMENTATION_CALIBRATORS
from pseudocal.scaling import fit_temperature

DROPOUT = 0.5  # before the classifier, if a head has no dropout of its own


def calibrate_with(task: Task, name: str, store: Store) -> None:
    """Write `calibrations/NAME.json` or, for calibrators that return other predictions, their logits as `.npy`."""
    path = store.folder(task) / "calibrations" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    if (
        task.segments and name == "ensemble"
    ):  # only the seeds of its models: their maps are too large to store
        save_json(path, {"seeds": [member.seed for member in store.members(task)]})
    elif task.segments:
        _of_segmenter(task, name, store).save(path)
    elif COMPARED[name].mixup_variant is not None:
        _of_mixup(task, name, store).save(path)
    else:
        how = COMPARED[name]
        seed = {"seed": task.seed} if how.calibrator in RANDOM else {}
        corrected = calibrate_by_name(
            how.calibrator, material_for(how.calibrator, task, store), **seed, **dict(how.settings)
        )
        if corrected.calibration is not None:
            corrected.calibration.save(path)
        else:
            save_array(path.with_suffix(".npy"), corrected.logits)


def _of_segmenter(task: Task, name: str, store: Store) -> Calibration:
    if name not in FITS:
        known = ", ".join(SEGMENTATION_CALIBRATORS)
        raise InputError(f"expected a calibrator for segmentation among {known}, got {name!r}")
    model = load_segmenter(store.folder(task.training)).to(store.device)
    per_image = dict(task.options)["pixels_per_image"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableCalibrationWarning)  # the verdict is in the file
        return FITS[name](
            model, halves(task, store)[1], target_of(task, store).unlabelled(), per_image, task.seed
        )


def _of_mixup(task: Task, name: str, store: Store) -> Calibration:
    mixup_samples = load_arrays(store.folder(task) / "mixup" / f"{name}.npz")
    how = COMPARED[name].mixup_variant
    assert how is not None
    settings = {"strategy": how.strategy, "lam": how.lam, "labels": how.labels, "seed": task.seed}
    scaling = fit_temperature(mixup_samples["logits"], mixup_samples["labels"])
    return Calibration(name, scaling, settings, {"mixup_samples": len(mixup_samples["labels"])})


def material_for(name: str, task: Task, store: Store) -> Material:
    """Read the parts that a calibrator declares, and no others, from the store."""
    return Material(**{part: PART_READERS[part](task, store) for part in CALIBRATORS[name].parts})


def _target(task: Task, store: Store) -> NamedArrays:
    return load_arrays(store.folder(task) / "target.npz")


def _source(task: Task, store: Store, part: str = "source_val") -> NamedArrays:
    """Read outputs on the source.

    After SHOT they are computed when a calibrator asks, as in the paper's appendix.
    """
    path = store.folder(task) / f"{part}.npz"
    if not path.exists():
        own = find_preset(task.method, task.preset).own_classifier
        if task.method != "shot" or own:
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


PART_READERS: dict[Part, Callable[[Task, Store], Any]] = {
    "source": _labelled_source,
    "source_features": lambda task, store: _source(task, store)["features"],
    "source_train_features": lambda task, store: _source(task, store, "source_train")["features"],
    "target_features": lambda task, store: _target(task, store)["features"],
    "target_logits": lambda task, store: _target(task, store)["logits"],
    "member_logits": lambda task, store: [
        _target(each, store)["logits"] for each in store.members(task)
    ],
    "model": _with_dropout,
    "target_inputs": lambda task, store: shown(
        task, domains_of(task, store)[1].inputs, View(), store.device
    ),
}
