import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pseudocal import metrics, passes
from pseudocal.arrays import InputError, softmax
from pseudocal.metrics import (
    METRICS,
    Outcomes,
    Reliability,
    accuracy,
    aurc,
    brier,
    classwise_ece,
    debiased_l2,
    ece,
    equal_mass_ece,
    nll,
    score,
)


def test_debiased_l2_is_near_zero_where_the_plain_one_is_not(draw):
    """Perfect calibration, 40 sets of 500 rows: half of the debiased squares fall below zero."""
    sets = [Outcomes.from_logits(*draw(500, seed=seed)) for seed in range(40)]
    plain = [plain_square(Reliability.equal_mass(outcomes)) for outcomes in sets]
    assert np.median(plain) ** 0.5 > 0.05
    debiased = np.array([debiased_l2(outcomes) for outcomes in sets])
    assert np.median(debiased) < 0.01
    assert 0.3 < (debiased == 0).mean() < 0.7


def test_debiased_l2_finds_the_true_error(draw):
    truth = plain_square(Reliability.equal_mass(Outcomes.from_logits(*draw(200_000, T=2.0)))) ** 0.5
    small = [debiased_l2(Outcomes.from_logits(*draw(300, T=2.0, seed=seed))) for seed in range(40)]
    assert np.mean(small) == pytest.approx(truth, abs=0.015)


def plain_square(reliability: Reliability) -> float:
    gap = reliability.confidence - reliability.accuracy
    return float((reliability.count * gap**2).sum() / reliability.count.sum())


def test_debiased_l2_by_hand():
    three_of_four = Outcomes.from_probabilities([[0.95, 0.05]] * 8, [0, 0, 0, 1] * 2)
    assert debiased_l2(three_of_four) == pytest.approx((0.2**2 - 0.75 * 0.25 / 7) ** 0.5)
    assert debiased_l2(three_of_four[:1]) == 0.0  # one row says nothing


def test_aurc_by_hand():
    rows = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
    right_wrong_right_wrong = Outcomes.from_probabilities(rows, [0, 1, 0, 1])
    assert aurc(right_wrong_right_wrong) == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)


def test_aurc_of_ties_is_the_mean_over_their_orders():
    rows = [[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.55, 0.45]]
    labels = [1, 0, 1, 0, 0]  # among the three ties one error: it may come first, second or third
    orders = [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    by_hand = np.mean([(np.cumsum(errors) / [1, 2, 3, 4, 5]).mean() for errors in orders])
    assert aurc(Outcomes.from_probabilities(rows, labels)) == pytest.approx(by_hand)


@given(hnp.arrays(float, (30, 3), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0])), st.randoms())
def test_the_order_of_rows_does_not_matter(logits, random):
    outcomes = Outcomes.from_logits(logits, np.arange(30) % 3)
    rows = list(range(30))
    random.shuffle(rows)
    for name, value in score(outcomes[rows]).items():
        assert value == pytest.approx(score(outcomes)[name], abs=1e-7), (
            name
        )  # the root in debiased_l2 magnifies 1e-16


def test_scores_of_a_perfect_model():
    perfect = score(Outcomes.from_probabilities(np.eye(3), [0, 1, 2]))
    assert perfect.pop("accuracy") == 1.0
    assert set(perfect.values()) == {0.0}


def test_scores_are_the_metrics_by_name(overconfident):
    scores = score(overconfident)
    assert list(scores) == list(METRICS)
    assert all(type(value) is float for value in scores.values())
    assert (scores["ece"], scores["nll"], scores["brier"]) == (
        ece(overconfident),
        nll(overconfident),
        brier(overconfident),
    )
    assert scores["equal_mass_ece"] == equal_mass_ece(overconfident)


def test_public_names_are_sorted():
    assert metrics.__all__ == sorted(
        metrics.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert set(METRICS) < set(metrics.__all__)


def brute_force(p: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """The definition, read aloud.

    For every class and bin (a, b], the gap weighted by its fraction of the rows.
    """
    total = 0.0
    for c in range(p.shape[1]):
        for k in range(bins):
            inside = (p[:, c] > k / bins) & (p[:, c] <= (k + 1) / bins)
            if inside.any():
                total += inside.mean() * abs(p[inside, c].mean() - (labels[inside] == c).mean())
    return total / p.shape[1]


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_classwise_the_definition(draw, bins):
    logits, labels = draw(700, classes=6, T=2.0)
    expected = pytest.approx(brute_force(softmax(logits), labels, bins), abs=1e-12)
    assert classwise_ece(softmax(logits), labels, bins) == expected


def test_classwise_netcal_and_torchmetrics_agree_class_by_class(draw):
    torch = pytest.importorskip("torch")
    ECE = pytest.importorskip("netcal.metrics").ECE
    reference = pytest.importorskip(
        "torchmetrics.functional.classification"
    ).binary_calibration_error
    logits, labels = draw(700, classes=4, T=2.0)
    columns = np.ascontiguousarray(softmax(logits).T)
    ours = classwise_ece(softmax(logits), labels)
    assert ours == pytest.approx(
        np.mean([ECE(15).measure(p, labels == c) for c, p in enumerate(columns)]), abs=1e-6
    )
    one_against_rest = [
        float(reference(torch.from_numpy(p), torch.from_numpy(labels == c).long(), n_bins=15))
        for c, p in enumerate(columns)
    ]
    assert ours == pytest.approx(np.mean(one_against_rest), abs=1e-6)


def test_classwise_edges_ties_and_impossible_classes():
    p = np.array([[0.2, 0.8, 0.0], [0.4, 0.6, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    labels = np.array([0, 1, 0, 2])
    assert classwise_ece(p, labels) == pytest.approx(brute_force(p, labels, 15), abs=1e-12)
    assert classwise_ece(p[:3], labels[:3], bins=4) == pytest.approx(
        brute_force(p[:3], labels[:3], 4)
    )


def test_classwise_a_class_that_is_said_to_be_impossible_and_occurs_counts():
    assert classwise_ece([[1.0, 0.0]], [1]) == 1.0


def test_classwise_blocks_do_not_show(draw, monkeypatch):
    logits, labels = draw(100)
    p = softmax(logits)
    whole = classwise_ece(p, labels)
    monkeypatch.setattr(passes, "CHUNK_NUMBERS", 7 * 10)
    assert classwise_ece(p, labels) == pytest.approx(whole, abs=1e-14)


def test_classwise_a_calibrated_model_has_next_to_none(draw):
    logits, labels = draw(20_000)
    assert classwise_ece(softmax(logits), labels) < 0.01
    assert classwise_ece(softmax(2 * logits), labels) > 0.01


def test_classwise_top_one_can_be_calibrated_while_the_classes_are_not():
    """Each class is overstated where it is weak and understated where it is strong.

    The top one comes out even.
    """
    p = np.array([[0.7, 0.3]] * 10 + [[0.3, 0.7]] * 10)
    labels = np.array([0] * 9 + [1] + [1] * 5 + [0] * 5)  # 90 % right and 50 % right, 70 % together
    assert ece(p, labels) == pytest.approx(0.0, abs=1e-12)
    assert classwise_ece(p, labels) == pytest.approx(0.2)


ARRAY_METRICS = {**METRICS, "classwise_ece": classwise_ece}


@pytest.mark.parametrize("name", METRICS)
def test_arrays_give_the_same_as_outcomes(draw, name):
    logits, labels = draw(300, classes=4, T=2.0)
    p = softmax(logits)
    metric = getattr(metrics, name)
    assert metric(p, labels) == metric(Outcomes.from_probabilities(p, labels))
    weights = np.arange(300) % 3
    weighted = Outcomes.from_probabilities(p, labels, weights=weights)
    assert metric(p, labels, weights=weights) == metric(weighted) != metric(p, labels)
    assert score(p, labels, weights=weights)[name] == metric(weighted)


@pytest.mark.parametrize("name", ARRAY_METRICS)
def test_one_column_is_the_probability_of_the_second_class(draw, name):
    logits, labels = draw(300, classes=2, T=2.0)
    p = softmax(logits)
    metric = getattr(metrics, name)
    assert metric(p[:, 1], labels) == pytest.approx(metric(p, labels), abs=1e-7)
    assert metric(p[:, 1], labels == 1) == metric(p[:, 1], labels)


def test_torchmetrics_and_scikit_learn_agree_on_one_column(draw):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip(
        "torchmetrics.functional.classification"
    ).binary_calibration_error
    scikit = pytest.importorskip("sklearn.metrics")
    logits, labels = draw(900, classes=2, T=2.0)
    p = softmax(logits)[:, 1].copy()
    tensors = torch.from_numpy(p), torch.from_numpy(labels)
    assert classwise_ece(p, labels) == pytest.approx(
        float(reference(*tensors, n_bins=15)), abs=1e-6
    )
    assert nll(p, labels) == pytest.approx(scikit.log_loss(labels, p), abs=1e-12)
    assert brier(p, labels, classes=2) == pytest.approx(
        scikit.brier_score_loss(labels, p), abs=1e-12
    )


def test_probmetrics_agrees(draw):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("probmetrics.metrics")
    logits, labels = draw(900, classes=5, T=2.0)
    found = reference.Metrics.from_names(
        ["logloss", "brier", "ece-15"]
    ).compute_all_from_labels_logits(torch.from_numpy(labels), torch.from_numpy(logits))
    p = softmax(logits)
    assert nll(p, labels) == pytest.approx(float(found["logloss"]), abs=1e-6)
    assert brier(p, labels) == pytest.approx(float(found["brier"]), abs=1e-6)
    assert ece(p, labels) == pytest.approx(float(found["ece-15"]), abs=1e-6)


@pytest.mark.parametrize("name", sorted(set(ARRAY_METRICS) - {"aurc", "debiased_l2"}))
def test_a_row_of_weight_three_is_three_rows(draw, name):
    logits, labels = draw(200, classes=3, T=2.0)
    p = softmax(logits)
    weights = np.arange(200) % 4  # some of them zero
    rows = np.repeat(np.arange(200), weights)
    metric = getattr(metrics, name)
    assert metric(p, labels, weights=weights) == pytest.approx(metric(p[rows], labels[rows]))


@pytest.mark.parametrize("name", ARRAY_METRICS)
def test_equal_weights_and_absent_rows_do_not_show(draw, name):
    logits, labels = draw(200, classes=3, T=2.0)
    p = softmax(logits)
    metric = getattr(metrics, name)
    plain = metric(p, labels)
    assert metric(p, labels, weights=np.full(200, 0.3)) == pytest.approx(plain)
    kept = np.arange(200) < 150
    assert metric(p, labels, weights=kept) == pytest.approx(metric(p[kept], labels[kept]))


def test_weights_by_hand():
    p = [[0.9, 0.1], [0.8, 0.2]]
    assert accuracy(p, [0, 1], weights=[3, 1]) == 0.75
    assert nll(p, [0, 0], weights=[3, 1]) == pytest.approx(-(3 * np.log(0.9) + np.log(0.8)) / 4)
    assert ece(p, [0, 1], bins=1, weights=[3, 1]) == pytest.approx((3 * 0.9 + 0.8 - 3) / 4)
    assert aurc(p, [0, 1], weights=[3, 1]) == pytest.approx((3 * 0 + 1 * 1 / 4) / 4)


def test_scikit_learn_agrees_on_weights(draw):
    scikit = pytest.importorskip("sklearn.metrics")
    logits, labels = draw(300, classes=4, T=2.0)
    p = softmax(logits)
    weights = np.random.default_rng(1).random(300)
    assert accuracy(p, labels, weights=weights) == pytest.approx(
        scikit.accuracy_score(labels, p.argmax(axis=1), sample_weight=weights)
    )
    assert nll(p, labels, weights=weights) == pytest.approx(
        scikit.log_loss(labels, p, labels=range(4), sample_weight=weights)
    )


def test_weights_stay_with_their_rows(draw):
    logits, labels = draw(100, classes=3)
    weights = np.arange(100.0)
    whole = Outcomes.from_logits(logits, labels, weights=weights)
    parts = [
        Outcomes.from_logits(logits[i::2], labels[i::2], weights=weights[i::2]) for i in (0, 1)
    ]
    assert accuracy(parts[0] + parts[1]) == pytest.approx(accuracy(whole))
    assert accuracy(whole[weights > 50]) == pytest.approx(
        np.average(whole.correct[51:], weights=weights[51:])
    )
    one_for_each = Outcomes.from_logits(logits, labels)
    assert (whole + one_for_each).weights_or_ones.sum() == weights.sum() + 100


@pytest.mark.parametrize("name", ARRAY_METRICS)
@pytest.mark.parametrize(
    ("p", "labels", "settings", "message"),
    [
        ([[3.0, -1.0]], [0], {}, "in row 0; these look like logits"),
        ([[0.5, 0.4]], [0], {}, "sum to one"),
        ([[0.5, 0.5], [np.nan, 0.5]], [0, 1], {}, "in row 1"),
        ([0.5, -0.2], [0, 1], {}, "in row 1; these look like logits"),
        ([0.5, 1.2], [0, 1], {}, "in row 1; these look like logits"),
        ([0.5, np.nan], [0, 1], {}, "in row 1"),
        (
            [[0.5], [0.5]],
            [0, 1],
            {},
            r"of shape \(n,\) for the second of two classes, got shape \(2, 1\)",
        ),
        ([0.5, 0.5], [0, 2], {}, "labels from 0 to 1, got 2 in row 1"),
        ([[0.5, 0.5]], [0, 1], {}, r"labels of shape \(1,\)"),
        ([0.5, 0.5], [0, 1], {"weights": [1]}, r"weights of shape \(2,\)"),
        (
            [0.5, 0.5],
            [0, 1],
            {"weights": [1, -1]},
            "non-negative and not all zero, got -1.0 in row 1",
        ),
        (
            [0.5, 0.5],
            [0, 1],
            {"weights": [1, np.nan]},
            "non-negative and not all zero, got nan in row 1",
        ),
        ([0.5, 0.5], [0, 1], {"weights": [0, 0]}, "not all zero, got 2 zeros"),
        (["a", "b"], [0, 1], {}, "probabilities that are real numbers"),
    ],
)
def test_invalid_arrays_are_refused(name, p, labels, settings, message):
    with pytest.raises(InputError, match=message):
        getattr(metrics, name)(p, labels, **settings)


def test_outcomes_come_alone_and_probabilities_with_labels(overconfident):
    for metric in (*METRICS.values(), score):
        with pytest.raises(InputError, match="expected labels with the probabilities"):
            metric([[0.5, 0.5]])  # type: ignore[operator]
        with pytest.raises(InputError, match="expected Outcomes alone"):
            metric(overconfident, [0])  # type: ignore[operator]
    with pytest.raises(InputError, match="positive number of bins, got 0"):
        classwise_ece([[0.5, 0.5]], [0], bins=0)
