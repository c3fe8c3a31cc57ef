"""Which rows to label: a fair sample, spread, that grows."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import (
    Calibration,
    InputError,
    LabelSample,
    TemperatureScaling,
    rows_to_label,
    softmax,
)
from pseudocal.calibrators import pixel_pool
from pseudocal.calibrators.labels import labelling_order


def logits_of(rows: int = 400, classes: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, classes)) * 2


def test_more_rows_begin_with_the_same_ones() -> None:
    logits = logits_of()
    groups = np.arange(400) // 20
    for kwargs in ({}, {"groups": groups}):
        longest = rows_to_label(logits, 400, seed=3, **kwargs)
        assert sorted(longest) == list(range(400))
        for n in (1, 7, 100):
            np.testing.assert_array_equal(rows_to_label(logits, n, seed=3, **kwargs), longest[:n])


def test_each_row_has_the_same_chance() -> None:
    """Over 4,000 seeds each of 40 rows is chosen 1,000 times, give or take six standard errors."""
    logits, groups = logits_of(40), np.repeat(np.arange(8), 5)
    for kwargs in ({}, {"groups": groups}):
        count = np.zeros(40)
        for seed in range(4000):
            count[rows_to_label(logits, 10, seed=seed, **kwargs)] += 1
        assert np.abs(count - 1000).max() < 6 * np.sqrt(1000 * 0.75)


def test_the_same_rows_every_time_and_others_with_another_seed() -> None:
    logits = logits_of()
    np.testing.assert_array_equal(
        rows_to_label(logits, 20, seed=1),
        rows_to_label(logits.astype(np.float32).astype(float), 20, seed=1),
    )
    assert set(rows_to_label(logits, 20, seed=1)) != set(rows_to_label(logits, 20, seed=2))


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_accuracy_is_known_no_worse_than_from_random_rows(classes: int) -> None:
    """With labels drawn anew each time.

    With 100 classes hardly any confidence differs from another.
    """
    rng = np.random.default_rng(0)
    logits = logits_of(2000, classes)
    p = np.exp(logits)
    confidence = (p / p.sum(axis=1, keepdims=True)).max(axis=1)
    errors = []
    for seed in range(800):
        right = rng.random(2000) < confidence
        rows = (rows_to_label(logits, 30, seed=seed), rng.choice(2000, 30, replace=False))
        errors.append([right[some].mean() - right.mean() for some in rows])
    stratified, random = np.square(errors).mean(axis=0)
    assert stratified < (1.02 if classes == 100 else 0.95) * random


def test_few_rows_are_of_one_group() -> None:
    groups = np.arange(400) % 20
    count = np.bincount(groups[rows_to_label(logits_of(), 40, groups=groups)], minlength=20)
    assert count.max() <= 3


def test_the_order_walks_through_similar_rows() -> None:
    """Neighbours are much nearer in rank of confidence than rows at random, which are a third apart."""
    logits = logits_of(2000, 10)
    confidence = np.exp(logits).max(axis=1) / np.exp(logits).sum(axis=1)
    rank = np.argsort(np.argsort(confidence)) / 2000
    assert np.abs(np.diff(rank[labelling_order(logits)])).mean() < 0.05


def test_what_cannot_be_chosen_is_refused() -> None:
    for n in (0, 401, 2.5, True):
        with pytest.raises(InputError, match=f"from 1 to 400, got {n}"):
            rows_to_label(logits_of(), n)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed of at least 0, got -1"):
        rows_to_label(logits_of(), 3, seed=-1)
    with pytest.raises(InputError, match=r"400 integers, got int64 of shape \(3,\)"):
        rows_to_label(logits_of(), 3, groups=[1, 2, 3])
    with pytest.raises(InputError, match="NaN in row 0"):
        rows_to_label(np.full((3, 2), np.nan), 1)


def test_a_pool_of_pixels_knows_where_they_are() -> None:
    maps = np.random.default_rng(0).normal(size=(3, 4, 5, 6))
    maps[1, :, 0] = -np.inf  # padding
    pool = pixel_pool([maps[:2], maps[2:]], pixels_per_image=1000)
    assert np.bincount(pool.images).tolist() == [30, 24, 30]
    np.testing.assert_allclose(pool.logits, maps[pool.images, :, pool.y, pool.x])
    with pytest.raises(InputError, match="at least one pixel"):
        pixel_pool([np.full((1, 2, 3, 3), -np.inf)])


def test_probabilities_are_refused_as_they_are_for_the_labels() -> None:
    probabilities = softmax(logits_of())
    with pytest.raises(InputError, match="look like probabilities"):
        rows_to_label(probabilities, 50)
    rows = rows_to_label(np.log(probabilities), 50)
    calibration = Calibration("none", TemperatureScaling(1.0))
    labels = LabelSample(rows, np.argmax(probabilities[rows], axis=1))
    assert calibration.refined(np.log(probabilities), labels).measured is not None
