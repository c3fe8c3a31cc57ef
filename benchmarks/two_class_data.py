"""Shifts with two classes: reviews and other short texts, and a census, from files outside the project.

Read by `trust_families.py` and `labels_targets.py`, which train their own models on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TEXTS = ("tweets", "movie", "amazon", "nyt")
OPINION = 0.5  # texts whose mean valence is nearer to zero than this have none
FEW = 300  # rows of the census, for a model that is less sure


class Shift(NamedTuple):
    """Data to train on, and data of another kind or a later year."""

    name: str
    source: tuple[Any, np.ndarray]  # inputs and labels
    target: tuple[np.ndarray, np.ndarray]


def reviews(path: Path) -> Iterator[Shift]:
    """Good or bad, from TF-IDF: trained on one kind of text and used on another."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    with np.load(path, allow_pickle=False) as file:
        valence = {name: file[f"{name}_valence"] for name in TEXTS}
        kept = {name: np.abs(valence[name]) > OPINION for name in TEXTS}
        texts = {name: file[f"{name}_text"][kept[name]] for name in TEXTS}
    labels = {name: (valence[name][kept[name]] > 0).astype(np.int64) for name in TEXTS}
    for source, target in permutations(TEXTS, 2):
        vectorizer = TfidfVectorizer(min_df=2)
        train = vectorizer.fit_transform(texts[source])
        inputs = vectorizer.transform(texts[target]).toarray().astype(np.float32)
        yield Shift(f"{source} to {target}", (train, labels[source]), (inputs, labels[target]))


def census(path: Path) -> Iterator[Shift]:
    """Employed or not: trained on 2015, used on the years after."""
    with np.load(path, allow_pickle=False) as file:
        x, y, year = file["x"], file["employed"].astype(np.int64), file["year"]
    first = np.flatnonzero(year == 2015)
    for rows in (FEW, len(first)):
        train = first[:rows]
        for later in (2016, 2017, 2018):
            then = year == later
            yield Shift(
                f"{later}, trained on {rows} rows", (x[train], y[train]), (x[then], y[then])
            )
