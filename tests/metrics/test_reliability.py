import functools
import operator
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pseudocal.arrays import InputError, softmax
from pseudocal.metrics import Outcomes, Reliability, ece, equal_mass_ece, mce, overconfidence


def outcomes_of(confidence, correct) -> Outcomes:
    confidence, correct = np.array(confidence, dtype=float), np.array(correct, dtype=bool)
    return Outcomes(confidence, correct, nll=np.zeros(len(correct)), brier=np.zeros(len(correct)))


@st.composite
def some_outcomes(draw) -> Outcomes:
    """Confidences on bin edges and many ties are what breaks binning, so they are drawn often."""
    confidence = st.sampled_from([0.2, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 1.0]) | st.floats(0.01, 1.0)
    rows = draw(st.lists(st.tuples(confidence, st.booleans()), min_size=1, max_size=60))
    return outcomes_of(*zip(*rows, strict=True))


@pytest.mark.parametrize(("T", "classes"), [(1.0, 3), (2.0, 10), (0.5, 100)])
def test_torchmetrics_agrees(draw, T, classes):
    torch = pytest.importorskip("torch")
    torchmetrics = pytest.importorskip("torchmetrics.functional.classification")
    logits, labels = draw(3000, classes=classes, T=T)
    p = softmax(logits)
    # torchmetrics works in float32 on bins [a, b), with a bin of its own for 1: leave out what
    # float32 rounds to 1
    keep = p.max(axis=1) < 1 - 1e-6
    p, labels = p[keep], labels[keep]
    outcomes = Outcomes.from_probabilities(p, labels)
    tensors = torch.from_numpy(p), torch.from_numpy(labels)
    norms: list[tuple[Literal["l1", "max"], Callable[[Outcomes], float]]] = [
        ("l1", ece),
        ("max", mce),
    ]
    for norm, metric in norms:
        reference = torchmetrics.multiclass_calibration_error(
            *tensors, num_classes=classes, n_bins=15, norm=norm
        )
        assert metric(outcomes) == pytest.approx(float(reference), abs=1e-6)


def test_equal_mass_is_a_split_of_the_sorted_rows(overconfident):
    rows = np.argsort(overconfident.confidence)[:1995]  # 15 bins of 133
    gap = (overconfident.confidence - overconfident.correct)[rows].reshape(15, 133)
    assert equal_mass_ece(overconfident[rows]) == pytest.approx(
        np.abs(gap.mean(axis=1)).mean(), abs=1e-12
    )
    assert Reliability.equal_mass(overconfident[rows]).count.tolist() == [133] * 15


def test_equal_mass_keeps_equal_confidences_together():
    tied = Reliability.equal_mass(outcomes_of([0.5] * 5 + [0.9], [1, 0, 0, 0, 0, 1]), bins=3)
    assert tied.count.tolist() == [5, 1]
    assert tied.ece == pytest.approx((5 * 0.3 + 0.1) / 6)
    assert Reliability.equal_mass(outcomes_of([1.0] * 5, [1] * 5)).count.tolist() == [5]
    assert Reliability.equal_mass(outcomes_of([0.3, 0.5, 0.9], [1, 0, 1])).count.tolist() == [
        1,
        1,
        1,
    ]  # fewer than bins


def test_a_confidence_on_an_edge_falls_into_the_lower_bin():
    on_the_edges = np.array([k / 15 for k in range(1, 16)])
    assert Reliability.of(outcomes_of(on_the_edges, [1] * 15)).count.tolist() == [1] * 15
    just_above = np.nextafter(on_the_edges[:-1], 1)
    assert Reliability.of(outcomes_of(just_above, [1] * 14)).count.tolist() == [0] + [1] * 14
    assert Reliability.of(outcomes_of([0.0, 1.0004], [1, 1])).count[[0, -1]].tolist() == [1, 1]


def test_by_hand():
    by_hand = Reliability.of(outcomes_of([0.6, 0.7, 0.7, 0.9], [1, 0, 1, 1]), bins=10)
    assert by_hand.count.tolist() == [0, 0, 0, 0, 0, 1, 2, 0, 1, 0]
    assert by_hand.confidence[[5, 6, 8]] == pytest.approx([0.6, 0.7, 0.9])
    assert by_hand.accuracy[[5, 6, 8]].tolist() == [1.0, 0.5, 1.0]
    assert (
        np.isnan(by_hand.accuracy).tolist()
        == np.isnan(by_hand.confidence).tolist()
        == (by_hand.count == 0).tolist()
    )
    assert by_hand.ece == pytest.approx((0.4 + 2 * 0.2 + 0.1) / 4)
    assert by_hand.mce == pytest.approx(0.4)
    assert by_hand.signed == pytest.approx(2.9 / 4 - 3 / 4)


def test_four_parts_merge_into_the_whole(overconfident):
    whole = Reliability.of(overconfident[:100])
    merged = functools.reduce(
        operator.add, (Reliability.of(overconfident[i : i + 25]) for i in range(0, 100, 25))
    )
    assert merged.count.tolist() == whole.count.tolist()
    assert merged.correct_sum.tolist() == whole.correct_sum.tolist()
    assert merged.confidence_sum == pytest.approx(whole.confidence_sum, abs=1e-12)
    assert merged.ece == pytest.approx(whole.ece, abs=1e-12)
    assert merged.accuracy_interval()[0] == pytest.approx(whole.accuracy_interval()[0], nan_ok=True)


def test_different_bins_do_not_merge(overconfident):
    with pytest.raises(InputError, match="the same bins"):
        Reliability.of(overconfident) + Reliability.of(overconfident, bins=10)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_scipy_agrees_on_clopper_pearson(overconfident, level):
    reliability = Reliability.of(overconfident[:200], bins=30) + Reliability.of(
        outcomes_of([0.5], [0]), bins=30
    )
    low, high = reliability.accuracy_interval(level)
    assert (reliability.count == 0).any()
    for k, n in enumerate(reliability.count):
        if n == 0:
            assert np.isnan([low[k], high[k]]).all()
            continue
        reference = binomtest(int(reliability.correct_sum[k]), int(n)).proportion_ci(
            level, method="exact"
        )
        assert (low[k], high[k]) == pytest.approx((reference.low, reference.high), abs=1e-9)


@given(some_outcomes(), st.randoms())
def test_the_order_of_rows_does_not_matter(outcomes, random):
    rows = list(range(len(outcomes)))
    random.shuffle(rows)
    for metric in (ece, equal_mass_ece, mce):
        assert metric(outcomes[rows]) == pytest.approx(metric(outcomes), abs=1e-12)


@given(some_outcomes(), st.integers(1, 40))
def test_what_holds_of_every_calibration_error(outcomes, bins):
    assert 0 <= ece(outcomes, bins=bins) <= mce(outcomes, bins=bins) + 1e-12 <= 1 + 1e-12
    assert 0 <= equal_mass_ece(outcomes, bins=bins) <= 1
    least = abs(overconfidence(outcomes)) - 1e-12
    assert ece(outcomes, bins=bins) >= least
    assert equal_mass_ece(outcomes, bins=bins) >= least
    assert Reliability.of(outcomes, bins).signed == pytest.approx(
        overconfidence(outcomes), abs=1e-12
    )
    assert (
        Reliability.of(outcomes, bins).count.sum()
        == Reliability.equal_mass(outcomes, bins).count.sum()
        == len(outcomes)
    )


@pytest.mark.parametrize("bins", [0, -3, 1.5, "15"])
def test_bins_that_cannot_be_are_refused(overconfident, bins):
    for binned in (Reliability.of, Reliability.equal_mass):
        with pytest.raises(InputError, match="positive number of bins"):
            binned(overconfident, bins)


def test_a_level_that_cannot_be_is_refused(overconfident):
    with pytest.raises(InputError, match="between 0 and 1, got 95"):
        Reliability.of(overconfident).accuracy_interval(95)


def test_parts_are_summed_as_python_sums():
    parts = [Reliability.of(Outcomes.from_probabilities([[0.9, 0.1]], [k])) for k in (0, 1, 0)]
    assert sum(parts).count.sum() == 3
    assert sum(parts).ece == pytest.approx(0.9 - 2 / 3)
