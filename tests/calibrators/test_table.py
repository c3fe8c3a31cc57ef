"""Every entry of the table: what it says that it needs, it needs, and nothing else.

What it promises, it keeps.
"""

import inspect
from dataclasses import fields, replace

import numpy as np
import pytest

from pseudocal import calibrators
from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import (
    CALIBRATORS,
    PARTS,
    Material,
    calibrate_by_name,
    comparison_table,
    ensemble,
    needs_table,
)

NAMES = list(CALIBRATORS)


def test_every_calibrator_is_a_public_name():
    public = {name.lower() for name in calibrators.__all__}
    named = {
        entry.function.__name__.removeprefix("_") for entry in CALIBRATORS.values()
    }  # _cpcs fits its ratio first
    assert named - public == set(), "export them in calibrators/__init__.py"


class Trap:
    """Something that must not be looked at."""

    def __getattribute__(self, name):
        raise AssertionError(f"a part that was not declared was read: {name}")

    def __array__(self, *_args, **_kwargs):
        raise AssertionError("a part that was not declared was read as an array")

    def __len__(self):
        raise AssertionError("a part that was not declared was measured")


@pytest.fixture(scope="module")
def material():
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 6, 4))
    train, source, target = (rng.normal(size=(400, 6)) + mean for mean in (0.0, 0.0, 0.3))
    noisy = [x @ weights[0] + rng.gumbel(size=(400, 4)) for x in (source, target)]
    linear = torch.nn.Linear(6, 4, bias=False)
    linear.weight.data = torch.as_tensor(3 * weights[0].T, dtype=torch.float32)
    members = [lambda x, w=w: 3 * np.asarray(x) @ (weights[0] + 0.5 * w) for w in weights]
    return Material(
        source=Labelled(3 * source @ weights[0], noisy[0].argmax(axis=1)),
        source_train_features=train,
        source_features=source,
        target_features=target,
        target_logits=3 * target @ weights[0],
        target_labels=noisy[1].argmax(axis=1),
        target_inputs=target.astype(np.float32),
        model=torch.nn.Sequential(torch.nn.Dropout(0.5), linear),
        head=lambda x: 3 * np.asarray(x) @ weights[0],
        members=members,
        member_logits=[member(target) for member in members],
    )


def test_every_part_has_words():
    assert list(PARTS) == [field.name for field in fields(Material)]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_declares_the_parameters_of_its_function(name):
    parameters = inspect.signature(CALIBRATORS[name].function).parameters.values()
    parts = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in parts] == list(CALIBRATORS[name].needs)
    optional = {p.name for p in parts if p.default is not p.empty}
    assert optional == (
        {"target_labels"} if name == "oracle" else set()
    )  # a `Labelled` has them inside


@pytest.mark.parametrize("name", NAMES)
def test_nothing_undeclared_is_read(name, material):
    """Every part that the method does not declare, nor corrects, is a trap."""
    entry = CALIBRATORS[name]
    traps = {part: Trap() for part in PARTS if part not in entry.needs and part != entry.corrects}
    corrected = calibrate_by_name(name, replace(material, **traps))
    assert corrected.logits.shape == (400, 4)
    np.testing.assert_array_equal(corrected.logits, calibrate_by_name(name, material).logits)


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in NAMES for part in CALIBRATORS[name].needs]
)
def test_what_is_declared_is_needed(name, part, material):
    with pytest.raises(InputError, match=rf"\({part}\).* for {name}, got none"):
        calibrate_by_name(name, replace(material, **{part: None}))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_oracle_sees_target_labels(name):
    assert ("target_labels" in CALIBRATORS[name].needs) == (name == "oracle")


@pytest.mark.parametrize("name", NAMES)
def test_predictions_stay_where_that_is_promised(name, material):
    settings = (
        {"penalty": 0.0} if name in ("matrixscal", "vectorscal") else {}
    )  # a ridge may change none of these few
    before, after = (
        np.asarray(material.target_logits).argmax(axis=1),
        calibrate_by_name(name, material, **settings).logits.argmax(axis=1),
    )
    assert (before == after).all() == CALIBRATORS[name].keeps_argmax


def test_a_pseudo_ensemble_keeps_the_predictions_of_its_ensemble(material):
    together = ensemble(material.member_logits)
    corrected = calibrate_by_name("pseudo-ensemble", material)
    np.testing.assert_array_equal(corrected.logits.argmax(axis=1), together.argmax(axis=1))
    np.testing.assert_allclose(corrected.logits, together / corrected.calibration.temperature)
    means = calibrate_by_name("pseudo-ensemble", material, mean="logits")
    assert means.calibration.settings["mean"] == "logits"
    np.testing.assert_allclose(
        means.logits * means.calibration.temperature, np.mean(material.member_logits, axis=0)
    )


def test_settings_reach_the_method(material):
    by_ece = calibrate_by_name("oracle", material, by="ece").calibration
    assert by_ece.settings["by"] == "ece"
    released = calibrate_by_name("transcal", material, reference=True).calibration
    assert released.settings["reference"]
    assert released.temperature >= 1


def test_a_calibration_is_saved_and_read(material, tmp_path):
    from pseudocal import Calibration

    for name in NAMES:
        calibration = calibrate_by_name(name, material).calibration
        if calibration is not None:
            calibration.save(tmp_path / name)
            again = Calibration.load(tmp_path / name)
            np.testing.assert_allclose(
                again(material.target_logits), calibration(material.target_logits)
            )


def test_an_unknown_name():
    with pytest.raises(InputError, match=r"expected one of none, .*, got 'magic'"):
        calibrate_by_name("magic", Material())


def test_table_1_of_the_paper():
    """As printed there, but for one cell.

    An ensemble may change predictions, if seldom for the worse.
    """
    cells = {
        row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ")[1:]
        for row in comparison_table().split("\n")
    }
    y, n = "yes", "no"
    assert cells["TempScal"] == [n, n, y, y, n]
    assert cells["MC-Dropout"] == [y, y, n, y, y]
    assert cells["Ensemble"] == [
        y,
        y,
        n,
        n,
        y,
    ]  # the paper says that an ensemble does accuracy no harm
    assert cells["CPCS"] == cells["TransCal"] == [y, n, y, n, n]
    assert cells["PseudoCal"] == [y, y, y, y, y]
    assert "labelled source validation logits; features of source training data" in needs_table()
