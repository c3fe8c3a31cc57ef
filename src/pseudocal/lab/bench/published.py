"""The numbers published in the paper, to compare with ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pseudocal.lab.bench.task import Suite

TITLES = {
    "none": "No Calib.",
    "matrixscal": "MatrixScal",
    "vectorscal": "VectorScal",
    "tempscal": "TempScal",
    "cpcs": "CPCS",
    "transcal": "TransCal",
    "ensemble": "Ensemble",
    "pseudocal": "PseudoCal",
    "oracle": "Oracle",
}
HOME = {"Art": "Ar", "Clipart": "Cl", "Product": "Pr", "RealWorld": "Re"}
NET = {"clipart": "C", "painting": "P", "real": "R", "sketch": "S"}
OFFICE = {"amazon": "A", "dslr": "D", "webcam": "W"}


@dataclass(frozen=True)
class Origin:
    """Which of the paper's tables a suite reproduces."""

    scenario: str
    dataset: str
    domains: dict[str, str]  # our names -> theirs


ORIGINS = {
    "office31": Origin("closed-set", "Office-31", OFFICE),
    "office-home": Origin("closed-set", "Office-Home", HOME),
    "office-home-partial": Origin("partial-set", "Office-Home", HOME),
    "visda": Origin("closed-set", "VisDA", {"train": "T", "validation": "V"}),
    "domainnet126": Origin("closed-set", "DomainNet-126", NET),
    "domainnet126-source-free": Origin("source-free", "DomainNet-126", NET),
    "imagenet-sketch": Origin("source-free", "ImageNet-Sketch", {"imagenet": "I", "sketch": "S"}),
}


def published(suite: Suite, metric: str) -> dict[tuple[str, str, str], float]:
    """Return the paper's values by (calibrator, method, pair), in our names and units; empty for our own suites.

    >>> from pseudocal.lab.bench.suites import built_in
    >>> published(built_in("office-home"), "ece")["pseudocal", "mcc", "Art->Clipart"]
    0.0271
    """
    origin = ORIGINS.get(suite.name.removesuffix("-quick"))
    if origin is None:
        return {}
    rows = {row[:-1]: row[-1] for row in _rows()}
    unit = 100.0 if metric in ("ece", "accuracy") else 1.0
    found = {}
    for task in suite.tasks:
        pair = f"{origin.domains[task.source]}->{origin.domains[task.target]}"
        for name, title in ({"none": "Accuracy"} if metric == "accuracy" else TITLES).items():
            value = rows.get((origin.scenario, origin.dataset, task.method.upper(), title, pair, metric))
            if value is not None:
                found[name, task.method, task.pair] = round(value / unit, 6)
    return found


@cache
def _rows() -> list[tuple[str, str, str, str, str, str, float]]:
    text = files("pseudocal.lab.bench").joinpath("published.csv").read_text(encoding="utf-8")
    return [(*row[:6], float(row[6])) for row in list(csv.reader(text.splitlines()))[1:]]  # type: ignore[misc]
