"""Model files of XGBoost and LightGBM: from file and CSV to a verdict, and damaged files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration
from pseudocal.app.models.files import kind_of, open_model
from pseudocal.arrays import InputError

lightgbm = pytest.importorskip("lightgbm")
pandas = pytest.importorskip("pandas")
xgboost = pytest.importorskip("xgboost")


def table(n: int, seed: int, classes: int = 3) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = (2 * x[:, :classes] + rng.gumbel(size=(n, classes))).argmax(axis=1)
    return pandas.DataFrame(x, columns=list("abcd")), y


def train_xgboost(classes: int, path: Path) -> Any:
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(
        *table(200, 0, classes)
    )
    model.save_model(path)
    return model


def train_lightgbm(classes: int, path: Path) -> Any:
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(
        *table(200, 0, classes)
    )
    model.booster_.save_model(path)
    return model


TRAIN = {".json": train_xgboost, ".ubj": train_xgboost, ".txt": train_lightgbm}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("suffix", TRAIN)
def test_a_model_goes_from_its_file_and_a_csv_to_a_verdict(pseudocal, tmp_path, suffix, classes):
    model = TRAIN[suffix](classes, tmp_path / f"model{suffix}")
    frame, _ = table(300, 1)
    frame.assign(id=range(300))[["id", "d", "c", "b", "a"]].to_csv(
        tmp_path / "rows.csv", index=False
    )
    out = tmp_path / "out"
    words = ["calibrate", tmp_path / f"model{suffix}", tmp_path / "rows.csv", "-o", out]
    done = pseudocal(*words)
    assert done.code == 0, done.err
    assert "verdict: " in done.out
    versions = json.loads((out / "run.json").read_text())["versions"]
    used = lightgbm if suffix == ".txt" else xgboost
    assert used.__version__ in {
        version for name, version in versions.items() if name.startswith(used.__name__)
    }
    assert Calibration.load(out / "calibration.json").counts["mixup_samples"] > 0
    logits = np.load(out / "logits.npy")
    found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, model.predict_proba(frame), atol=1e-5)


@pytest.mark.parametrize("suffix", TRAIN)
def test_the_code_in_the_report_gives_calibrated_probabilities(
    pseudocal, tmp_path, monkeypatch, suffix
):
    path = tmp_path / f"model{suffix}"
    TRAIN[suffix](2, path)
    frame, _ = table(300, 1)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    assert pseudocal("calibrate", path, tmp_path / "rows.csv", "-o", out).code == 0
    calibration = Calibration.load(out / "calibration.json")
    expected = calibration.probabilities(np.load(out / "logits.npy"))
    booster = xgboost.Booster(model_file=path) if suffix != ".txt" else None
    booster = booster or lightgbm.Booster(model_file=path)
    code = json.loads((out / "report.json").read_text())["usage"]
    names: dict[str, Any] = {"booster": booster, "x": frame}
    monkeypatch.chdir(out)
    exec(code, names)
    np.testing.assert_allclose(names["probabilities"], expected, atol=1e-5)


@pytest.mark.parametrize("suffix", TRAIN)
def test_missing_values_reach_the_model_and_are_not_mixed(pseudocal, tmp_path, suffix):
    model = TRAIN[suffix](3, tmp_path / f"model{suffix}")
    frame, _ = table(100, 1)
    frame.loc[::7, "b"] = np.nan
    frame.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    words = ["calibrate", tmp_path / f"model{suffix}", tmp_path / "rows.csv", "-o", out]
    done = pseudocal(*words)
    assert done.code == 0, done.err
    assert "are not mixed" in done.out
    logits = np.load(out / "logits.npy")
    found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, model.predict_proba(frame), atol=1e-5)


def test_the_best_round_of_early_stopping_is_used(tmp_path):
    x, y = table(200, 0)
    model = xgboost.XGBClassifier(n_estimators=60, learning_rate=1.0, early_stopping_rounds=3)
    model.fit(x, y, eval_set=[table(100, 2)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    model.save_model(tmp_path / "model.json")
    logits = open_model(str(tmp_path / "model.json")).predict(x)
    found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"booster": "dart", "rate_drop": 0.5},
        {"tree_method": "exact", "gamma": 5.0},  # which prunes nodes
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"tree_method": "approx", "grow_policy": "lossguide", "max_leaves": 9},
    ],
    ids=["dart", "pruned", "parallel", "lossguide"],
)
@pytest.mark.parametrize("suffix", [".json", ".ubj"])
def test_other_boosters_of_xgboost_predict_the_same(tmp_path, settings, suffix):
    x, y = table(200, 0)
    model = xgboost.XGBClassifier(n_estimators=6, **settings).fit(x, y)
    model.save_model(tmp_path / f"model{suffix}")
    margins = open_model(str(tmp_path / f"model{suffix}")).predict(x)
    expected = model.predict(x, output_margin=True)
    np.testing.assert_allclose(margins, expected, atol=1e-5)


def test_a_file_is_recognised_by_content(tmp_path):
    train_xgboost(2, tmp_path / "a.ubj")
    train_lightgbm(2, tmp_path / "b.txt")
    (tmp_path / "a.ubj").rename(tmp_path / "a.model")
    (tmp_path / "b.txt").rename(tmp_path / "b.onnx")
    assert kind_of(str(tmp_path / "a.model")) == "xgboost"
    assert kind_of(str(tmp_path / "b.onnx")) == "lightgbm"
    (tmp_path / "c.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match="none of them"):
        kind_of(str(tmp_path / "c.json"))


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:hinge", "rank:pairwise"])
def test_a_model_without_probabilities_is_refused(tmp_path, objective):
    x, y = table(50, 0, 2)
    data = xgboost.DMatrix(x, y)
    xgboost.train({"objective": objective}, data, 2).save_model(tmp_path / "model.json")
    with pytest.raises(InputError, match=f"has the objective {objective}"):
        open_model(str(tmp_path / "model.json"))


def test_a_regression_of_lightgbm_is_refused(tmp_path):
    model = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(*table(50, 0))
    model.booster_.save_model(tmp_path / "model.txt")
    with pytest.raises(InputError, match="has the objective regression"):
        open_model(str(tmp_path / "model.txt"))


# ------------------------------------------------------------------------------ damaged files


def first_tree(name: str, value: int):
    def change(model):
        model["trees"][0][name][0] = value

    return change


def last_parent(model):
    model["trees"][0]["parents"][-1] = -7


def fewer_nodes(model):
    model["trees"][0]["split_conditions"].pop()


def wrong_group(model):
    model["tree_info"][0] = 10**7


def too_many_rounds(model):
    model["iteration_indptr"][-1] = 10**6


@pytest.mark.parametrize(
    "change",
    [
        first_tree("left_children", 10**8),
        first_tree("right_children", 0),
        first_tree("left_children", 2),
        first_tree("split_indices", 10**8),
        first_tree("parents", 0),
        last_parent,
        fewer_nodes,
        wrong_group,
        too_many_rounds,
    ],
    ids=[
        "outside",
        "endless",
        "two parents",
        "feature",
        "root",
        "parent",
        "nodes",
        "class",
        "rounds",
    ],
)
def test_a_damaged_model_of_xgboost_is_refused(pseudocal, tmp_path, change):
    train_xgboost(3, tmp_path / "model.json")
    saved = json.loads((tmp_path / "model.json").read_text())
    change(saved["learner"]["gradient_booster"]["model"])
    (tmp_path / "bad.json").write_text(json.dumps(saved, separators=(",", ":")))
    check_refused(pseudocal, tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("left_child", "100000000"),
        ("left_child", "0"),
        ("right_child", "-100000000"),
        ("split_feature", "100000000"),
        ("num_leaves", "100000"),
        ("decision_type", "1"),
        ("max_feature_idx", "1"),
        ("num_tree_per_iteration", "2"),
    ],
)
def test_a_damaged_model_of_lightgbm_is_refused(pseudocal, tmp_path, line, value):
    train_lightgbm(3, tmp_path / "model.txt")
    saved = (tmp_path / "model.txt").read_text()
    changed = re.sub(rf"^{line}=\S+", f"{line}={value}", saved, count=1, flags=re.MULTILINE)
    assert changed != saved
    (tmp_path / "bad.txt").write_text(changed)
    check_refused(pseudocal, tmp_path / "bad.txt")


def test_a_line_that_stands_twice_is_refused(pseudocal, tmp_path):
    train_lightgbm(3, tmp_path / "model.txt")
    saved = (tmp_path / "model.txt").read_text()
    twice = saved.replace("num_cat=0", "num_cat=0\nleft_child=100000000", 1)
    (tmp_path / "bad.txt").write_text(twice)
    check_refused(pseudocal, tmp_path / "bad.txt")


@pytest.mark.parametrize("suffix", TRAIN)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_file_that_is_cut_is_refused(pseudocal, tmp_path, suffix, part):
    TRAIN[suffix](3, tmp_path / f"model{suffix}")
    whole = (tmp_path / f"model{suffix}").read_bytes()
    if suffix == ".txt":
        whole = whole[: whole.index(b"end of trees")]
    (tmp_path / f"bad{suffix}").write_bytes(whole[: int(part * len(whole))])
    check_refused(pseudocal, tmp_path / f"bad{suffix}")


def check_refused(pseudocal, path: Path) -> None:
    table(50, 1)[0].to_csv(path.parent / "rows.csv", index=False)
    done = pseudocal("calibrate", path, path.parent / "rows.csv", "-o", path.parent / "out")
    assert done.code == 3, done.out
    assert f"{path} " in done.err
    assert done.err.count("\n") == 1
