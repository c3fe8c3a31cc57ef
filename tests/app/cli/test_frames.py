"""Tables with text, categories, dates and missing values go to the model as data frames."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, rows_to_label
from pseudocal.app.inputs.sets import open_frame
from pseudocal.calibrators import ReasonCode

pandas = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")
pytest.importorskip("pyarrow")

from sklearn.compose import make_column_selector, make_column_transformer  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402


def people(n: int, seed: int) -> tuple[Any, np.ndarray]:
    """A frame with a number, a number that is sometimes missing, and two texts; and classes."""
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "income": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3, 1, n).round(2)),
            "city": rng.choice(["Berlin", "Oslo", "Rome"], n),
            "job": np.where(rng.random(n) < 0.2, None, rng.choice(["baker", "nurse"], n)),
        }
    )
    score = (frame["city"] == "Oslo") * 2.0 + (frame["age"] - 40) / 10 + rng.logistic(size=n)
    return frame, np.where(score > 0.5, "yes", "no")


def columns(encoder: Any) -> Any:
    return make_column_transformer(
        (
            make_pipeline(SimpleImputer(), StandardScaler()),
            make_column_selector(dtype_include="number"),
        ),
        (encoder, ["city", "job"]),
    )


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory) -> tuple[Any, Path]:
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = make_pipeline(columns(encoder), RandomForestClassifier(5, max_depth=4, random_state=0))
    model.fit(*people(300, 0))
    path = tmp_path_factory.mktemp("pipeline") / "model.skops"
    skops.dump(model, path)
    return model, path


def save(frame: Any, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_pipeline_of_text_categories_goes_from_files_to_labels(
    pseudocal, pipeline, tmp_path, suffix
):
    model, path = pipeline
    frame, truth = people(200, 1)
    data = save(
        frame.assign(note="x")[["note", "job", "city", "income", "age"]],
        tmp_path / f"people{suffix}",
    )
    out = tmp_path / "out"
    done = pseudocal("calibrate", path, data, "-o", out)
    assert done.code == 0, done.err
    assert "200 rows of a data frame" in done.err
    assert "verdict: caution" in done.out
    assert "Tables with text, dates or missing values are not mixed" in done.out
    calibration = Calibration.load(out / "calibration.json")
    assert calibration.trust.reasons[0].code == ReasonCode.TABLES_NOT_MIXED
    assert calibration.counts["mixup_samples"] == 0
    found = np.exp(np.load(out / "logits.npy"))
    np.testing.assert_allclose(found, model.predict_proba(frame), atol=1e-6)

    assert pseudocal("label", out, "-n", 40).code == 0
    assert "Oslo" in (out / "label.html").read_text()
    labels = tmp_path / "labels.csv"
    rows = rows_to_label(np.load(out / "logits.npy"), 40)
    labels.write_text("\n".join(["file,label", *(f"{i},{truth[i]}" for i in rows)]))
    refined = pseudocal("refine", out, labels)
    assert refined.code == 0, refined.err
    assert Calibration.load(out / "calibration.json").measured.labels == 40


def test_missing_numbers_go_to_a_model_that_takes_them(pseudocal, tmp_path):
    frame, truth = people(200, 0)
    model = HistGradientBoostingClassifier(max_iter=5).fit(frame[["age", "income"]], truth)
    skops.dump(model, tmp_path / "model.skops")
    data = save(frame, tmp_path / "people.csv")
    done = pseudocal("calibrate", tmp_path / "model.skops", data, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    found = np.exp(np.load(tmp_path / "out" / "logits.npy"))
    np.testing.assert_allclose(found, model.predict_proba(frame[["age", "income"]]), atol=1e-6)


def test_a_model_that_was_fitted_to_an_array_is_given_arrays(pseudocal, tmp_path):
    """Or scikit-learn would warn of each batch; the first column is an index without a name."""
    frame, truth = people(300, 0)
    frame = frame[["age", "income"]]
    model = HistGradientBoostingClassifier(max_iter=5).fit(frame.to_numpy(), truth)
    skops.dump(model, tmp_path / "model.skops")
    frame.to_csv(tmp_path / "people.csv")
    given = ("--features", "age,income", "-o", tmp_path / "out", "--trust-model")
    done = pseudocal("calibrate", tmp_path / "model.skops", tmp_path / "people.csv", *given)
    assert done.code == 0, done.err
    assert "300 rows of a data frame, unchanged; ignored columns: (no name)\n" in done.err
    assert "feature names" not in done.err


def test_missing_numbers_are_named_if_the_model_refuses_them(pseudocal, tmp_path):
    frame, truth = people(200, 0)
    model = LogisticRegression().fit(frame[["age", "income"]].fillna(0), truth)
    skops.dump(model, tmp_path / "model.skops")
    data = save(frame, tmp_path / "people.csv")
    done = pseudocal("calibrate", tmp_path / "model.skops", data, "-o", tmp_path / "out")
    assert done.code == 3
    assert "got nan in row" in done.err
    assert "column 'income'" in done.err


def test_numbers_without_gaps_are_mixed_as_before(pseudocal, tmp_path):
    frame, truth = people(200, 0)
    model = LogisticRegression().fit(frame[["age"]], truth)
    skops.dump(model, tmp_path / "model.skops")
    data = save(frame, tmp_path / "people.csv")
    done = pseudocal("calibrate", tmp_path / "model.skops", data, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert Calibration.load(tmp_path / "out" / "calibration.json").counts["mixup_samples"] > 0


def test_text_for_a_model_of_numbers_is_refused_with_advice_about_columns(pseudocal, tmp_path):
    frame, truth = people(200, 0)
    numbers = frame[["age"]].to_numpy()
    skops.dump(LogisticRegression().fit(numbers, truth), tmp_path / "model.skops")
    data = save(frame[["city"]], tmp_path / "people.csv")
    done = pseudocal("calibrate", tmp_path / "model.skops", data, "-o", tmp_path / "out")
    assert done.code == 3
    assert "--features" in done.err
    assert "--text" not in done.err


def test_dates_and_categories_reach_a_function_as_pandas_reads_them(
    pseudocal, tmp_path, monkeypatch
):
    seen: list[Any] = []

    def predict(frame):
        seen.append(frame)
        late = frame["day"].dt.year.to_numpy() > 2020
        return np.stack([late * 2.0, (frame["kind"] == "a").to_numpy() * 3.0], axis=1)

    holder = ModuleType("frame_model")
    holder.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "frame_model", holder)
    days = pandas.date_range("2018-01-01", periods=60, freq="30D")
    frame = pandas.DataFrame({"day": days, "kind": pandas.Categorical(["a", "b", "c"] * 20)})
    data = save(frame, tmp_path / "days.parquet")
    done = pseudocal("calibrate", "frame_model:predict", data, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert seen[-1].dtypes["day"].kind == "M"
    assert isinstance(seen[-1].dtypes["kind"], pandas.CategoricalDtype)


def test_a_second_opinion_on_such_a_table_is_refused(pseudocal, pipeline, tmp_path):
    data = save(people(50, 1)[0], tmp_path / "people.csv")
    words = ["calibrate", pipeline[1], data, "-o", tmp_path / "out"]
    done = pseudocal(*words, "--second-opinion", pipeline[1])
    assert done.code == 3
    assert "cannot be mixed" in done.err


def test_a_table_of_numbers_is_no_frame(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    assert open_frame(tmp_path / "a.csv", None) is None


def test_column_names_and_blank_lines_as_in_other_tables(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffx , y\n1,u\n\n3,\n", encoding="utf-8")
    frame = open_frame(tmp_path / "a.csv", ["y", "x"]).frame
    assert list(frame.columns) == ["y", "x"]
    assert frame["x"].tolist() == [1, 3]
    assert frame["y"].isna().tolist() == [False, True]
