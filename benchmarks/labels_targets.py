"""Targets for `benchmarks/labels.py`: logits, ground truth and label-free estimates.

Emoji and digits are tasks of `benchmarks/trust.py`, if they were prepared. The two families of two
classes come from files outside the project (`--data`): reviews and other short texts of four kinds,
and a census of four years. Missing files are skipped.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal import PseudoCal, binary_logits, fit_temperature
from pseudocal.lab.bench import Store, Task
from trust_cases import stored_case
from trust_families import twins
from two_class_data import census, reviews

STRENGTHS = (1.0, 30.0)  # of the data against the penalty: a careful and an overconfident model


@dataclass(frozen=True, eq=False)
class Target:
    """One model on one target."""

    family: str
    task: str  # models of several seeds share one
    logits: np.ndarray
    labels: np.ndarray  # for scoring and for the answers alone
    estimates: dict[str, float]

    @cached_property
    def oracle(self) -> float:
        """The log T of least NLL on all rows."""
        return math.log(fit_temperature(self.logits, self.labels).temperature)


def targets(
    families: dict[str, list[Task]], store: Store, data: Path | None = None
) -> Iterator[Target]:
    """All that can be had."""
    for family, tasks in families.items():
        missing = 0
        for task in tasks:
            try:
                case = stored_case(family, task, store)
            except FileNotFoundError:
                missing += 1
                continue
            estimates = {name: fitted.temperature for name, fitted in case.found().items()}
            yield Target(family, case.task, case.logits, case.labels, estimates)
        if missing:
            print(f"{family}: {missing} of {len(tasks)} models were not prepared", file=sys.stderr)
    for name, read in (
        ("sentiment_4domains.npz", texts_of_others),
        ("employment_ma.npz", later_years),
    ):
        if data is not None and (data / name).exists():
            yield from read(data / name)


def texts_of_others(path: Path) -> Iterator[Target]:
    """Good or bad: logistic regression, trained on one kind of text and used on another."""
    from sklearn.linear_model import LogisticRegression

    for shift in reviews(path):
        for strength in STRENGTHS:
            pair = twins(LogisticRegression(C=strength, solver="liblinear"), *shift.source, n=2)
            yield two_classes("reviews", f"{shift.name}, {strength:g}", pair, *shift.target)


def later_years(path: Path) -> Iterator[Target]:
    """Employed or not: trained on 2015, used on the years after."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    for shift in census(path):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=30.0, max_iter=1000))
        yield two_classes("census", shift.name, twins(model, *shift.source, n=2), *shift.target)


def two_classes(family: str, task: str, pair: list[Any], x: np.ndarray, y: np.ndarray) -> Target:
    first, second = (model.decision_function for model in pair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict on them is not what is looked at
        found = PseudoCal(binary=True, epochs=1).fit(first, x, second_opinion=second)
    return Target(family, task, binary_logits(first(x)), y, found.estimates)
