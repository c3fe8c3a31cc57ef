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
    assert classwise_ece(labels, logits=logits, bins=bins) == expected
    assert classwise_ece(labels, probabilities=softmax(logits), bins=bins) == expected


def test_classwise_netcal_and_torchmetrics_agree_class_by_class(draw):
    torch = pytest.importorskip("torch")
    ECE = pytest.importorskip("netcal.metrics").ECE
    reference = pytest.importorskip(
        "torchmetrics.functional.classification"
    ).binary_calibration_error
    logits, labels = draw(700, classes=4, T=2.0)
    columns = np.ascontiguousarray(softmax(logits).T)
    ours = classwise_ece(labels, logits=logits)
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
    assert classwise_ece(labels, probabilities=p) == pytest.approx(
        brute_force(p, labels, 15), abs=1e-12
    )
    with np.errstate(divide="ignore"):
        impossible = np.log(p[:3])
    assert classwise_ece(labels[:3], logits=impossible, bins=4) == pytest.approx(
        brute_force(p[:3], labels[:3], 4)
    )


def test_classwise_a_class_that_is_said_to_be_impossible_and_occurs_counts():
    assert classwise_ece([1], probabilities=[[1.0, 0.0]]) == 1.0


def test_classwise_blocks_do_not_show(draw, monkeypatch):
    logits, labels = draw(100)
    whole = classwise_ece(labels, logits=logits)
    monkeypatch.setattr(passes, "CHUNK_NUMBERS", 7 * 10)
    assert classwise_ece(labels, logits=logits) == pytest.approx(whole, abs=1e-14)


def test_classwise_a_calibrated_model_has_next_to_none(draw):
    logits, labels = draw(20_000)
    assert classwise_ece(labels, logits=logits) < 0.01 < classwise_ece(labels, logits=2 * logits)


def test_classwise_top_one_can_be_calibrated_while_the_classes_are_not():
    """Each class is overstated where it is weak and understated where it is strong.

    The top one comes out even.
    """
    p = np.array([[0.7, 0.3]] * 10 + [[0.3, 0.7]] * 10)
    labels = np.array([0] * 9 + [1] + [1] * 5 + [0] * 5)  # 90 % right and 50 % right, 70 % together
    assert ece(Outcomes.from_probabilities(p, labels)) == pytest.approx(0.0, abs=1e-12)
    assert classwise_ece(labels, probabilities=p) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either logits or probabilities, got neither"),
        ({"logits": [[0.5, 0.5]], "probabilities": [[0.5, 0.5]]}, "got both"),
        ({"probabilities": [[3.0, -1.0]]}, "in row 0; these look like logits"),
        ({"logits": [[np.nan, -1.0]]}, "NaN in row 0"),
        ({"logits": [[0.0, 1.0]], "bins": 0}, "positive number of bins, got 0"),
    ],
)
def test_classwise_what_cannot_be_right_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        classwise_ece([0], **given)
