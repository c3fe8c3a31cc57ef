from __future__ import annotations

import json

import numpy as np
import pytest

from pseudocal import (
    Calibration,
    InputError,
    LabelSample,
    PseudoCal,
    TemperatureScaling,
    VectorScaling,
    fit_temperature,
    fit_vector,
    softmax,
)

TWO = Calibration(
    "pseudocal", TemperatureScaling(2.0, log_se=0.05, rows=400), {"seed": 0}, {"mixup": 400}
)
LOGITS = np.array([[3.0, 1.0, -1.0], [0.0, 0.5, 0.2]])


def test_divides_by_the_temperature():
    assert np.array_equal(TWO(LOGITS), LOGITS / 2)
    assert np.allclose(TWO.probabilities(LOGITS), softmax(LOGITS / 2))
    assert np.array_equal(TWO(LOGITS).argmax(axis=1), LOGITS.argmax(axis=1))


def test_save_and_load_give_back_the_same(tmp_path):
    path = tmp_path / "calibration.json"
    fitted = PseudoCal(seed=7).fit(lambda x: 5 * x, np.random.default_rng(0).normal(size=(300, 3)))
    for calibration in (
        TWO,
        fitted,
        Calibration("pseudocal", TemperatureScaling(1e6, np.inf, 9, "upper")),
    ):
        calibration.save(path)
        assert Calibration.load(path) == calibration
    assert fitted.settings["seed"] == 7
    assert set(fitted.versions) == {"pseudocal", "python", "numpy", "scipy"}


def test_an_unknown_standard_error_is_still_unknown_after_saving(tmp_path):
    path = tmp_path / "calibration.json"
    by_hand = Calibration("pseudocal", TemperatureScaling(1.5, rows=20))
    by_hand.save(path)
    assert (
        repr(Calibration.load(path))
        == repr(by_hand)
        == "Calibration(pseudocal: T = 1.500, from 20 rows)"
    )


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "calibration.json"
    TWO.save(path)
    broken = Calibration("pseudocal", TemperatureScaling(2.0), {"callback": print})
    with pytest.raises(TypeError):
        broken.save(path)
    assert Calibration.load(path) == TWO
    assert [p.name for p in tmp_path.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "which is not JSON"),
        ("[]", "format pseudocal-calibration"),
        (json.dumps({"format": "other"}), "format pseudocal-calibration"),
        (
            json.dumps({"format": "pseudocal-calibration", "format_version": 99}),
            "format version 1, got 99",
        ),
        (
            json.dumps({"format": "pseudocal-calibration", "format_version": 1}),
            "expected a scaling of kind",
        ),
        (
            json.dumps(
                {
                    "format": "pseudocal-calibration",
                    "format_version": 1,
                    "scaling": {"kind": "temperature", "temperature": 0},
                }
            ),
            "positive temperature",
        ),
    ],
)
def test_files_are_checked(tmp_path, content, message):
    path = tmp_path / "calibration.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        Calibration.load(path)


def test_a_calibration_without_a_temperature_says_so():
    calibration = Calibration("vectorscal", VectorScaling(np.ones(3), np.zeros(3)))
    assert repr(calibration) == "Calibration(vectorscal: VectorScaling of 3 classes)"
    with pytest.raises(AttributeError, match="expected a temperature, got a VectorScaling"):
        _ = calibration.temperature


def test_logits_of_other_classes_are_refused(tmp_path):
    fitted = PseudoCal(seed=7).fit(lambda x: 5 * x, np.random.default_rng(0).normal(size=(300, 3)))
    fitted.save(tmp_path / "calibration.json")
    loaded = Calibration.load(tmp_path / "calibration.json")
    assert loaded.classes == 3
    four = np.zeros((6, 4))
    for take in (
        loaded,
        loaded.probabilities,
        lambda z: loaded.refined(z, LabelSample([0], [1])),
        lambda z: loaded(z.reshape(-1, 4, 1, 1)),
    ):
        with pytest.raises(InputError, match=r"of 3 classes, as the calibration .* got 4"):
            take(four)
    with pytest.raises(InputError, match=r"for one image pass logits\[None\]"):
        loaded(np.zeros((3, 5, 5)))
    with pytest.raises(InputError, match="one logit per row is two columns"):
        loaded(np.zeros((6, 1)))


def test_labels_give_the_number_of_classes():
    assert TWO.classes is None
    assert TWO.refined(LOGITS, LabelSample([0], [0], sampling="random")).classes == 3


@pytest.mark.parametrize("classes", [1, -3, 10**400, 2.5, "3", True])
def test_a_file_with_an_impossible_number_of_classes_is_refused(tmp_path, classes):
    path = tmp_path / "calibration.json"
    TWO.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": classes}))
    with pytest.raises(InputError, match="expected a number of classes, got"):
        Calibration.load(path)


def test_a_bound_shows():
    calibration = Calibration("pseudocal", TemperatureScaling(1e-4, np.inf, 9, "lower"))
    assert calibration.bound == "lower"
    assert "at the lower bound" in repr(calibration)


def test_probabilities_are_not_taken_for_logits() -> None:
    p = softmax(np.random.default_rng(0).normal(size=(50, 3)))
    calibration = Calibration("pseudocal", TemperatureScaling(2.0))
    for taken in (
        calibration,
        calibration.probabilities,
        lambda z: fit_temperature(z, p.argmax(axis=1)),
        lambda z: fit_vector(z, p.argmax(axis=1)),
        lambda z: calibration.refined(z, LabelSample(np.arange(50), p.argmax(axis=1))),
    ):
        with pytest.raises(InputError, match=r"pass their logarithm instead, np\.log"):
            taken(p)
    maps = np.moveaxis(p.reshape(2, 5, 5, 3), -1, 1)
    with pytest.raises(InputError, match="look like probabilities"):
        calibration.probabilities(maps)
    np.testing.assert_allclose(
        calibration.probabilities(np.log(p)), np.sqrt(p) / np.sqrt(p).sum(axis=1, keepdims=True)
    )


def test_a_few_rows_of_logits_may_sum_to_one() -> None:
    calibration = Calibration("pseudocal", TemperatureScaling(2.0))
    np.testing.assert_array_equal(calibration([[0.0, 1.0]]), [[0.0, 0.5]])
