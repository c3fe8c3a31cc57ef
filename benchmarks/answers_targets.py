"""Targets for `benchmarks/answers.py`: logits, labels for scoring, and what is estimated without labels.

Emoji and digits are tasks of `benchmarks/trust.py`, as far as they were prepared. The two families of
two classes come from files that are no part of the project (`--data`): reviews and other short texts of four kinds, and
a census of four years. What is missing is left out.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal import PseudoCal, binary_logits, fit_temperature
from pseudocal.lab.bench import Store, Task
from trust_cases import stored_case

TEXTS = ("tweets", "movie", "amazon", "nyt")
OPINION = 0.5  # texts whose mean valence is nearer to zero than this have none
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


def targets(families: dict[str, list[Task]], store: Store, data: Path | None = None) -> Iterator[Target]:
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
    for name, read in (("sentiment_4domains.npz", reviews), ("employment_ma.npz", census)):
        if data is not None and (data / name).exists():
            yield from read(data / name)


def reviews(path: Path) -> Iterator[Target]:
    """Good or bad: TF-IDF and logistic regression, trained on one kind of text and used on another."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    with np.load(path, allow_pickle=False) as file:
        valence = {name: file[f"{name}_valence"] for name in TEXTS}
        kept = {name: np.abs(valence[name]) > OPINION for name in TEXTS}
        texts = {name: file[f"{name}_text"][kept[name]] for name in TEXTS}
    labels = {name: (valence[name][kept[name]] > 0).astype(np.int64) for name in TEXTS}
    for source, target in permutations(TEXTS, 2):
        vectorizer = TfidfVectorizer(min_df=2)
        train = vectorizer.fit_transform(texts[source])
        inputs = vectorizer.transform(texts[target]).toarray().astype(np.float32)
        for strength in STRENGTHS:
            pair = two_models(LogisticRegression(C=strength, solver="liblinear"), train, labels[source])
            yield two_classes("reviews", f"{source} to {target}, {strength:g}", pair, inputs, labels[target])


def census(path: Path) -> Iterator[Target]:
    """Employed or not: trained on 2015, used on the years after."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with np.load(path, allow_pickle=False) as file:
        x, y, year = file["x"], file["employed"], file["year"]
    first = np.flatnonzero(year == 2015)
    for rows in (300, len(first)):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=30.0, max_iter=1000))
        pair = two_models(model, x[first[:rows]], y[first[:rows]])
        for later in (2016, 2017, 2018):
            then = year == later
            yield two_classes("census", f"{later}, trained on {rows} rows", pair, x[then], y[then])


def two_models(model: Any, x: Any, y: np.ndarray) -> tuple[Any, Any]:
    """One trained on all rows, a second one on rows drawn with replacement."""
    from sklearn.base import clone

    drawn = np.random.default_rng(0).integers(len(y), size=len(y))
    return clone(model).fit(x, y), clone(model).fit(x[drawn], y[drawn])


def two_classes(family: str, task: str, pair: tuple[Any, Any], x: np.ndarray, y: np.ndarray) -> Target:
    first, second = (model.decision_function for model in pair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict on them is not what is looked at
        found = PseudoCal(binary=True).fit(first, x, second_opinion=second)
    return Target(family, task, binary_logits(first(x)), y, found.estimates)
