"""Thresholds of confidence: who is accepted, and that the guarantee holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from pseudocal import InputError, LabelSample
from pseudocal.calibrators import (
    CANNOT_TELL,
    NONE_OF_THESE,
    find_class_thresholds,
    find_threshold,
    refine,
    threshold_pool,
)
from pseudocal.calibrators.thresholds import _labels_for

ROWS = 3000


def classes(rows: int = ROWS) -> np.ndarray:
    return np.zeros(rows, dtype=int)


def falling(rows: int = ROWS) -> np.ndarray:
    """Confidences without ties, the most confident row first."""
    return np.linspace(0.999, 0.4, rows)


def sample(rows: np.ndarray, wrong: np.ndarray, pool: np.ndarray | None = None) -> LabelSample:
    """Labels of rows that are all predicted as class 0."""
    return LabelSample(rows, np.where(wrong[rows], 1, 0), "random", pool=pool)


# ------------------------------------------------------------------------------ who is accepted


def test_an_estimate_accepts_the_confident_rows() -> None:
    """0.99, 0.97 and 0.9 have a mean of 0.953; with 0.88 it is 0.935."""
    confidence = np.array([0.88, 0.99, 0.5, 0.9, 0.97])
    found = find_threshold(classes(5), confidence, 0.05)
    assert found.basis == "estimated"
    assert found.confidence == 0.9
    assert found.coverage == 0.6
    assert found.expected_error == pytest.approx(0.14 / 3)
    assert found.accepts(confidence).tolist() == [False, True, False, True, True]


def test_no_row_is_confident_enough() -> None:
    found = find_threshold(classes(4), [0.9, 0.8, 0.7, 0.6], 0.05)
    assert (found.basis, found.confidence, found.coverage) == ("none", None, 0.0)
    assert not found.accepts([1.0]).any()


def test_a_guarantee_accepts_the_confident_rows() -> None:
    """The first half is right, the second half wrong: the threshold lies near the middle."""
    confidence = falling(1000)
    wrong = np.arange(1000) >= 500
    found = find_threshold(classes(1000), confidence, 0.05, sample(np.arange(0, 1000, 2), wrong))
    assert found.basis == "guaranteed"
    assert 0.48 < found.coverage < 0.54
    assert found.coverage == found.accepts(confidence).mean()
    assert wrong[found.accepts(confidence)].mean() < 0.05
    assert found.bound is not None
    assert found.bound <= 0.05


def test_the_number_of_labels_that_may_have_errors() -> None:
    for k, n in enumerate(_labels_for(0.1)[:5]):
        assert binom.cdf(k, n, 0.1) <= 0.1 < binom.cdf(k, n - 1, 0.1)


def test_one_label_decides() -> None:
    """45 right labels are a guarantee of 5%, 44 are not; of 77 one may be wrong."""
    rows = np.arange(100)
    for n, errors, basis in (
        (44, 0, "none"),
        (45, 0, "guaranteed"),
        (45, 1, "none"),
        (76, 1, "none"),
        (77, 1, "guaranteed"),
    ):
        labels = LabelSample(rows[:n], [1] * errors + [0] * (n - errors), "random")
        found = find_threshold(classes(100), np.full(100, 0.9), 0.05, labels)
        assert found.basis == basis
        if basis == "guaranteed":
            assert (found.labels, found.errors) == (n, errors)


def test_rows_on_which_both_models_agree_rank_first() -> None:
    """The mean errors are 2, 3, 5.3 and 9%, those with agreement first."""
    confidence = np.array([0.9, 0.98, 0.8, 0.96])
    second = [1, 0, 1, 0]
    agrees = [False, True, False, True]
    for max_error, least, accepted in (
        (0.025, (0.98, None), [False, True, False, False]),
        (0.035, (0.96, None), [False, True, False, True]),
        (0.06, (0.0, 0.9), [True, True, False, True]),
        (0.1, (0.0, 0.8), [True, True, True, True]),
    ):
        found = find_threshold(classes(4), confidence, max_error, second=second)
        assert (found.confidence, found.if_disagree) == least
        assert found.accepts(confidence, agrees).tolist() == accepted
        assert found.coverage == np.mean(accepted)


def test_a_threshold_with_a_second_model_needs_it() -> None:
    found = find_threshold(classes(4), np.full(4, 0.99), 0.05, second=classes(4))
    with pytest.raises(InputError, match="expected agrees"):
        found.accepts([0.99])


def test_what_a_person_cannot_tell_is_skipped_and_none_of_these_is_wrong() -> None:
    labels = np.zeros(50, dtype=int)
    labels[0] = CANNOT_TELL
    args = classes(100), np.full(100, 0.9), 0.05
    skipped = find_threshold(*args, LabelSample(np.arange(50), labels, "random"))
    assert (skipped.basis, skipped.labels, skipped.errors) == ("guaranteed", 49, 0)
    labels[0] = NONE_OF_THESE
    assert find_threshold(*args, LabelSample(np.arange(50), labels, "random")).basis == "none"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="maximum error"):
        find_threshold(classes(2), [0.5, 0.6], 5)
    with pytest.raises(InputError, match="from 0 to 1"):
        find_threshold(classes(2), [0.5, 60], 0.05)
    with pytest.raises(InputError, match="shape"):
        find_threshold(classes(3), [0.5, 0.6], 0.05)
    with pytest.raises(InputError, match="second model"):
        find_threshold(classes(2), [0.5, 0.6], 0.05, second=[0])
    with pytest.raises(InputError, match="rows 0 to 1"):
        find_threshold(classes(2), [0.5, 0.6], 0.05, LabelSample([2], [0], "random"))


# ------------------------------------------------------------------------------ pools


def test_labels_of_a_pool_do_not_represent_the_target() -> None:
    logits = np.tile([[2.0, 0.0]], (100, 1))
    labels = LabelSample([0, 1], [0, 0], "random", pool=np.arange(50))
    with pytest.raises(InputError, match="for a threshold"):
        refine(logits, labels)
    with pytest.raises(InputError, match="rows of the pool"):
        LabelSample([60], [0], "random", pool=np.arange(50))
    with pytest.raises(InputError, match="sampling 'random'"):
        LabelSample([6], [0], pool=np.arange(50))


def test_the_pool_has_the_top_of_the_ranking() -> None:
    confidence = falling()
    agree = np.arange(ROWS) % 2
    pool = threshold_pool(classes(), confidence, 0.05, second=agree)
    np.testing.assert_array_equal(pool, np.arange(0, 2 * len(pool), 2))
    assert 1 - confidence[pool].mean() <= 0.075
    assert len(threshold_pool(classes(), np.full(ROWS, 0.5), 0.05)) == 200
    assert len(threshold_pool(classes(50), np.full(50, 0.5), 0.05)) == 50


def test_rows_outside_the_pool_count_as_wrong() -> None:
    """The pool lacks 2% of the accepted rows, which leaves 3.06% for the others: 75 labels."""
    rows = np.arange(1000)
    pool = rows[rows % 50 != 0]
    for n, basis in ((74, "none"), (75, "guaranteed")):
        labels = LabelSample(pool[:n], [0] * n, "random", pool=pool)
        found = find_threshold(classes(1000), np.full(1000, 0.9), 0.05, labels)
        assert found.basis == basis
    too_small = LabelSample(rows[:100], [0] * 100, "random", pool=rows[:900])
    assert find_threshold(classes(1000), np.full(1000, 0.9), 0.05, too_small).basis == "none"


# ------------------------------------------------------------------------------ the guarantee

CURVES = {
    "the same error everywhere": np.full(ROWS, 0.055),
    "errors where the model is least confident": np.linspace(0, 0.3, ROWS),
    "a steep rise": np.where(np.arange(ROWS) < 1500, 0.03, 0.5),
    "errors where the model is most confident": np.where(np.arange(ROWS) < 300, 0.3, 0.02),
    "errors in the middle": np.where(np.abs(np.arange(ROWS) - 1200) < 150, 0.5, 0.01),
}


def broken(curve: np.ndarray, labels: int, *, pool_rows: int | None, draws: int) -> float:
    """The fraction of draws in which more than 5% of the accepted rows are wrong."""
    rng = np.random.default_rng(0)
    wrong = rng.random(ROWS) < curve
    confidence = falling()
    pool = np.arange(pool_rows or ROWS)
    count = 0
    for _ in range(draws):
        rows = rng.choice(pool, labels, replace=False)
        given = sample(rows, wrong, pool if pool_rows else None)
        found = find_threshold(classes(), confidence, 0.05, given)
        accepted = found.accepts(confidence)
        count += bool(accepted.any() and wrong[accepted].mean() > 0.05)
    return count / draws


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("labels", "pool_rows"), [(60, None), (200, None), (100, 1200)])
def test_the_guarantee_holds(name: str, labels: int, pool_rows: int | None) -> None:
    """At most 10% of draws break it, give or take three standard errors."""
    draws = 250
    rate = broken(CURVES[name], labels, pool_rows=pool_rows, draws=draws)
    assert rate <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / draws)


def test_the_guarantee_is_no_wider_than_it_must_be() -> None:
    """Where every candidate has an error a little above 5%, the first test passes in nearly 10%."""
    wrong = np.arange(ROWS) % 19 == 0  # 5.3% of any candidate
    rng = np.random.default_rng(0)
    confidence = falling()
    passed = [
        find_threshold(
            classes(), confidence, 0.05, sample(rng.choice(ROWS, 100, replace=False), wrong)
        ).basis
        == "guaranteed"
        for _ in range(800)
    ]
    assert 0.05 < np.mean(passed) < 0.11


def test_as_many_labels_as_recommended_usually_suffice() -> None:
    confidence = np.linspace(1.0, 0.4, ROWS)
    rng = np.random.default_rng(0)
    wrong = rng.random(ROWS) < 1 - confidence
    needed = find_threshold(classes(), confidence, 0.05).labels_needed
    assert needed is not None
    pool = threshold_pool(classes(), confidence, 0.05)
    counts = {}
    for labels in (needed, needed // 4):
        found = [
            find_threshold(
                classes(),
                confidence,
                0.05,
                sample(rng.choice(pool, labels, replace=False), wrong, pool),
            )
            for _ in range(200)
        ]
        counts[labels] = np.mean([one.basis == "guaranteed" for one in found])
    assert counts[needed] > 0.6
    assert counts[needed // 4] < counts[needed] - 0.1


def test_no_number_of_labels_is_recommended_for_a_model_that_is_never_confident() -> None:
    found = find_threshold(classes(), np.full(ROWS, 0.7), 0.05)
    assert found.labels_needed is None
    labels = LabelSample(np.arange(100), [1] * 100, "random")
    assert find_threshold(classes(), np.full(ROWS, 0.99), 0.05, labels).labels_needed is None


def test_more_labels_are_recommended_than_were_given() -> None:
    """The most confident rows are wrong, the others right: all in all as confident as expected."""
    confidence = np.linspace(1.0, 0.4, ROWS)
    pool = np.sort(threshold_pool(classes(), confidence, 0.05))
    rows = pool[np.linspace(0, len(pool) - 1, 200).astype(int)]
    wrong = np.zeros(ROWS, dtype=bool)
    wrong[rows[:3]] = True
    found = find_threshold(classes(), confidence, 0.05, sample(rows, wrong, pool))
    assert (found.basis, found.labels_needed) == ("none", 400)


# ------------------------------------------------------------------------------ classes


def test_each_class_has_the_threshold_that_its_labels_allow() -> None:
    """Class 0 is right, class 1 is wrong below 90%, class 2 has three labels."""
    predicted = np.repeat([0, 1, 2], 1000)
    confidence = np.tile(np.linspace(1.0, 0.8, 1000), 3)
    wrong = (predicted == 1) & (confidence < 0.9)
    rows = np.concatenate([np.arange(0, 2000, 10), [2100, 2500, 2900]])
    labels = LabelSample(rows, np.where(wrong[rows], 9, predicted[rows]), "random")
    first, second, third = find_class_thresholds(predicted, confidence, 0.1, labels)
    assert (first.light, second.light, third.light) == (
        "guaranteed",
        "guaranteed",
        "not enough labels",
    )
    assert first.threshold.coverage == 1.0
    assert 0.45 < second.threshold.coverage < 0.6
    assert third.labels == 3
    assert first.ratio < third.ratio < second.ratio


def test_a_class_with_more_errors_than_expected_needs_more_confidence() -> None:
    predicted = np.repeat([0, 1], 500)
    confidence = np.tile(np.linspace(1.0, 0.8, 500), 2)
    rows = np.concatenate([np.arange(0, 500, 25), np.arange(500, 1000, 25)])
    wrong = (rows >= 500) & (rows % 50 == 0)
    labels = LabelSample(rows, np.where(wrong, 9, predicted[rows]), "random")
    first, second = find_class_thresholds(predicted, confidence, 0.05, labels)
    assert first.light == second.light == "estimated"
    assert first.threshold.confidence is not None
    assert second.threshold.confidence is not None
    assert first.threshold.confidence < second.threshold.confidence


def test_a_class_accepts_nothing_below_the_pool() -> None:
    """Labels of the pool say nothing of the rows below it, though few of them are wrong."""
    predicted = np.repeat([0, 1], 500)
    confidence = np.tile(np.linspace(0.9, 0.3, 500), 2)
    pool = np.flatnonzero(confidence > 0.8)
    rows = pool[::4]
    labels = LabelSample(rows, predicted[rows], "random", pool=pool)
    for found in find_class_thresholds(predicted, confidence, 0.05, labels):
        assert found.light == "estimated"
        assert found.threshold.confidence is not None
        assert found.threshold.confidence > 0.8


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    """With an error rate at the bound, as few errors are seen in 10% of draws."""
    labels = LabelSample(np.arange(150), [1] * 3 + [0] * 147, "random")
    found = find_threshold(classes(1000), np.full(1000, 0.9), 0.05, labels)
    assert found.bound is not None
    assert binom.cdf(3, 150, found.bound) == pytest.approx(0.1)
    pool = np.arange(980)
    found = find_threshold(
        classes(1000),
        np.full(1000, 0.9),
        0.1,
        LabelSample(pool[:150], [0] * 150, "random", pool=pool),
    )
    assert found.bound == pytest.approx(0.02 + 0.98 * (1 - 0.1 ** (1 / 150)))


def test_the_tested_thresholds_are_told() -> None:
    """All but the last pass, from the most confident."""
    wrong = np.arange(1000) >= 500
    labels = sample(np.arange(0, 1000, 2), wrong)
    found = find_threshold(classes(1000), falling(1000), 0.05, labels)
    *passed, failed = found.candidates
    assert all(one.bound <= 0.05 for one in passed)
    assert failed.bound > 0.05
    coverages = [one.coverage for one in found.candidates]
    assert coverages == sorted(coverages)
    assert passed[-1].coverage == found.coverage
    assert found.bound == passed[-1].bound
