import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.arrays import InputError
from pseudocal.lab.analyses import (
    LAMBDAS,
    calibrated_ece,
    correspondence,
    factorised_nll,
    lambda_sweep,
    real_and_pseudo,
)
from pseudocal.metrics import Outcomes, Reliability, ece, nll


@pytest.fixture(scope="module")
def task():
    """Three clusters and a model that is far too sure of itself."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1500)
    x = 2 * np.eye(3)[labels] + rng.normal(size=(1500, 3))
    return (lambda x: 6 * x), x, labels


def test_correspondence(task):
    model, x, labels = task
    result = correspondence(model, x, labels)
    assert 0.55 < result.rate < 0.95
    assert result.accuracy == pytest.approx((x.argmax(axis=1) == labels).mean(), abs=0.03)
    assert result.chance == pytest.approx(
        result.accuracy * result.pseudo_accuracy
        + (1 - result.accuracy) * (1 - result.pseudo_accuracy)
    )
    assert result.rate > result.chance + 0.01  # more than two coins would


def test_the_ece_that_chance_leaves_is_that_of_drawn_labels():
    """Labels drawn from the probabilities: the model is calibrated by construction."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(8, 0.3), 1316)
    drawn = [
        ece(probabilities, (probabilities.cumsum(axis=1) > rng.random((1316, 1))).argmax(axis=1))
        for _ in range(300)
    ]
    outcomes = Outcomes.from_probabilities(probabilities, np.zeros(1316, int))
    assert calibrated_ece(Reliability.of(outcomes)) == pytest.approx(np.mean(drawn), rel=0.03)
    assert 0.02 < np.mean(drawn) < 0.04


def test_correspondence_by_hand():
    """Two rows, told apart, mixed both ways.

    The first is right, the second is not; both mixup samples are right.
    """
    result = correspondence(lambda x: x, np.array([[9.0, 0.0], [0.0, 9.0]]), [0, 0])
    assert (result.rate, result.accuracy, result.pseudo_accuracy, result.mixup_samples) == (
        0.5,
        0.5,
        1.0,
        2,
    )


def test_the_sweep_reads_the_data_once_and_once_more_for_each_lambda(task):
    model, x, _ = task
    rows = []

    def counting(batch):
        rows.append(len(batch))
        return model(batch)

    records = lambda_sweep(counting, x)
    assert sum(rows) == len(x) + len(LAMBDAS) * records[0].mixup_samples
    assert [(r.lam, r.labels) for r in records] == [
        (lam, kind) for lam in LAMBDAS for kind in ("hard", "soft")
    ]
    assert all(r.ece is None for r in records)


def test_the_sweep_agrees_with_pseudocal(task):
    model, x, labels = task
    for record in lambda_sweep(model, x, labels, lams=[0.6, 0.8]):
        calibration = PseudoCal(lam=record.lam, labels=record.labels, epochs=5).fit(model, x)
        assert record.temperature == pytest.approx(calibration.temperature, rel=5 * record.log_se)
        assert 0 < record.ece < 0.5


def test_labels_do_not_move_the_temperature(task):
    model, x, labels = task
    plain, scored = lambda_sweep(model, x, lams=[0.65]), lambda_sweep(model, x, labels, lams=[0.65])
    assert [r.temperature for r in plain] == [r.temperature for r in scored]


def test_mistakes(task):
    model, x, labels = task
    with pytest.raises(InputError, match="as one array, got list"):
        correspondence(model, [x], labels)
    with pytest.raises(InputError, match="expected labels of shape"):
        correspondence(model, x, labels[:5])
    with pytest.raises(InputError, match="got one class for all 1500"):
        lambda_sweep(lambda x: 0 * x + np.arange(3), x)


def test_factorised_nll_by_hand():
    """Four rows with a logit gap of 2, three of them right.

    At T = 1 a right row has log(1 + e^-2) = 0.126928, the wrong one 2 more. At T = 2 the gap is 1:
    log(1 + e^-1) = 0.313262, and 1 more.
    """
    at_one, at_two = factorised_nll([[2.0, 0.0]] * 4, [0, 0, 0, 1], [1.0, 2.0])
    assert at_one.correct == 0.75
    assert at_one.correct_nll == pytest.approx(0.126928, abs=1e-6)
    assert at_one.wrong_nll == pytest.approx(2.126928, abs=1e-6)
    assert at_one.nll == pytest.approx(0.75 * 0.126928 + 0.25 * 2.126928, abs=1e-6)
    assert at_two.correct_nll == pytest.approx(0.313262, abs=1e-6)
    assert at_two.wrong_nll == pytest.approx(1.313262, abs=1e-6)


def test_the_parts_of_the_nll_add_up_and_pull_in_opposite_directions(task):
    model, x, labels = task
    temperatures = [0.5, 1.0, 2.0, 4.0]
    found = factorised_nll(model(x), labels, temperatures)
    whole = [nll(Outcomes.from_logits(model(x) / t, labels)) for t in temperatures]
    np.testing.assert_allclose([each.nll for each in found], whole)
    assert np.all(np.diff([each.correct_nll for each in found]) > 0)
    assert np.all(np.diff([each.wrong_nll for each in found]) < 0)


def test_a_part_without_rows_counts_nothing():
    (found,) = factorised_nll([[2.0, 0.0]], [0])
    assert np.isnan(found.wrong_nll)
    assert found.nll == found.correct_nll
    with pytest.raises(InputError, match="temperature"):
        factorised_nll([[2.0, 0.0]], [0], [0.0])


def test_real_and_pseudo_target(task):
    """The model is overconfident on both, and less so at PseudoCal's temperature."""
    model, x, labels = task
    found = real_and_pseudo(model, x, labels)
    assert found.real.ece == pytest.approx(
        Reliability.of(Outcomes.from_logits(model(x), labels)).ece
    )
    assert found.pseudo.ece > 0.05
    assert 0 < found.gap < 0.3
    temperature = PseudoCal().fit(model, x).temperature
    calibrated = real_and_pseudo(model, x, labels, temperature=temperature, bins=5)
    assert len(calibrated.real.count) == 5
    assert calibrated.real.ece < found.real.ece
    assert calibrated.pseudo.ece < 0.05


def test_the_gap_by_hand():
    """The first of two rows is right, both mixup samples are: half of the real rows differ."""
    x = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert real_and_pseudo(lambda x: x, x, [0, 0], bins=1).gap == 0.5
