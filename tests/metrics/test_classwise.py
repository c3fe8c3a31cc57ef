import numpy as np
import pytest

from pseudocal import passes
from pseudocal.arrays import InputError, softmax
from pseudocal.metrics import Outcomes, classwise_ece, ece


def brute_force(p: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """The definition, read aloud: for every class and bin (a, b], the gap weighted by its share of the rows."""
    total = 0.0
    for c in range(p.shape[1]):
        for k in range(bins):
            inside = (p[:, c] > k / bins) & (p[:, c] <= (k + 1) / bins)
            if inside.any():
                total += inside.mean() * abs(p[inside, c].mean() - (labels[inside] == c).mean())
    return total / p.shape[1]


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_definition(draw, bins):
    logits, labels = draw(700, classes=6, T=2.0)
    expected = pytest.approx(brute_force(softmax(logits), labels, bins), abs=1e-12)
    assert classwise_ece(labels, logits=logits, bins=bins) == expected
    assert classwise_ece(labels, probabilities=softmax(logits), bins=bins) == expected


def test_netcal_and_torchmetrics_agree_class_by_class(draw):
    torch = pytest.importorskip("torch")
    ECE = pytest.importorskip("netcal.metrics").ECE
    reference = pytest.importorskip("torchmetrics.functional.classification").binary_calibration_error
    logits, labels = draw(700, classes=4, T=2.0)
    columns = np.ascontiguousarray(softmax(logits).T)
    ours = classwise_ece(labels, logits=logits)
    assert ours == pytest.approx(np.mean([ECE(15).measure(p, labels == c) for c, p in enumerate(columns)]), abs=1e-6)
    one_against_rest = [
        float(reference(torch.from_numpy(p), torch.from_numpy(labels == c).long(), n_bins=15))
        for c, p in enumerate(columns)
    ]
    assert ours == pytest.approx(np.mean(one_against_rest), abs=1e-6)


def test_edges_ties_and_impossible_classes():
    p = np.array([[0.2, 0.8, 0.0], [0.4, 0.6, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    labels = np.array([0, 1, 0, 2])
    assert classwise_ece(labels, probabilities=p) == pytest.approx(brute_force(p, labels, 15), abs=1e-12)
    with np.errstate(divide="ignore"):
        impossible = np.log(p[:3])
    assert classwise_ece(labels[:3], logits=impossible, bins=4) == pytest.approx(brute_force(p[:3], labels[:3], 4))


def test_a_class_that_is_said_to_be_impossible_and_occurs_counts():
    assert classwise_ece([1], probabilities=[[1.0, 0.0]]) == 1.0


def test_blocks_do_not_show(draw, monkeypatch):
    logits, labels = draw(100)
    whole = classwise_ece(labels, logits=logits)
    monkeypatch.setattr(passes, "BLOCK", 7 * 10)
    assert classwise_ece(labels, logits=logits) == pytest.approx(whole, abs=1e-14)


def test_a_calibrated_model_has_next_to_none(draw):
    logits, labels = draw(20_000)
    assert classwise_ece(labels, logits=logits) < 0.01 < classwise_ece(labels, logits=2 * logits)


def test_top_one_can_be_calibrated_while_the_classes_are_not():
    """Each class is overstated where it is weak and understated where it is strong; the top one comes out even."""
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
def test_what_cannot_be_right_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        classwise_ece([0], **given)
