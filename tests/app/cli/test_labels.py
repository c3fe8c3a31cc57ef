"""`pseudocal label` and `pseudocal refine`: from a run to labels, and to a better calibration."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, LabelSample, rows_to_label
from pseudocal.app.run import COLLECTED, LABEL_TABLE
from pseudocal.calibrators.labels import CANNOT_TELL, NONE_OF_THESE

MODEL = """
import numpy as np
weights = np.random.default_rng(0).normal(size=(5, 3))
def model(x): return 6 * x @ weights
def maps(x): return np.tile(model(x)[:, :, None, None], (1, 1, 4, 4))
"""


@pytest.fixture
def truth(features) -> np.ndarray:
    """Labels on which the linear models of these tests are right about two times out of three."""
    rng = np.random.default_rng(3)
    x = np.load(features)
    return (x @ np.random.default_rng(1).normal(size=(5, 3)) + rng.gumbel(size=(len(x), 3))).argmax(
        axis=1
    )


@pytest.fixture
def out(results, tmp_path) -> Path:
    return shutil.copytree(results, tmp_path / "out")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def write(path: Path, rows: list[tuple[Any, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "label"), *rows])
    return path


def template(out: Path) -> list[list[str]]:
    return list(csv.reader((out / LABEL_TABLE).read_text(encoding="utf-8").splitlines()))


def drawn(out: Path, truth: np.ndarray, n: int) -> list[tuple[Any, Any]]:
    return [(int(row), int(truth[row])) for row in rows_to_label(np.load(out / "logits.npy"), n)]


def test_inputs_to_label_come_from_the_run(pseudocal, out):
    done = pseudocal("label", out, "-n", 20)
    assert done.code == 0, done.err
    assert "pseudocal refine" in done.out
    asked = [row for row, _ in template(out)[1:]]
    assert asked == [str(row) for row in rows_to_label(np.load(out / "logits.npy"), 20)]
    assert (out / "label.html").stat().st_size > 0
    assert json.loads((out / "run.json").read_text())["names"] == [str(i) for i in range(400)]


def test_classes_may_get_their_names_when_a_person_labels(pseudocal, out, truth, tmp_path):
    assert "warning: no class names; pass --classes FILE" in pseudocal("label", out, "-n", 20).out
    (tmp_path / "names.txt").write_text("ash\nbeech\noak\n")
    names = ["ash", "beech", "oak"]
    rows = [(name, names[label]) for name, label in drawn(out, truth, 20)]
    named = write(tmp_path / "named.csv", rows)
    for given in ((), ("--classes", tmp_path / "names.txt")):
        done = pseudocal("refine", out, named, *given)
        assert (done.code, "name them with pseudocal label" in done.err) == (3, True), done.err
    done = pseudocal("label", out, "-n", 20, "--classes", tmp_path / "names.txt")
    assert (done.code, "--classes" in done.out) == (0, False)
    assert '"beech"' in (out / "label.html").read_text()
    assert pseudocal("refine", out, named).code == 0
    assert "beech" in (out / "report.html").read_text()
    (tmp_path / "names.txt").write_text("ash\n")
    done = pseudocal("label", out, "--classes", tmp_path / "names.txt")
    assert (done.code, "there are 1 class names, and the model has 3 classes" in done.err) == (
        3,
        True,
    )


def test_labelling_more_begins_with_the_same_and_keeps_what_was_filled_in(pseudocal, out):
    pseudocal("label", out, "-n", 5)
    rows = template(out)
    write(out / LABEL_TABLE, [(rows[1][0], "2"), *((row[0], row[1]) for row in rows[2:])])
    assert pseudocal("label", out, "-n", 12).code == 0
    more = template(out)
    assert [row[0] for row in more[:6]] == [row[0] for row in rows]
    assert len(more) == 13
    assert more[1] == [rows[1][0], "2"]
    write(out / LABEL_TABLE, [(rows[5][0], "2")])
    done = pseudocal("label", out, "-n", 3)
    assert done.code == 3
    assert "in line 2, which is not among the first 3 inputs to label" in done.err


def test_refine_does_what_the_library_says_and_brings_everything_up_to_date(
    pseudocal, tabular, features, truth, out
):
    import onnxruntime
    import pyarrow.parquet

    before, logits = Calibration.load(out / "calibration.json"), np.load(out / "logits.npy")
    pseudocal("label", out, "-n", 50)
    labels = write(out.parent / "labels.csv", drawn(out, truth, 50)[::-1])
    done = pseudocal("refine", out, labels)
    assert done.code == 0, done.err
    rows = rows_to_label(logits, 50)
    expected = before.refined(logits, LabelSample(rows, truth[rows]))
    after = Calibration.load(out / "calibration.json")
    assert after.temperature == expected.temperature != before.temperature
    assert after.measured == expected.measured
    assert after.trust == before.trust
    assert f"verdict: {after.measured.verdict}" in done.out
    assert "measured on 50 labels: accuracy" in done.out
    assert after.interval == (after.measured.temperature.low, after.measured.temperature.high)
    assert (
        f"T = {after.temperature:.4f}, 90% interval {after.interval[0]:.3f} to {after.interval[1]:.3f}"
        in done.out
    )
    assert " mixup samples of " not in done.out
    report = json.loads((out / "report.json").read_text())
    assert report["calibration"]["temperature"] == after.temperature
    assert report["reliability"]["source"] == "labels"
    assert sum(report["reliability"]["before"]["count"]) == 50
    page = (out / "report.html").read_text()
    assert "Verdict, measured on 50 labels" in page
    assert "Accuracy, estimated" not in page
    confidences = pyarrow.parquet.read_table(out / "predictions.parquet").to_pydict()[
        "confidence_after"
    ]
    np.testing.assert_allclose(confidences, after.probabilities(logits).max(axis=1), rtol=1e-5)
    (exported,) = report["model"]["files"]
    assert exported == ("model.onnx" if after.verdict == "apply" else "unconfirmed-model.onnx")
    (said,) = onnxruntime.InferenceSession(out / exported).run(None, {"x": np.load(features)})
    np.testing.assert_allclose(said * after.temperature, logits, rtol=1e-4, atol=1e-4)
    assert (out / "label.html").exists()


def test_refining_twice_gives_the_same_files_and_earlier_labels_are_not_remembered(
    pseudocal, out, truth
):
    start = content(out)
    few = write(out.parent / "few.csv", drawn(out, truth, 20))
    many = write(out.parent / "many.csv", drawn(out, (truth + 1) % 3, 60))
    results = []
    for labels in (few, few, many, few):
        assert pseudocal("refine", out, labels, "--quiet").code == 0
        results.append(content(out))
    assert results[0] == results[1] == results[3]
    assert results[2]["calibration.json"] != results[0]["calibration.json"]
    # sixty labels that contradict nearly every prediction refuse the model
    assert results[2].keys() ^ start.keys() == {"unconfirmed-model.onnx"}
    both = results[0].keys() & start.keys()
    same = {name for name in both if start[name] == results[0][name]}
    assert same == {name for name in start if name in COLLECTED}


def test_labels_in_one_go_give_the_files_of_refine(pseudocal, tabular, features, truth, tmp_path):
    out, both, words = tmp_path / "out", tmp_path / "both", ("calibrate", tabular["onnx"], features)
    assert pseudocal(*words, "-o", out).code == 0
    labels = write(tmp_path / "labels.csv", drawn(out, truth, 30))
    pseudocal("refine", out, labels)
    done = pseudocal(*words, "-o", both, "--labels", labels, "--json")
    assert json.loads(done.out)["labels"]["labels"] == 30
    one, other = content(out), content(both)
    differ = {name for name in one if one[name] != other[name]}
    assert differ <= {
        "report.html",
        "report.json",
        "job.toml",
        "run.json",
    }  # they say when they were made, and what was asked
    reports = [
        json.loads(files["report.json"].replace(str(folder).encode(), b"OUT")) | {"timing": None}
        for files, folder in ((one, out), (other, both))
    ]
    assert reports[0] == reports[1]


def test_a_calibration_from_labels_is_not_replaced_silently(
    pseudocal, tabular, features, truth, out, tmp_path
):
    labels = write(tmp_path / "labels.csv", drawn(out, truth, 20))
    again = ("calibrate", tabular["onnx"], features, "-o", out)
    warning = (
        f"warning: {out} held a calibration from 20 labels; this run replaces it. "
        "Pass --labels labels.csv to use them again."
    )
    assert "held a calibration" not in pseudocal(*again).err
    assert pseudocal("refine", out, labels).code == 0
    assert "held a calibration" not in pseudocal(*again, "--labels", labels).err
    done = pseudocal(*again, "-q")
    assert (done.code, done.err.splitlines()) == (0, [warning])
    assert "held a calibration" not in pseudocal(*again).err
    (out / "calibration.json").write_text("damaged")
    assert pseudocal(*again).code == 0


def test_saved_outputs_do_not_replace_a_calibration_from_labels_silently(
    pseudocal, truth, out, tmp_path
):
    np.save(tmp_path / "outputs.npy", np.load(out / "logits.npy"))
    np.save(tmp_path / "others.npy", np.load(out / "logits.npy")[:, ::-1])
    saved = tmp_path / "saved"
    second = ("--second-opinion", tmp_path / "others.npy")
    again = ("calibrate", tmp_path / "outputs.npy", "-o", saved, *second)
    done = pseudocal(*again)
    assert (done.code, "held a calibration" in done.err) == (0, False)
    labels = write(tmp_path / "labels.csv", drawn(saved, truth, 20))
    assert pseudocal("refine", saved, labels).code == 0
    said = pseudocal(*again).err
    assert f"{saved} held a calibration from 20 labels; this run replaces it." in said
    assert f"Run pseudocal refine {saved} labels.csv to use them again." in said


def test_what_is_no_class_is_counted_and_names_may_stand_for_classes(
    pseudocal, tabular, features, truth, tmp_path
):
    (tmp_path / "classes.txt").write_text("=ant\nbee\nbee\n")
    out = tmp_path / "named"
    pseudocal(
        "calibrate", tabular["sklearn"], features, "-o", out, "--classes", tmp_path / "classes.txt"
    )
    names = ["'=ant", "1", "2"]
    rows = [(file, names[label]) for file, label in drawn(out, truth, 30)]
    rows[3], rows[4], rows[5] = (
        (rows[3][0], "cannot tell"),
        (rows[4][0], "none of these"),
        (rows[5][0], "1"),
    )
    done = pseudocal("refine", out, write(tmp_path / "a.csv", rows), "--json")
    assert done.code == 0, done.err
    measured = Calibration.load(out / "calibration.json").measured
    assert (measured.labels, measured.cannot_tell, measured.none_of_these) == (29, 1, 1)
    labels = np.array([label for _, label in drawn(out, truth, 30)])
    labels[[3, 4, 5]] = CANNOT_TELL, NONE_OF_THESE, 1
    logits = np.load(out / "logits.npy")
    expected = LabelSample(rows_to_label(logits, 30), labels)
    assert (
        measured.accuracy
        == Calibration.load(out / "calibration.json").refined(logits, expected).measured.accuracy
    )
    report = json.loads((out / "report.json").read_text())
    facts = {fact["code"]: fact for fact in report["facts"]}
    assert facts["none_of_these"]["level"] == "caution"
    assert facts["none_of_these"]["values"] == {"n": 1, "labels": 29}
    assert facts["cannot_tell"]["values"] == {"n": 1}
    cautions = json.loads(done.out)["cautions"]
    assert any('"none of these". The model does not know' in text for text in cautions)
    done = pseudocal("refine", out, tmp_path / "a.csv")
    assert 'skipped: 1 (labelled "cannot tell" or not labelled)' in done.out
    assert (f"pseudocal label {out} -n {30 + (measured.more_labels or 0)}" in done.out) == bool(
        measured.more_labels
    )


def test_what_is_wrong_with_a_file_is_named_by_line(pseudocal, out, truth):
    good = drawn(out, truth, 10)
    other = (int(good[1][1]) + 1) % 3
    bad = [
        *good,
        ("x.png", 1),
        (good[0][0], "dgo"),
        (good[1][0], other),
        (good[2][0], good[2][1]),
        (good[3][0], 3),
    ]
    before = content(out)
    done = pseudocal("refine", out, write(out.parent / "bad.csv", bad))
    assert done.code == 3
    for text in (
        "line 12: 'x.png', which is no input of the target",
        "line 13: 'dgo', which is no class of the model",
        f"line 14: '{good[1][0]}' has two labels, '{other}' here and '{good[1][1]}' in line 3",
        f"line 15: '{good[2][0]}' has two labels, '{good[2][1]}' here and '{good[2][1]}' in line 4",
        "line 16: '3', which is no class of the model",
        "They are called '0', '1', '2', ... (400 in all). The classes are ",
    ):
        assert text in done.err
    assert content(out) == before
    for text, why in (
        ("", "columns file and label"),
        ("file,label\n", "at least one label"),
        ("a\n1\n", "got a"),
    ):
        (out.parent / "bad.csv").write_text(text)
        done = pseudocal("refine", out, out.parent / "bad.csv")
        assert (done.code, why in done.err) == (3, True)
    assert pseudocal("refine", out, out.parent / "nothing.csv").code == 3
    empty = out.parent / "empty"
    empty.mkdir()
    done = pseudocal("label", empty)
    assert (done.code, "has no run.json" in done.err) == (3, True)
    assert f"{empty} has no run.json, so there are no logits to work with" in done.err


def test_labels_that_were_not_chosen_by_label_are_refused_unless_they_are_random(
    pseudocal, tabular, features, truth, out
):
    rows = np.random.default_rng(5).permutation(400)[:40]
    labels = write(out.parent / "own.csv", [(int(row), int(truth[row])) for row in rows])
    done = pseudocal("refine", out, labels)
    assert done.code == 3
    assert "do not represent the rest" in done.err
    assert "Only if they were really drawn at random" in done.err
    assert "--sampling random" in done.err
    assert pseudocal("refine", out, labels, "--sampling", "random").code == 0
    assert Calibration.load(out / "calibration.json").measured.sampling == "random"
    skipped = [row for i, row in enumerate(drawn(out, truth, 12)) if i != 4]
    assert pseudocal("refine", out, write(out.parent / "skipped.csv", skipped)).code == 0
    unlabelled = [
        *drawn(out, truth, 12)[:8],
        *((name, "") for name, _ in drawn(out, truth, 12)[8:]),
    ]
    assert pseudocal("refine", out, write(out.parent / "part.csv", unlabelled)).code == 0


def test_a_file_that_can_act_is_trusted_again_and_another_model_is_refused(
    pseudocal, tabular, features, truth, tmp_path
):
    model = tmp_path / "model.pt"
    model.write_bytes(Path(tabular["torchscript"]).read_bytes())
    out = tmp_path / "out"
    assert pseudocal("calibrate", model, features, "-o", out, "--trust-model").code == 0
    labels = write(tmp_path / "labels.csv", drawn(out, truth, 20))
    before = content(out)
    done = pseudocal("refine", out, labels)
    assert done.code == 3
    assert "--trust-model" in done.err
    assert content(out) == before
    assert pseudocal("refine", out, labels, "--trust-model").code == 0
    (exported,) = json.loads((out / "report.json").read_text())["model"]["files"]
    assert content(out)[exported] != before["unconfirmed-model.pt"]
    model.write_bytes((out / exported).read_bytes())
    done = pseudocal("refine", out, labels, "--trust-model")
    assert done.code == 3
    assert "has changed since it was calibrated" in done.err


def test_images_with_unreadable_ones_among_them(pseudocal, hub, image_files, tmp_path):
    import shutil

    shutil.copytree(image_files, tmp_path / "images")
    (tmp_path / "images" / "day 0" / "00.jpg").write_bytes(b"broken")
    out = tmp_path / "out"
    done = pseudocal(
        "calibrate", hub, tmp_path / "images", "-o", out, "--max-bad", "10%", "--format", "csv"
    )
    assert done.code == 0, done.err
    target = json.loads((out / "run.json").read_text())
    assert len(target["names"]) == len(np.load(out / "logits.npy")) == 59
    assert pseudocal("label", out, "-n", 10).code == 0
    rows = rows_to_label(np.load(out / "logits.npy"), 10)
    labels = write(tmp_path / "labels.csv", [(target["names"][row], 0) for row in rows])
    names = (out / "predictions.csv").read_text().splitlines()
    done = pseudocal("refine", out, labels, "--json")
    assert done.code == 0, done.err
    again = (out / "predictions.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in again] == [line.split(",")[0] for line in names]
    assert json.loads(done.out)["unreadable"] == 1
    (exported,) = json.loads((out / "report.json").read_text())["model"]["files"]
    shipped = json.loads((out / exported / "config.json").read_text())
    assert shipped["pseudocal_temperature"] == json.loads(done.out)["temperature"]
    (tmp_path / "images").rename(tmp_path / "moved")
    done = pseudocal("label", out, "-n", 12)
    assert (done.code, "no longer exists" in done.err) == (3, True)


def test_labels_for_evaluation_are_measured_again(pseudocal, tabular, features, truth, tmp_path):
    np.save(tmp_path / "y.npy", truth)
    out = tmp_path / "out"
    pseudocal(
        "calibrate", tabular["sklearn"], features, "-o", out, "--ground-truth", tmp_path / "y.npy"
    )
    before = json.loads((out / "report.json").read_text())["metrics"]
    done = pseudocal("refine", out, write(tmp_path / "a.csv", drawn(out, truth, 100)), "--json")
    after = json.loads(done.out)["metrics"]
    assert [row["before"] for row in after] == [row["before"] for row in before]
    assert after[1]["after"]["value"] < before[1]["before"]["value"]  # the NLL


def test_what_is_refused(pseudocal, tabular, features, truth, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_for_labels.py").write_text(MODEL)
    labels = write(tmp_path / "a.csv", drawn(out, truth, 10))
    done = pseudocal("label", out, "-n", 401)
    assert (done.code, "from 1 to 400, got 401" in done.err) == (3, True)
    assert pseudocal("label", tmp_path / "nothing").code == 3
    assert not (tmp_path / "nothing").exists()
    done = pseudocal(
        "calibrate",
        "made_for_labels:maps",
        features,
        "-o",
        tmp_path / "maps",
        "--labels",
        labels,
    )
    assert (done.code, "expected the columns file, y, x and label" in done.err) == (3, True)
    pseudocal(
        "calibrate",
        "made_for_labels:maps",
        features,
        "-o",
        tmp_path / "maps",
        "--batch-size",
        "64",
    )
    assert "frames must have shape" in pseudocal("label", tmp_path / "maps").err
    pseudocal("calibrate", tabular["onnx"], features, "-o", out, "--no-logits")
    assert not (out / "logits.npy").exists()
    assert not (out / "run.json").exists()
    assert "-o FOLDER wrote without --no-logits" in pseudocal("refine", out, labels).err
    bad = write(tmp_path / "bad.csv", [("x", 1)])
    done = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", tmp_path / "new", "--labels", bad
    )
    assert (done.code, "line 2: 'x'" in done.err) == (3, True)


KILLED = """
import sys, time
from pathlib import Path
from pseudocal.app import publishing, refine

def wait():
    print("here", flush=True)
    time.sleep(60)

if sys.argv[3] == "before":
    publishing._publish = lambda *_: wait()
else:
    real, moved = publishing.os.replace, []
    def replace(source, target):
        if publishing.DECIDED in str(source):
            moved.append(target)
            if len(moved) == 2:
                wait()
        real(source, target)
    publishing.os.replace = replace
refine(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("moment", ["before", "amid"])
def test_a_kill_leaves_the_old_folder_or_what_the_next_run_makes_the_new_one(
    moment, pseudocal, out, truth, tmp_path
):
    labels = write(tmp_path / "labels.csv", drawn(out, truth, 30))
    before = content(out)
    command = [sys.executable, "-c", KILLED, str(out), str(labels), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    if moment == "before":
        assert content(out) == before
    assert (
        pseudocal("label", out, "-n", 3).code == 0
    )  # the next run, whatever it is, finishes or sweeps
    found = content(out)
    assert pseudocal("refine", out, labels).code == 0
    if moment == "before":
        assert found["calibration.json"] == before["calibration.json"]
        assert found["unconfirmed-model.onnx"] == before["unconfirmed-model.onnx"]
    else:
        assert found == content(out)


def test_python_labels_and_refines_too(tabular, features, truth, tmp_path):
    import pseudocal.app as app

    out = tmp_path / "out"
    app.calibrate(tabular["onnx"], str(features), out)
    assert app.label(out, 20) == out / "label.html"
    labels = write(tmp_path / "labels.csv", drawn(out, truth, 20))
    result = app.refine(out, labels)
    assert result.calibration == Calibration.load(out / "calibration.json")
    assert result.predictions == out / "predictions.parquet"
    again = app.calibrate(tabular["onnx"], str(features), tmp_path / "new", labels=labels)
    assert again.calibration.temperature == result.calibration.temperature


def test_a_table_shows_its_rows(pseudocal, tabular, features, tmp_path):
    x = np.load(features)
    lines = [",".join([*"abcde"]), *(",".join(f"{v:.4f}" for v in row) for row in x)]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    assert pseudocal("calibrate", tabular["onnx"], tmp_path / "x.csv", "-o", out).code == 0
    assert pseudocal("label", out, "-n", 4).code == 0
    (first, *_) = rows_to_label(np.load(out / "logits.npy"), 4)
    assert f"{x[first][0]:.4f}" in (out / "label.html").read_text()
