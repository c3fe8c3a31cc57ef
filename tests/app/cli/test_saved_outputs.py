"""Saved outputs of any model are enough for labelling, scores and calibrated probabilities."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, LabelSample, TemperatureScaling, rows_to_label, softmax
from pseudocal.app import outputs as module
from pseudocal.app.inputs.tables import read_columns
from pseudocal.app.run import Run
from pseudocal.calibrators import uncalibrated
from pseudocal.metrics import Segmented

N = 300


@pytest.fixture
def logits() -> np.ndarray:
    """Outputs that are twice as sure as they should be."""
    return 2 * np.random.default_rng(0).normal(size=(N, 3)) * 1.5


@pytest.fixture
def truth(logits: np.ndarray) -> np.ndarray:
    return (logits / 2 + np.random.default_rng(1).gumbel(size=logits.shape)).argmax(axis=1)


def write(path: Path, rows: list[Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def labels_file(
    path: Path, logits: np.ndarray, truth: np.ndarray, names: list[str], n: int = 60
) -> Path:
    rows = rows_to_label(logits, n)
    return write(path, [["file", "label"], *([names[row], truth[row]] for row in rows)])


def content(out: Path) -> dict[str, Any]:
    """The files of a run, without the time when it was made."""
    dated = ("report.json", "report.html", "run.json")
    found: dict[str, Any] = {
        path.name: path.read_bytes() for path in out.iterdir() if path.name not in dated
    }
    report = json.loads((out / "report.json").read_text())
    del report["timing"]
    return found | {"report.json": report}


def test_logits_are_labelled_and_refined_without_a_model(pseudocal, logits, truth, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    done = pseudocal("label", tmp_path / "logits.npy", "-n", 60)
    out = tmp_path / "logits"
    assert done.code == 0, done.err
    assert f"pseudocal refine {out} labels.csv" in done.out
    labels = labels_file(tmp_path / "labels.csv", logits, truth, [str(i) for i in range(N)])
    done = pseudocal("refine", out, labels)
    assert done.code == 0, done.err
    assert "measured on 60 labels" in done.out
    assert "mixup" not in done.out
    rows = rows_to_label(logits, 60)
    expected = uncalibrated().refined(logits, LabelSample(rows, truth[rows]))
    after = Calibration.load(out / "calibration.json")
    assert after.temperature == expected.temperature
    assert 1.3 < after.temperature < 3
    assert [prior.estimator for prior in after.measured.priors] == ["none"]
    facts = json.loads((out / "report.json").read_text())["facts"]
    assert "label_priors" not in [fact["code"] for fact in facts]
    first = content(out)
    done = pseudocal("refine", tmp_path / "logits.npy", labels)  # into the same folder
    assert done.code == 0, done.err
    assert content(out) == first
    summary = json.loads(pseudocal("refine", out, labels, "--json").out)
    assert (summary["estimated_accuracy"], summary["labels"]["labels"]) == (None, 60)


def test_without_pyarrow_labels_are_used_all_the_same(
    pseudocal, logits, truth, tmp_path, monkeypatch
):
    """The extras cli and onnx do not bring it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    np.save(tmp_path / "logits.npy", logits)
    labels = labels_file(tmp_path / "labels.csv", logits, truth, [str(i) for i in range(N)])
    done = pseudocal("refine", tmp_path / "logits.npy", labels)
    assert done.code == 0, done.err
    assert len((tmp_path / "logits" / "predictions.csv").read_text().splitlines()) == N + 1


def test_probabilities_of_texts_in_a_table_with_names(pseudocal, logits, truth, tmp_path):
    table = write(tmp_path / "p.csv", [["bad", "fair", "good"], *softmax(logits).tolist()])
    names = [f"review {i}" for i in range(N)]
    shown = [
        ["file", "text", "label"],
        *([name, f"It was, er,\n<b>{name}</b>", "good"] for name in names),
    ]
    inputs = write(tmp_path / "reviews.csv", shown)
    refused = pseudocal("label", table, "--inputs", inputs, "-o", tmp_path / "out")
    assert refused.code == 3
    assert (
        "look like probabilities, not logits: they lie between 0 and 1; pass --output-type"
        in refused.err
    )
    assert not (tmp_path / "out").exists()
    options = ["--output-type", "probabilities", "-o", tmp_path / "out"]
    done = pseudocal("label", table, "-n", 20, "--inputs", inputs, *options)
    assert done.code == 0, done.err
    page = (tmp_path / "out" / "label.html").read_text()
    assert "It was, er,\\n" in page
    assert "<b>review" not in page
    assert '"label", "good"' not in page  # the answer is not given away
    assert '"classes": ["bad", "fair", "good"]' in page  # the names of the columns
    said = np.array(["bad", "fair", "good"])[truth]
    labels = labels_file(tmp_path / "labels.csv", logits, said, names)
    done = pseudocal("refine", tmp_path / "out", labels)
    assert done.code == 0, done.err
    rows = rows_to_label(np.load(tmp_path / "out" / "logits.npy"), 60)
    expected = uncalibrated().refined(np.log(softmax(logits)), LabelSample(rows, truth[rows]))
    assert Calibration.load(tmp_path / "out" / "calibration.json").temperature == pytest.approx(
        expected.temperature
    )
    (tmp_path / "truth.txt").write_text("\n".join(said))
    np.save(tmp_path / "truth.npy", truth)
    by_name, by_number = (
        pseudocal("evaluate", table, tmp_path / labels, *options[:2]).out
        for labels in ("truth.txt", "truth.npy")
    )
    assert by_name == by_number != ""


@pytest.mark.parametrize("kind", ["table", "archive"])
def test_the_recommended_command_is_that_for_the_saved_file(
    pseudocal, logits, truth, tmp_path, monkeypatch, kind
):
    monkeypatch.chdir(tmp_path)
    names = [str(i) for i in range(N)]
    if kind == "table":
        write(tmp_path / "p.csv", [["a", "b", "c"], *softmax(logits).tolist()])
        words = ["p.csv", "--output-type", "probabilities"]
    else:
        np.savez(tmp_path / "p.npz", one=logits, other=-logits)
        words = ["p.npz", "--field", "one"]
    assert pseudocal("label", *words, "-n", 60).code == 0
    labels_file(tmp_path / "labels.csv", np.log(softmax(logits)), truth, names)
    done = pseudocal("refine", "p", "labels.csv")
    assert done.code == 0, done.err
    [line] = [line for line in done.out.splitlines() if line.startswith("Recommendation")]
    kept = {"table": "calibrated-p.csv", "archive": "calibrated-p.npy"}[kind]
    command = f"apply p/calibration.json {' '.join(words)} -o {kept}"
    assert line.endswith(f"with the model you have: pseudocal {command}")
    done = pseudocal(*command.split())
    assert done.code == 0, done.err
    assert (tmp_path / kept).exists()


def test_a_table_without_names_of_columns_is_refused(pseudocal, logits, tmp_path):
    table = write(tmp_path / "p.csv", softmax(logits).tolist())
    done = pseudocal("label", table, "--output-type", "probabilities")
    assert done.code == 3
    assert f"the first line of {table} holds numbers" in done.err


def test_images_that_a_table_names_are_shown(pseudocal, image_files, logits, tmp_path):
    files = sorted(image_files.rglob("*.png"))[:10]
    np.save(tmp_path / "z.npy", logits[: len(files)])
    inputs = write(
        image_files / "names.csv", [["file"], *([path.relative_to(image_files)] for path in files)]
    )
    done = pseudocal("label", tmp_path / "z.npy", "-n", 3, "--inputs", inputs)
    inputs.unlink()
    assert done.code == 0, done.err
    assert (tmp_path / "z" / "label.html").read_text().count('"image": "data:image/') == 3


def test_lines_of_a_text_file_binary_outputs_and_names_of_classes(pseudocal, logits, tmp_path):
    np.savez(tmp_path / "z.npz", one=logits[:, :1], other=logits)
    (tmp_path / "texts.txt").write_text("\n".join(f"line {i}" for i in range(N)) + "\n")
    (tmp_path / "classes.txt").write_text("bad\ngood\n")
    options = [
        "--field",
        "one",
        "--binary",
        "--inputs",
        tmp_path / "texts.txt",
        "--classes",
        tmp_path / "classes.txt",
    ]
    done = pseudocal("label", tmp_path / "z.npz", "-n", 5, *options)
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(tmp_path / "z" / "logits.npy")[:, 1], logits[:, 0])
    page = (tmp_path / "z" / "label.html").read_text()
    assert page.count('["text", "line ') == 5
    assert '"classes": ["bad", "good"]' in page


def test_class_names_of_the_run_are_known_to_its_logits(pseudocal, logits, truth, tmp_path):
    np.save(tmp_path / "z.npy", logits)
    (tmp_path / "names.txt").write_text("cat\ndog\neel\n")
    named = [["file", "label"], *([i, ["cat", "dog", "eel"][y]] for i, y in enumerate(truth))]
    write(tmp_path / "truth.csv", named)
    np.save(tmp_path / "truth.npy", truth)
    out = tmp_path / "z"
    done = pseudocal("label", tmp_path / "z.npy", "-n", 3, "--classes", tmp_path / "names.txt")
    assert done.code == 0, done.err
    by_name = pseudocal("evaluate", out / "logits.npy", tmp_path / "truth.csv")
    assert by_name.code == 0, by_name.err
    assert by_name.out == pseudocal("evaluate", tmp_path / "z.npy", tmp_path / "truth.npy").out
    done = pseudocal("evaluate", tmp_path / "z.npy", tmp_path / "truth.csv")
    assert done.code == 3
    assert "no class names are known; write numbers, or pass --calibration OUT/" in done.err


def test_one_number_per_row_is_scored_and_calibrated(pseudocal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    z = 4 * rng.normal(size=N)
    p = 1 / (1 + np.exp(-z))
    truth = (rng.random(N) < 1 / (1 + np.exp(-z / 2))).astype(int)
    write(Path("p.csv"), [["p"], *([value] for value in p)])
    np.save("z.npy", z)
    np.save("pairs.npy", np.stack([np.zeros(N), z], axis=1))
    np.save("truth.npy", truth)
    saved = ("p.csv", "--output-type", "probabilities", "--binary")
    assert pseudocal("label", *saved, "-n", 60).code == 0
    rows = rows_to_label(np.load("p/logits.npy"), 60)
    write(Path("labels.csv"), [["file", "label"], *([row, truth[row]] for row in rows)])
    done = pseudocal("refine", "p", "labels.csv")
    assert done.code == 0, done.err
    command = f"apply p/calibration.json {' '.join(saved[:3])} --binary -o calibrated-p.csv"
    assert f"pseudocal {command}" in done.out
    assert pseudocal(*command.split()).code == 0
    temperature = Calibration.load(Path("p/calibration.json")).temperature
    expected = 1 / (1 + np.exp(-z / temperature))
    found = read_columns(Path("calibrated-p.csv"))
    assert list(found) == ["0", "1"]
    np.testing.assert_allclose(found["1"], expected, atol=1e-6)
    given = ("truth.npy", "--calibration", "p/calibration.json", "--json")
    scores = [
        json.loads(pseudocal("evaluate", *file, *given).out)
        for file in (("pairs.npy",), ("z.npy", "--binary"))
    ]
    assert scores[0] == scores[1]
    for command in ("evaluate z.npy truth.npy", "apply p/calibration.json z.npy -o c.npy"):
        done = pseudocal(*command.split())
        assert done.code == 3
        assert "for at least two classes, got shape (300,)" in done.err
        assert done.err.rstrip().endswith("pass --binary")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--inputs", "few.txt"],
            "few.txt describes 2 inputs, but there are 300 outputs",
        ),
        (["--inputs", "none.txt"], "expected a text file, got none.txt: no such file"),
        (["--classes", "few.txt"], "there are 2 class names, and the model has 3 classes"),
        (
            ["--inputs", "twice.csv"],
            "two inputs of z are called 'a': give them unique names",
        ),
    ],
)
def test_what_does_not_fit_is_named(pseudocal, logits, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", logits)
    Path("few.txt").write_text("a\nb\n")
    write(Path("twice.csv"), [["file"], *[["a"]] * N])
    done = pseudocal("label", "z.npy", *arguments)
    assert done.code == 3
    assert message in done.err


@pytest.mark.parametrize("output_type", [(), ("--output-type", "probabilities")])
def test_a_column_of_row_numbers_is_named(pseudocal, logits, tmp_path, output_type):
    rows = [[i, *row] for i, row in enumerate(softmax(logits).tolist())]
    for name in ("id", ""):
        table = write(tmp_path / "p.csv", [[name, "a", "b", "c"], *rows])
        done = pseudocal("label", table, *output_type)
        assert (done.code, f"the column {name!r} of" in done.err) == (3, True), done.err


def test_rounded_probabilities_are_named(pseudocal, tmp_path):
    rows = [[0.0, 1.0, 0.0], [0.25, 0.25, 0.49], [0.5, 0.25, 0.25]]
    table = write(tmp_path / "p.csv", [["a", "b", "c"], *rows])
    done = pseudocal("label", table)
    assert (done.code, "look like probabilities" in done.err) == (3, True), done.err
    done = pseudocal("label", table, "--output-type", "probabilities")
    assert done.code == 3
    assert "[0.25 0.25 0.49] in row 1 with a sum of 0.99: they are rounded" in done.err
    table = write(tmp_path / "p.csv", [["a", "b", "c"], [0.0, 1.0, 0.0], [-0.5, 1.0, 0.5]])
    done = pseudocal("label", table, "--output-type", "probabilities")
    assert (done.code, "got [-0.5 1. 0.5] in row 1" in done.err) == (3, True), done.err


def test_a_folder_of_other_results_is_refused(pseudocal, tabular, features, logits, tmp_path):
    np.save(tmp_path / "z.npy", logits)
    assert pseudocal("label", tmp_path / "z.npy").code == 0
    np.save(tmp_path / "z.npy", logits + 1e-3)
    assert (
        "contains another run: choose another folder (--out)"
        in pseudocal("label", tmp_path / "z.npy").err
    )
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out").code == 0
    assert (
        f"{tmp_path / 'out'} contains another run"
        in pseudocal("label", tmp_path / "z.npy", "-o", tmp_path / "out").err
    )
    refused = pseudocal("label", tmp_path / "out", "--inputs", tmp_path / "z.npy")
    assert (
        refused.code,
        f"expected a file of saved outputs, got {tmp_path / 'out'} (--inputs)" in refused.err,
    ) == (
        3,
        True,
    )
    np.save(tmp_path / "maps.npy", np.zeros((2, 3, 4, 4)))
    assert (
        "has outputs of shape (2, 3, 4, 4), not (n, classes)"
        in pseudocal("label", tmp_path / "maps.npy").err
    )


def test_maps_of_pixels_are_scored_and_calibrated(pseudocal, tmp_path):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(4, 3, 5, 6)).astype(np.float32)
    masks = rng.integers(0, 3, size=(4, 5, 6))
    masks[0, 0] = 255  # ignored
    np.save(tmp_path / "maps.npy", maps)
    np.save(tmp_path / "masks.npy", masks)
    calibration = Calibration("pseudocal", TemperatureScaling(2.0))
    calibration.save(tmp_path / "c.json")
    arguments = ["--calibration", tmp_path / "c.json", "--json"]
    done = pseudocal("evaluate", tmp_path / "maps.npy", tmp_path / "masks.npy", *arguments)
    assert done.code == 0, done.err
    found = {row["metric"]: row for row in json.loads(done.out)}
    assert found["ece"]["before"]["value"] == pytest.approx(Segmented.of(maps, masks).ece)
    assert found["ece"]["after"]["value"] == pytest.approx(
        Segmented.of(maps, masks, temperature=2.0).ece
    )
    assert "miou" in found
    np.save(tmp_path / "p.npy", calibration.probabilities(2 * maps))
    both = [("maps.npy", "logits"), ("p.npy", "probabilities")]
    for name, outputs in both:
        options = ["-o", tmp_path / "q.npy", "--output-type", outputs]
        assert pseudocal("apply", tmp_path / "c.json", tmp_path / name, *options).code == 0
        np.testing.assert_allclose(
            np.load(tmp_path / "q.npy"), calibration.probabilities(maps), rtol=1e-4
        )
    np.save(tmp_path / "labels.npy", np.zeros(4, int))
    done = pseudocal("evaluate", tmp_path / "maps.npy", tmp_path / "labels.npy")
    assert (done.code, "expected an .npy of masks (4, height, width)" in done.err) == (3, True)


def test_masks_of_two_classes_may_be_bool(pseudocal, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "maps.npy", rng.normal(size=(4, 2, 5, 6)).astype(np.float32))
    masks = rng.integers(0, 2, size=(4, 5, 6))
    said = []
    for dtype in (np.uint8, bool):
        np.save(tmp_path / "masks.npy", masks.astype(dtype))
        done = pseudocal("evaluate", tmp_path / "maps.npy", tmp_path / "masks.npy", "--json")
        assert done.code == 0, done.err
        said.append(done.out)
    assert said[0] == said[1]


def test_a_table_is_read_once(logits, tmp_path, monkeypatch):
    rows = [[*row, f"{i}.png"] for i, row in enumerate(logits.tolist())]
    write(tmp_path / "outputs.csv", [["a", "b", "c", "file"], *rows])
    read = []
    monkeypatch.setattr(
        module, "read_columns", lambda path: read.append(path) or read_columns(path)
    )
    record = Run.open(module.collect_outputs(tmp_path / "outputs.csv", tmp_path / "out")).record
    assert (record.classes, record.names[1]) == (("a", "b", "c"), "1.png")
    assert read == [tmp_path / "outputs.csv"]


def test_percentages_are_no_logits(pseudocal, logits, tmp_path):
    np.save(tmp_path / "percent.npy", 100 * softmax(logits))
    done = pseudocal("label", tmp_path / "percent.npy", "-n", 50)
    assert done.code == 3
    assert "look like percentages: divide them by 100" in done.err


def test_probabilities_do_not_replace_the_logits(pseudocal, logits, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    before = (tmp_path / "logits.npy").read_bytes()
    Calibration("pseudocal", TemperatureScaling(2.0)).save(tmp_path / "calibration.json")
    given = ("apply", tmp_path / "calibration.json", tmp_path / "logits.npy")
    done = pseudocal(*given, "-o", tmp_path / "logits.npy")
    assert (done.code, "would replace the logits" in done.err) == (3, True)
    assert (tmp_path / "logits.npy").read_bytes() == before
