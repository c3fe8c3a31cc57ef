"""Two saved outputs: an estimated accuracy with a wide interval, and never `apply`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, InputError, softmax
from pseudocal.app import Run, collect_outputs, conclude
from pseudocal.calibrators.saved_outputs import SavedPair, calibrate_saved_outputs

N = 1500
CLASSES = 6
SHARED = Path(__file__).parents[4] / "shared" / "data" / "llm_options.npz"


def model(truth: np.ndarray, seed: int, accuracy: float, scale: float) -> np.ndarray:
    """Logits of a model that is right this often and as confident as it is told."""
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(N) < accuracy, truth, rng.integers(CLASSES, size=N))
    return scale * np.eye(CLASSES)[predicted] + rng.normal(0, 0.5, size=(N, CLASSES))


@pytest.fixture
def truth() -> np.ndarray:
    return np.random.default_rng(0).integers(CLASSES, size=N)


@pytest.fixture
def first(truth: np.ndarray) -> np.ndarray:
    return model(truth, 1, 0.6, 8.0)


@pytest.fixture
def second(truth: np.ndarray) -> np.ndarray:
    return model(truth, 2, 0.7, 8.0)


def write_table(path: Path, columns: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def codes(calibration: Calibration) -> list[str]:
    assert calibration.trust is not None
    return [str(reason.code) for reason in calibration.trust.reasons]


def test_an_overconfident_model_is_lowered_with_caution(pseudocal, first, second, truth, tmp_path):
    np.save(tmp_path / "a.npy", first)
    np.save(tmp_path / "b.npy", softmax(second))
    done = pseudocal("calibrate", tmp_path / "a.npy", "--second-opinion", tmp_path / "b.npy")
    assert done.code == 0, done.err
    calibration = Calibration.load(tmp_path / "a" / "calibration.json")
    trust = calibration.trust
    accuracy = (first.argmax(axis=1) == truth).mean()
    assert calibration.verdict == "caution"
    assert calibration.temperature > 2
    assert trust.estimated_accuracy.low < accuracy < trust.estimated_accuracy.high
    confidence = softmax(first / calibration.temperature).max(axis=1).mean()
    assert confidence == pytest.approx(trust.estimated_accuracy.value, abs=0.01)
    assert codes(calibration) == [
        "saved_outputs_agree",
        "lowers_confidence",
        "saved_outputs_label",
    ]
    assert "Label about 50 inputs" in done.out
    assert "report.html" in {path.name for path in (tmp_path / "a").iterdir()}
    page = pseudocal("label", tmp_path / "a", "-n", 20)
    assert page.code == 0, page.err


def test_every_kind_of_second_file_says_the_same(first, second, tmp_path):
    names = [f"class {i}" for i in range(CLASSES)]
    inputs = [f"{i}.png" for i in range(N)]
    a = write_table(
        tmp_path / "a.csv",
        ["file", *names],
        [[name, *row] for name, row in zip(inputs, first.tolist(), strict=True)],
    )
    predicted = second.argmax(axis=1)
    np.save(tmp_path / "logits.npy", second)
    np.savez(tmp_path / "logits.npz", second)
    np.save(tmp_path / "classes.npy", predicted)
    reversed_rows = [[inputs[i], *second[i, ::-1]] for i in reversed(range(N))]
    write_table(tmp_path / "other.csv", ["file", *reversed(names)], reversed_rows)
    write_table(tmp_path / "names.csv", ["prediction"], [[names[i]] for i in predicted])
    write_table(tmp_path / "ours.csv", ["class", "score"], [[i, 0.5] for i in predicted])
    files = ["logits.npy", "logits.npz", "classes.npy", "other.csv", "names.csv", "ours.csv"]
    pytest.importorskip("pyarrow")
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.csv.read_csv(tmp_path / "other.csv")
    pyarrow.parquet.write_table(table, tmp_path / "other.parquet")
    files.append("other.parquet")
    expected = calibrate_saved_outputs(first, second)
    for i, file in enumerate(files):
        out = collect_outputs(a, tmp_path / f"out{i}", second_opinion=tmp_path / file)
        found = conclude(Run.open(out))
        assert found.temperature == pytest.approx(expected.temperature), file
        assert found.trust.estimated_accuracy == expected.trust.estimated_accuracy, file


def test_outputs_of_one_model_are_warned_about(first, truth):
    rng = np.random.default_rng(3)
    almost = first + rng.normal(0, 0.2, size=first.shape)
    same = calibrate_saved_outputs(first, almost)
    assert codes(same)[0] == "saved_outputs_alike"
    assert "or the first model may be underconfident" in str(same.trust.reasons[0])
    assert same.temperature == 1
    assert same.trust.estimated_accuracy.low == 0
    unsure = model(truth, 1, 0.6, 1.2)  # agrees with itself far more often than it is confident
    prompt = np.where(rng.random(N) < 0.85, unsure.argmax(axis=1), rng.integers(CLASSES, size=N))
    assert codes(calibrate_saved_outputs(unsure, prompt))[0] == "saved_outputs_alike"


def test_a_far_less_confident_second_model_bounds_nothing_from_above(first, truth):
    worse = model(truth, 4, 0.3, 1.0)
    found = calibrate_saved_outputs(first, worse)
    assert codes(found)[0] == "second_model_less_confident"
    assert (found.temperature, found.trust.estimated_accuracy.high) == (1, 1)


def test_labels_take_over(pseudocal, first, second, truth, tmp_path):
    np.save(tmp_path / "a.npy", first)
    np.save(tmp_path / "b.npy", second)
    out = tmp_path / "out"
    arguments = ("calibrate", tmp_path / "a.npy", "--second-opinion", tmp_path / "b.npy", "-o", out)
    done = pseudocal(*arguments, "--json", "--exit-code")
    assert done.code == 11  # caution
    assert json.loads(done.out)["verdict"] == "caution"
    inputs = write_table(tmp_path / "inputs.csv", ["text"], [[f"text {i}"] for i in range(N)])
    again = ("label", tmp_path / "a.npy", "-n", 50, "-o", out, "--inputs", inputs)
    assert pseudocal(*again).code == 0
    assert conclude(Run.open(out)).trust is not None  # the second outputs stay
    with (out / "to-label.csv").open(newline="", encoding="utf-8") as file:
        rows = [int(row["file"]) for row in csv.DictReader(file)]
    labels = write_table(tmp_path / "l.csv", ["file", "label"], [[i, truth[i]] for i in rows])
    done = pseudocal("refine", out, labels)
    assert done.code == 0, done.err
    assert Calibration.load(out / "calibration.json").measured.labels == 50


def test_what_does_not_fit_is_named(pseudocal, first, second, tmp_path):
    np.save(tmp_path / "a.npy", first)
    np.save(tmp_path / "few.npy", second[:10])
    np.save(tmp_path / "narrow.npy", second[:, :4])
    given = ("calibrate", tmp_path / "a.npy", "-o", tmp_path / "out")
    for name, message in (("few", "10 outputs for"), ("narrow", "for 6 classes")):
        done = pseudocal(*given, "--second-opinion", tmp_path / f"{name}.npy")
        assert (done.code, message in done.err) == (3, True), done.err
    done = pseudocal(*given)
    assert (done.code, "--second-opinion FILE" in done.err) == (3, True)
    done = pseudocal(*given, "--second-opinion", tmp_path / "few.npy", "--lam", 0.6)
    assert (done.code, "got --lam" in done.err) == (3, True)
    tables = [
        write_table(tmp_path / f"{k}.csv", list("abcdef")[:k], second[:, :k].tolist())
        for k in (5, 6)
    ]
    done = pseudocal("calibrate", tables[1], "-o", tmp_path / "out", "--second-opinion", tables[0])
    assert (done.code, "has no class 'f', which the model has" in done.err) == (3, True), done.err
    with pytest.raises(InputError, match="shapes"):
        SavedPair.of(first, second[:, :4])


@pytest.mark.skipif(not SHARED.exists(), reason="the outputs of language models are not here")
def test_two_prompts_of_one_language_model_are_warned_about():
    with np.load(SHARED) as arrays:
        logits = arrays["logits"].astype(np.float64)
        prompts = arrays["prompts"].astype(np.int64)
    warned = [
        SavedPair.of(logits[model, task], prompts[model, task, prompt]).may_be_one_model
        for model, task in np.ndindex(*logits.shape[:2])
        for prompt in (1, 2)
    ]
    assert np.mean(warned) >= 0.9
