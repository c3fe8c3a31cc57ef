from __future__ import annotations

import numpy as np
import pytest

from pseudocal.arrays import InputError, Labelled
from pseudocal.reservoir import Reservoir

ROW = 2 * 4 + 3 * 8  # two float32 logits, label, weight, key


def rows(start, stop):
    i = np.arange(start, stop)
    return Labelled(np.stack([i, -i], axis=1).astype(np.float32), i, weights=i / 2)


def fill(capacity, batches, seed=0):
    reservoir = Reservoir(capacity * ROW, np.random.default_rng(seed))
    for batch in batches:
        reservoir.add(batch)
    return reservoir


def test_keeps_everything_while_it_fits():
    kept = fill(100, [rows(0, 60), rows(60, 100)]).labelled
    assert kept.labels.tolist() == list(range(100))
    assert kept.logits[:, 0].tolist() == list(range(100))
    assert kept.weights.tolist() == [i / 2 for i in range(100)]


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_rows_stay_whole_and_none_is_kept_twice(batch):
    reservoir = fill(50, [rows(i, min(i + batch, 1000)) for i in range(0, 1000, batch)])
    kept = reservoir.labelled
    assert (reservoir.seen, len(kept), len(set(kept.labels))) == (1000, 50, 50)
    assert np.array_equal(kept.logits[:, 0], kept.labels)
    assert np.array_equal(kept.weights, kept.labels / 2)


def test_every_row_is_as_likely_to_stay_as_any_other():
    times = np.zeros(200)
    for seed in range(400):
        times[fill(40, [rows(i, i + 20) for i in range(0, 200, 20)], seed).labelled.labels] += 1
    # expected 80 = 400 * 40/200, standard deviation 8; first, middle and last fifths by their means
    # (sd 1.3)
    assert np.abs(times.reshape(5, 40).mean(axis=1) - 80).max() < 5
    assert times.min() > 40


def test_merging_is_as_if_it_had_been_one():
    """The rows with the smallest keys stay, whoever saw them."""
    left, right = fill(30, [rows(0, 500)], seed=1), fill(30, [rows(500, 1000)], seed=2)
    keys = np.concatenate(
        [np.random.default_rng(1).random(500), np.random.default_rng(2).random(500)]
    )
    left.merge(right)
    assert left.seen == 1000
    assert sorted(left.labelled.labels) == sorted(np.argsort(keys)[:30])


def test_merging_with_an_empty_one_changes_nothing():
    reservoir, empty = fill(30, [rows(0, 10)]), fill(30, [])
    reservoir.merge(empty)
    empty.merge(reservoir)
    assert reservoir.labelled.labels.tolist() == empty.labelled.labels.tolist() == list(range(10))


@pytest.mark.parametrize("small_first", [True, False])
def test_a_smaller_one_makes_the_whole_smaller_and_never_lopsided(small_first):
    """What is left is all rows up to the largest key of the one that had to let rows go, in whatever order."""
    small, large = fill(30, [rows(0, 500)], seed=1), fill(1000, [rows(500, 1000)], seed=2)
    keys = np.concatenate(
        [np.random.default_rng(1).random(500), np.random.default_rng(2).random(500)]
    )
    merged = fill(1000, [])
    for part in (small, large) if small_first else (large, small):
        merged.merge_sample(part.sample)
    ceiling = np.sort(keys[:500])[29]
    assert merged.seen == 1000
    assert sorted(merged.labelled.labels) == np.flatnonzero(keys <= ceiling).tolist()
    merged.add(rows(1000, 3000))
    assert (
        30 < sum(label >= 1000 for label in merged.labelled.labels) < 200
    )  # expected 2000 * 30/500


def test_refuses_what_does_not_fit_together():
    with pytest.raises(InputError, match="at least one row"):
        _ = fill(30, []).labelled
    with pytest.raises(InputError, match="expected rows of"):
        fill(30, [rows(0, 3), Labelled(np.zeros((2, 5), dtype=np.float32), np.zeros(2, dtype=int))])
