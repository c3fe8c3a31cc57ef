"""`do not apply` is a refusal.

What was fitted is in no file but the record of why, wherever the job runs.
"""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, UnreliableCalibrationWarning, rows_to_label, softmax
from pseudocal.app import calibrate
from pseudocal.app.errors import BUG, INPUT, INTERRUPTED, MISSING, OUTPUT, USAGE, VERDICT_CODES

# of a model that is calibrated alone, with the verdict "caution"
SHIPPED = {
    "onnx": "unconfirmed-model.onnx",
    "pt2": "unconfirmed-model.pt2",
    "torchscript": "unconfirmed-model.pt",
    "huggingface": "config.json",
}
RECORD = {  # where the refused temperature may stand: the record of why
    ("calibration.json", "refused"),
    ("calibration.json", "estimates.{}"),
    ("calibration.json", "trust.effects.{}.temperature"),
    ("report.json", "calibration.refused"),
    ("report.json", "trust.effects.{}.temperature"),
}


def numbers(content: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON file, and where it stands."""
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        for key, part in parts:
            yield from numbers(part, f"{where}.{key}" if where else str(key))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield where, float(content)


def check_refused(out: Path, used: str = "mixup") -> Calibration:
    """Nothing in OUT applies the temperature that was fitted, and no file holds it but the record of why."""
    calibration = Calibration.load(out / "calibration.json")
    refused = calibration.refused
    assert (calibration.verdict, calibration.temperature) == ("do not apply", 1.0)
    assert refused is not None
    assert abs(np.log(refused)) > 0.01
    files = [path for path in out.rglob("*") if path.is_file()]
    assert not {path.name for path in files} & set(SHIPPED.values())
    known = {
        "calibration.json",
        "report.json",
        "report.html",
        "run.json",
        "logits.npy",
        "probe.npy",
        "job.toml",
        "evidence.npz",
        "second-0.npy",
        "parts.json",
        "part-000000.npz",
    }
    assert {path.name for path in files if path.suffix != ".parquet"} <= known
    found = {
        (path.name, where)
        for path in files
        if path.suffix == ".json"
        for where, value in numbers(json.loads(path.read_text()))
        if value == pytest.approx(refused, rel=1e-6)
    }
    assert ("calibration.json", "refused") in found
    assert found <= {(name, where.format(used)) for name, where in RECORD}
    return calibration


def check_said(out: Path, printed: str, refused: float) -> None:
    accuracy, recommendation, reason, temperature = printed.splitlines()[:4]
    assert accuracy.startswith("Accuracy unknown: ")
    assert recommendation == (
        "Recommendation: Check the model and its inputs, or label 50 inputs to measure the accuracy: "
        f"pseudocal label {out} -n 50"
    )
    assert reason.startswith("Reason: ")
    assert temperature == f"T = 1 (fitted {refused:.3f}, rejected); model unchanged"
    assert "calibrated model:" not in printed
    report = json.loads((out / "report.json").read_text())
    assert report["headline"]["code"] == "unknown"
    assert report["recommendation"]["code"] == "check_or_label"
    assert report["usage"].endswith("# T = 1: the original model\n")
    page = (out / "report.html").read_text()
    assert "Keep using the original model." in page
    assert "T = 1 replaces the fitted temperature" in page
    assert "Calibrated model:" not in page


@pytest.mark.parametrize("kind", ["onnx", "pt2", "torchscript", "sklearn", "callable"])
def test_no_file_holds_what_was_refused(kind, pseudocal, tabular, collapsed, features, tmp_path):
    import pyarrow.parquet

    out = tmp_path / "out"
    assert pseudocal("calibrate", tabular[kind], features, "-o", out, "--trust-model").code == 0
    assert (
        kind not in SHIPPED or (out / SHIPPED[kind]).exists()
    )  # of the earlier run, and gone after the next
    done = pseudocal("calibrate", collapsed[kind], features, "-o", out, "--trust-model")
    assert done.code == 0, done.err
    assert ("no model exported: the fitted temperature was rejected" in done.err) == (
        kind in SHIPPED
    )
    calibration = check_refused(out)
    check_said(out, done.out, calibration.refused)
    table = pyarrow.parquet.read_table(out / "predictions.parquet").to_pydict()
    assert table["confidence_after"] == table["confidence_before"]
    assert table["top_after"] == table["top_before"]
    assert table["confidence_after"] == pytest.approx(
        softmax(np.load(out / "logits.npy")).max(axis=1), rel=1e-5
    )


def test_a_second_model_of_another_task_is_not_used(pseudocal, tabular, features, tmp_path):
    holder = ModuleType("of_another_task")
    holder.second = lambda x: np.random.default_rng(5).normal(size=(len(x), 3))  # type: ignore[attr-defined]
    sys.modules["of_another_task"] = holder
    out = tmp_path / "out"
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", out).code == 0
    assert (out / "unconfirmed-model.onnx").exists()
    alone = Calibration.load(out / "calibration.json")
    words = (
        "calibrate",
        tabular["onnx"],
        features,
        "-o",
        out,
        "--second-opinion",
        "of_another_task:second",
    )
    done = pseudocal(*words)
    assert done.code == 0, done.err
    assert "Check that both have the same classes in the same order." in done.out
    assert Calibration.load(out / "calibration.json").temperature == alone.temperature


def test_no_file_of_a_hugging_face_model_holds_it(
    pseudocal, hub, collapsed_hub, image_files, tmp_path
):
    out = tmp_path / "out"
    assert pseudocal("calibrate", hub, image_files, "-o", out).code == 0
    assert "pseudocal_temperature" in json.loads(
        (out / "unconfirmed-model" / "config.json").read_text()
    )
    done = pseudocal("calibrate", collapsed_hub, image_files, "-o", out)
    assert done.code == 0, done.err
    check_said(out, done.out, check_refused(out).refused)


@pytest.mark.parametrize("predict", ["all", pytest.param("seen", marks=pytest.mark.slow)])
def test_on_a_cluster(ray, predict, pseudocal, tabular, collapsed, features, tmp_path):
    import pyarrow.parquet

    out, on_ray = tmp_path / "out", ("--ray", "--workers", 1)
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", out, *on_ray).code == 0
    done = pseudocal(
        "calibrate", collapsed["onnx"], features, "-o", out, *on_ray, "--predict", predict
    )
    assert done.code == 0, done.err
    check_said(out, done.out, check_refused(out).refused)
    if predict == "seen":
        return
    table = pyarrow.parquet.read_table(out / "predictions.parquet").to_pydict()
    assert table["confidence_after"] == table["confidence_before"]
    assert pseudocal("calibrate", collapsed["onnx"], features, "-o", tmp_path / "here").code == 0
    probabilities = softmax(np.load(tmp_path / "here" / "logits.npy"))
    np.testing.assert_allclose(table["confidence_after"], probabilities.max(axis=1), atol=1e-5)


def labels_of(out: Path, labels: np.ndarray, n: int) -> Path:
    rows = rows_to_label(np.load(out / "logits.npy"), n)
    with (out.parent / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("file", "label"), *((int(row), int(labels[row])) for row in rows)]
        )
    return out.parent / "labels.csv"


def test_labels_outrank_a_refusal(pseudocal, collapsed, features, tmp_path):
    """They bring a temperature and with it the calibrated model, in one go as well as later."""
    import onnxruntime

    out = tmp_path / "out"
    assert pseudocal("calibrate", collapsed["onnx"], features, "-o", out, "-q").code == 0
    check_refused(out)
    logits = np.load(out / "logits.npy")
    labels = (logits / 3 + np.random.default_rng(0).gumbel(size=logits.shape)).argmax(axis=1)
    file = labels_of(out, labels, 60)
    both = ("calibrate", collapsed["onnx"], features, "-o", tmp_path / "both", "--labels", file)
    for folder, words in ((out, ("refine", out, file)), (tmp_path / "both", both)):
        done = pseudocal(*words)
        assert done.code == 0, done.err
        calibration = Calibration.load(folder / "calibration.json")
        assert (calibration.trust.verdict, calibration.verdict) == ("do not apply", "apply")
        assert calibration.refused is None
        assert calibration.temperature > 1.5
        assert f"T = {calibration.temperature:.4f}," in done.out
        (said,) = onnxruntime.InferenceSession(folder / "model.onnx").run(
            None, {"x": np.load(features)}
        )
        np.testing.assert_allclose(said * calibration.temperature, logits, rtol=1e-3, atol=1e-3)
        assert "T = 1 replaces" not in (folder / "report.html").read_text()


def test_in_python_it_is_a_warning_and_the_result_is_short(collapsed, features, tmp_path):
    with pytest.warns(
        UnreliableCalibrationWarning, match="should not be applied: One of 3 classes gets"
    ):
        result = calibrate(collapsed["onnx"], features, tmp_path / "out")
    assert repr(result) == f"Result(do not apply, T = 1.000, in {tmp_path / 'out'})"
    assert repr(result.report) == f"Report(model.onnx on {features}: do not apply, T = 1.000)"
    assert " rejected, verdict: do not apply" in repr(result.calibration)
    probabilities = result.calibration.probabilities(np.load(tmp_path / "out" / "logits.npy"))
    np.testing.assert_allclose(probabilities, softmax(np.load(tmp_path / "out" / "logits.npy")))


def test_exit_codes_tell_the_verdicts_apart(pseudocal, tabular, collapsed, features, tmp_path):
    assert len(set(VERDICT_CODES.values())) == 4
    assert not set(VERDICT_CODES.values()) & {BUG, USAGE, INPUT, OUTPUT, MISSING, 6, INTERRUPTED}
    out = tmp_path / "out"
    for model, verdict in ((tabular["onnx"], "caution"), (collapsed["onnx"], "do not apply")):
        words = ("calibrate", model, features, "-o", out, "-q")
        assert (pseudocal(*words).code, pseudocal(*words, "--exit-code").code) == (
            0,
            VERDICT_CODES[verdict],
        )
        assert Calibration.load(out / "calibration.json").verdict == verdict
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", out, "-q").code == 0
    logits = np.load(out / "logits.npy")
    for temperature, n, verdict in ((3.0, 60, "apply"), (1.0, 390, "already calibrated")):
        labels = (logits / temperature + np.random.default_rng(0).gumbel(size=logits.shape)).argmax(
            axis=1
        )
        refine = ("refine", out, labels_of(out, labels, n), "-q")
        assert (pseudocal(*refine).code, pseudocal(*refine, "--exit-code").code) == (
            0,
            VERDICT_CODES[verdict],
        )
        assert Calibration.load(out / "calibration.json").verdict == verdict
    help_text = " ".join(pseudocal("calibrate", "--help").out.replace("│", " ").split())
    assert all(f"{code}: {verdict}" in help_text for verdict, code in VERDICT_CODES.items())


def test_an_error_keeps_its_code(pseudocal, tabular, tmp_path):
    done = pseudocal(
        "calibrate", tabular["onnx"], tmp_path / "no.npy", "-o", tmp_path / "out", "--exit-code"
    )
    assert (done.code, (tmp_path / "out").exists()) == (INPUT, False)


def test_a_refused_calibration_applies_nothing(pseudocal, collapsed, features, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableCalibrationWarning)
        calibrate(collapsed["callable"], features, tmp_path / "out")
    logits, probabilities = tmp_path / "out" / "logits.npy", tmp_path / "p.npy"
    assert (
        pseudocal("apply", tmp_path / "out" / "calibration.json", logits, "-o", probabilities).code
        == 0
    )
    np.testing.assert_allclose(np.load(probabilities), softmax(np.load(logits)), rtol=1e-5)
