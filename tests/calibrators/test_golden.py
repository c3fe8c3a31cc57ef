"""Numbers that came out of the released code of TransCal and PseudoCal."""

from pathlib import Path

import numpy as np
import pytest

from pseudocal.arrays import Labelled
from pseudocal.calibrators import (
    cpcs,
    matrixscal,
    oracle,
    tempscal,
    transcal,
    uncalibrated,
    vectorscal,
)
from pseudocal.calibrators.confidence import confidences
from pseudocal.metrics import Outcomes, brier, ece, nll


def sines(rows, scale, phase):
    i, j = np.arange(rows)[:, None], np.arange(5)[None, :]
    logits = scale * np.sin(1.3 * i + 0.7 * j + 0.11 * i * j + phase)
    top, i = logits.argmax(axis=1), np.arange(rows)
    return Labelled(logits, np.where((5 * i + 2) % 3 == 0, (top + 1 + i % 3) % 5, top))


SOURCE, TARGET = sines(60, 4, 0.2), sines(90, 5, 0.9)
RATIO = np.exp(0.8 * np.cos(0.37 * np.arange(60)))


def scores(calibration, data=TARGET):
    outcomes = Outcomes.from_logits(calibration(data.logits), data.labels)
    return ece(outcomes), nll(outcomes), brier(outcomes)


def test_uncalibrated():
    assert scores(uncalibrated()) == pytest.approx(
        (0.16204717755317688, 2.245038408475066, 0.6174695537655213)
    )


def test_tempscal():
    reference = tempscal(SOURCE, reference=True)
    assert reference.temperature == pytest.approx(2.9838867187500027, rel=1e-12)
    assert confidences(SOURCE.logits, reference.temperature).mean() == pytest.approx(
        0.4241069257259369, rel=1e-6
    )
    assert tempscal(SOURCE).temperature == pytest.approx(2.98389, rel=2e-5)
    assert (
        scores(tempscal(SOURCE), SOURCE)[1] < scores(reference, SOURCE)[1]
    )  # the better optimum is ours


def test_cpcs():
    assert cpcs(SOURCE, RATIO, reference=True).temperature == pytest.approx(
        0.788769531249999, rel=1e-12
    )
    ours = cpcs(SOURCE, RATIO).temperature
    assert ours == pytest.approx(0.78877, rel=5e-5)
    assert weighted_brier(ours) <= weighted_brier(0.788769531249999)


def weighted_brier(temperature):
    outcomes = Outcomes.from_logits(SOURCE.logits / temperature, SOURCE.labels)
    return np.average(outcomes.brier, weights=RATIO)


@pytest.mark.parametrize(
    ("bias", "variance", "temperature"),
    [
        (True, True, 3.765896505380084),
        (True, False, 1.4344910823413843),
        (False, True, 4.531478457447772),
        (False, False, 1.5946401062652198),
    ],
)
def test_transcal(bias, variance, temperature):
    released = transcal(SOURCE, RATIO, TARGET.logits, bias=bias, variance=variance, reference=True)
    assert released.temperature == pytest.approx(temperature, rel=2e-7)  # they computed in float32
    if not bias:  # then there is one solution, which we find as well
        ours = transcal(SOURCE, RATIO, TARGET.logits, bias=bias, variance=variance)
        assert ours.temperature == pytest.approx(temperature, rel=2e-5)


def test_oracle_by_nll():
    released = oracle(TARGET.logits, TARGET.labels, reference=True)
    assert released.temperature == pytest.approx(4.244824218750006, rel=1e-12)
    assert scores(released)[0] == pytest.approx(0.2656400203704834, rel=1e-6)
    ours = oracle(TARGET.logits, TARGET.labels)
    assert ours.temperature == pytest.approx(4.24482, rel=2e-5)
    assert scores(ours)[1] <= scores(released)[1]


def test_oracle_by_ece():
    released = oracle(TARGET.logits, TARGET.labels, by="ece", reference=True)
    assert released.temperature == pytest.approx(1.9955077171325684, rel=1e-6)
    assert scores(released)[0] == pytest.approx(0.15487352013587952, rel=1e-6)
    assert (
        scores(oracle(TARGET.logits, TARGET.labels, by="ece"))[0] <= 0.13818594813346863
    )  # the best of a grid


@pytest.mark.parametrize(
    ("method", "validation_nll", "golden"),
    [
        (
            vectorscal,
            1.3067446947097778,
            (0.11134064942598343, 1.4634063243865967, 0.6862030029296875),
        ),
        (
            matrixscal,
            1.090135931968689,
            (0.28752368688583374, 1.5157002210617065, 0.7904201149940491),
        ),
    ],
)
def test_linear_scaling(method, validation_nll, golden):
    """With 60 rows of 5 classes, 5,000 steps come close to the maximum, which is a little better."""
    released = method(SOURCE, reference=True)
    assert scores(released) == pytest.approx(golden, rel=2e-6)
    assert scores(released, SOURCE)[1] == pytest.approx(validation_nll, rel=1e-6)
    calibration = method(SOURCE, penalty=0.0)
    assert scores(calibration) == pytest.approx(golden, rel=2e-5)
    assert scores(calibration, SOURCE)[1] < validation_nll


def test_the_page_shows_these_numbers():
    """The table of docs/paper/calibrators.md: released, `reference=True`, and our default."""
    page = Path(__file__).parents[2] / "docs" / "paper" / "calibrators.md"
    table = page.read_text(encoding="utf-8").partition("| | released |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in table.splitlines()[2:]]

    def ece_of(calibration):
        return scores(calibration)[0]

    def validation_nll(calibration):
        return scores(calibration, SOURCE)[1]

    def temperature(calibration):
        return calibration.temperature

    def transcals(**settings):
        return [
            transcal(SOURCE, RATIO, TARGET.logits, reference=reference, **settings)
            for reference in (True, False)
        ]

    expected = {
        "TempScal, T": (temperature, [tempscal(SOURCE, reference=True), tempscal(SOURCE)]),
        "CPCS, T": (temperature, [cpcs(SOURCE, RATIO, reference=True), cpcs(SOURCE, RATIO)]),
        "TransCal, T": (temperature, transcals()),
        "TransCal without variance term": (temperature, transcals(variance=False)),
        "TransCal without bias term": (temperature, transcals(bias=False)),
        "TransCal without either": (temperature, transcals(bias=False, variance=False)),
        "Oracle by NLL, T": (
            temperature,
            [oracle(TARGET.logits, TARGET.labels, reference=each) for each in (True, False)],
        ),
        "Oracle by ECE, ECE": (
            ece_of,
            [
                oracle(TARGET.logits, TARGET.labels, by="ece", reference=each)
                for each in (True, False)
            ],
        ),
        "VectorScal, `penalty=0`, validation NLL": (
            validation_nll,
            [vectorscal(SOURCE, reference=True), vectorscal(SOURCE, penalty=0.0)],
        ),
        "MatrixScal, `penalty=0`, validation NLL": (
            validation_nll,
            [matrixscal(SOURCE, reference=True), matrixscal(SOURCE, penalty=0.0)],
        ),
    }
    assert [name for name, *_ in rows] == list(expected)
    for name, _, *shown in rows:
        value, calibrations = expected[name]
        for cell, calibration in zip(shown, calibrations, strict=True):
            scale = 100 if cell.endswith("%") else 1
            digits = len(cell.rstrip("%").partition(".")[2])
            assert float(cell.rstrip("%")) == pytest.approx(
                scale * value(calibration), abs=0.6 * 10**-digits
            ), name
