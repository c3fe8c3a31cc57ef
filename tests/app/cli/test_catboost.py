"""Model files of CatBoost: from file and CSV to a verdict, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration
from pseudocal.app.models import boosting as reader
from pseudocal.app.models.files import kind_of, open_model
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

QUIET = {"iterations": 20, "depth": 3, "verbose": 0, "allow_writing_files": False}


@pytest.fixture(scope="module")
def catboost() -> Any:
    pytest.importorskip("pandas")
    return pytest.importorskip("catboost")


def table(n: int, seed: int, classes: int = 3) -> tuple[Any, np.ndarray]:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = (2 * x[:, :classes] + rng.gumbel(size=(n, classes))).argmax(axis=1)
    return pandas.DataFrame(x, columns=list("abcd")), np.array(["red", "green", "blue"])[y]


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_model_goes_from_its_file_and_a_csv_to_a_verdict(
    catboost, pseudocal, tmp_path, monkeypatch, classes
):
    model = catboost.CatBoostClassifier(**QUIET).fit(*table(300, 0, classes))
    path = tmp_path / "model.cbm"
    model.save_model(str(path))
    frame, _ = table(300, 1)
    frame[["d", "c", "b", "a"]].to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    done = pseudocal("calibrate", path, tmp_path / "rows.csv", "-o", out)
    assert done.code == 0, done.err
    assert "verdict: " in done.out
    versions = json.loads((out / "run.json").read_text())["versions"]
    assert versions["catboost"] == catboost.__version__
    logits = np.load(out / "logits.npy")
    np.testing.assert_allclose(softmax(logits), model.predict_proba(frame), atol=1e-6)
    assert open_model(str(path)).classes == tuple(model.classes_)
    calibration = Calibration.load(out / "calibration.json")
    assert calibration.counts["mixup_samples"] > 0
    monkeypatch.chdir(out)
    code = json.loads((out / "report.json").read_text())["usage"]
    names: dict[str, Any] = {"model": model, "x": frame, "logits": logits}
    exec(code, names)
    expected = calibration.probabilities(logits)
    np.testing.assert_allclose(names["probabilities"], expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["Min", "Max"])
def test_missing_values_count_as_in_training(catboost, tmp_path, mode):
    x, y = table(300, 0)
    x.loc[::5, "b"] = np.nan
    model = catboost.CatBoostClassifier(**QUIET, nan_mode=mode).fit(x, y)
    model.save_model(str(tmp_path / "model.cbm"))
    logits = open_model(str(tmp_path / "model.cbm")).predict(x)
    np.testing.assert_allclose(softmax(logits), model.predict_proba(x), atol=1e-6)


def test_what_is_not_supported_is_refused(catboost, tmp_path):
    x, y = table(200, 0)
    path = str(tmp_path / "model.cbm")
    catboost.CatBoostRegressor(**QUIET).fit(x, x["a"]).save_model(path)
    with pytest.raises(InputError, match="loss RMSE, which gives no probabilities"):
        open_model(path)
    catboost.CatBoostClassifier(**QUIET, grow_policy="Lossguide").fit(x, y).save_model(path)
    with pytest.raises(InputError, match="not symmetric: pass the model as module:function"):
        open_model(path)
    x["city"] = np.where(x["a"] > 0, "Oslo", "Rome")
    catboost.CatBoostClassifier(**QUIET, cat_features=["city"]).fit(x, y).save_model(path)
    with pytest.raises(InputError, match="categorical features: pass the model as module:function"):
        open_model(path)


def test_damaged_files_are_refused_or_read_but_never_end_the_process(catboost, tmp_path):
    path = tmp_path / "model.cbm"
    model = catboost.CatBoostClassifier(**QUIET).fit(*table(200, 0))
    model.save_model(str(path))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(8):
        damaged = bytearray(whole)
        at = int(rng.integers(8, len(whole) - 4))
        damaged[at : at + 4] = b"\xff\xff\xff\x7f"
        path.write_bytes(damaged)
        try:
            open_model(str(path)).predict(table(20, 1)[0])
        except InputError:
            refused += 1
    assert refused > 0
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"the CatBoost model .* cannot be read"):
        open_model(str(path))


# ------------------------------------------------------------------- without CatBoost


SAVED: dict[str, Any] = {
    "features_info": {
        "float_features": [
            {
                "feature_id": name,
                "feature_index": i,
                "flat_feature_index": i,
                "nan_value_treatment": "AsTrue",
            }
            for i, name in enumerate("ab")
        ]
    },
    "model_info": {
        "class_params": {"class_names": ["no", "yes"]},
        "params": {"loss_function": {"type": "Logloss"}},
    },
    "oblivious_trees": [
        {
            "leaf_values": [-1.0, 2.0, 0.25, 4.0],
            "splits": [
                {"border": 0.5, "float_feature_index": 0, "split_type": "FloatFeature"},
                {"border": 1.5, "float_feature_index": 1, "split_type": "FloatFeature"},
            ],
        }
    ],
    "scale_and_bias": [2.0, [0.5]],
}


@pytest.fixture
def saved(monkeypatch, tmp_path) -> tuple[dict[str, Any], Path]:
    content = json.loads(json.dumps(SAVED))
    monkeypatch.setattr(reader, "find_spec", lambda name: name)
    monkeypatch.setattr(reader, "_as_json", lambda path: content)
    path = tmp_path / "model.cbm"
    path.write_bytes(b"CBM1")
    return content, path


def test_scores_worked_out_by_hand(saved):
    model = open_model(str(saved[1]))
    assert (model.kind, model.classes, model.expects.columns) == (
        "catboost",
        ("no", "yes"),
        ("a", "b"),
    )
    # twice the value of the leaf plus 0.5; a missing value lies above every border
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 2.0], [np.nan, 2.0]])
    np.testing.assert_allclose(model.predict(x)[:, 1], [-1.5, 4.5, 1.0, 8.5])


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["oblivious_trees"][0]["splits"][0].update(float_feature_index=2),
        lambda s: s["oblivious_trees"][0]["splits"][0].update(float_feature_index=-1),
        lambda s: s["oblivious_trees"][0]["leaf_values"].pop(),
        lambda s: s["oblivious_trees"][0].update(leaf_values=["x"] * 4),
        lambda s: s["oblivious_trees"][0].update(splits=40 * SAVED["oblivious_trees"][0]["splits"]),
        lambda s: s["scale_and_bias"].pop(),
        lambda s: s["features_info"]["float_features"][0].update(flat_feature_index=9),
        lambda s: s["features_info"]["float_features"].clear(),
    ],
)
def test_damaged_trees_are_refused(saved, change):
    content, path = saved
    change(content)
    with pytest.raises(InputError, match=r"the CatBoost model .* cannot be read"):
        open_model(str(path))


def test_a_file_needs_its_package(tmp_path, monkeypatch):
    path = tmp_path / "model.any"
    path.write_bytes(b"CBM1")
    assert kind_of(str(path)) == "catboost"
    monkeypatch.setattr(reader, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pseudocal\[catboost\]"):
        open_model(str(path))
