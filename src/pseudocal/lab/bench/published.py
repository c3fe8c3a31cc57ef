"""The numbers published in the paper, to compare with ours.

`published.csv` has its cells: one for each task, method, calibrator and metric, and the averages of
each method over tasks (`avg`).
`published_averages.csv` has the averages that its main tables print; a test computes them from the
cells. Both have the paper's names and units.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pseudocal.lab.bench.task import Task

TITLES = {  # the paper's baselines are those of the released code
    "none": "No Calib.",
    "matrixscal-released": "MatrixScal",
    "vectorscal-released": "VectorScal",
    "tempscal": "TempScal",
    "cpcs-released": "CPCS",
    "transcal-released": "TransCal",
    "ensemble": "Ensemble",
    "mocov2aug": "MocoV2Aug",
    "randaug": "RandAug",
    "cutmix": "CutMix",
    "manifoldmix": "ManifoldMix",
    "mixup-beta": "Mixup-Beta",
    "pseudo-label": "Pseudo-Label",
    "filtered-pl": "Filtered-PL",
    "pseudocal-same": "PseudoCal-same",
    "pseudocal": "PseudoCal",
    "oracle-released": "Oracle",
}
SEGMENTATION_TITLES = {
    **TITLES,
    "oracle": "Oracle",
}  # its oracle is fitted to sampled pixels, by likelihood only
SKILL_TITLES = {"accuracy": {"none": "Accuracy"}, "correspondence": {"pseudocal": "PseudoCal"}}
IN_PERCENT = ("ece", "accuracy", "correspondence")
HOME = {"Art": "Ar", "Clipart": "Cl", "Product": "Pr", "RealWorld": "Re"}
NET = {"clipart": "C", "painting": "P", "real": "R", "sketch": "S"}
OFFICE = {"amazon": "A", "dslr": "D", "webcam": "W"}


@dataclass(frozen=True)
class Origin:
    """How the paper's tables name a data set and its domains."""

    dataset: str
    domains: dict[str, str]  # our names -> theirs


ORIGINS = {
    "office-31": Origin("Office-31", OFFICE),
    "office-home": Origin("Office-Home", HOME),
    "visda-2017": Origin("VisDA", {"train": "T", "validation": "V"}),
    "domainnet-126": Origin("DomainNet-126", NET),
    "imagenet-sketch": Origin("ImageNet-Sketch", {"imagenet": "I", "sketch": "S"}),
    "street-scenes": Origin(
        "Cityscapes", {"gta5": "GTA5", "synthia": "SYNTHIA", "cityscapes": "Cityscapes"}
    ),
}


def published(tasks: Iterable[Task], metric: str) -> dict[tuple[str, Task], float]:
    """Return the paper's values by calibrator and task (of seed 0), in our names and units.

    None for our own data.

    >>> task = Task("office-home", "Art", "Clipart", method="mcc", backbone="resnet50")
    >>> published([task], "ece")["pseudocal", task]
    0.0271

    Args:
        tasks: the tasks of a suite.
        metric: "ece", "nll", "brier", "accuracy" or "correspondence".

    """
    rows = {row[:-1]: row[-1] for row in _rows()}
    unit = 100.0 if metric in IN_PERCENT else 1.0
    found = {}
    for task in (task.of_seed(0) for task in tasks if task.data in ORIGINS):
        where = _place_of(task)
        titles = SKILL_TITLES.get(metric) or (SEGMENTATION_TITLES if task.segments else TITLES)
        for name, title in titles.items():
            value = rows.get((*where[:3], title, where[3], metric))
            if value is not None:
                found[name, task] = round(value / unit, 6)
    return found


def published_cells(calibrator: str, metric: str = "ece") -> dict[tuple[str, ...], float]:
    """Return the paper's values of one row, in its units, by scenario, data set, method and task.

    Averages over tasks are not among them.

    >>> published_cells("PseudoCal")["closed-set", "Office-Home", "MCC", "Ar->Cl"]
    2.71

    Args:
        calibrator: the name of the row in the paper.
        metric: "ece", "nll", "brier", "accuracy" or "correspondence".

    """
    return {
        (*row[:3], row[4]): row[6]
        for row in _rows()
        if row[3] == calibrator and row[5] == metric and row[4] != "avg"
    }


def _place_of(task: Task) -> tuple[str, str, str, str]:
    """The paper's names of a task: scenario, data set, method, pair of domains."""
    origin = ORIGINS[task.data]
    scenario = "segmentation" if task.segments else task.scenario
    vit = " ViT-B" if task.backbone.startswith("vit") else ""
    method = task.method if task.segments else task.method.upper()
    pair = f"{origin.domains.get(task.source)}->{origin.domains.get(task.target)}"
    return f"{scenario}{vit}", origin.dataset, method, pair


@cache
def _rows() -> list[tuple[str, str, str, str, str, str, float]]:
    text = files("pseudocal.lab.bench").joinpath("published.csv").read_text(encoding="utf-8")
    return [(*row[:6], float(row[6])) for row in list(csv.reader(text.splitlines()))[1:]]  # type: ignore[misc]
