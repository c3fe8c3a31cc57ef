"""Small things of real data that once stopped a user: names, formats, skipped rows, other data."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, InputError, PseudoCal, TemperatureScaling, rows_to_label, softmax
from pseudocal.app.inputs.sets import refuse_texts
from pseudocal.app.job import Job, read_job, write_job
from pseudocal.app.label_files import read_label_lines
from pseudocal.app.labelling import ToLabel, label, write_labelling_page

N = 200
DATA = '<script type="application/json" id="data">'


@pytest.fixture
def logits() -> np.ndarray:
    return 3 * np.random.default_rng(0).normal(size=(N, 3))


@pytest.fixture
def truth(logits: np.ndarray) -> np.ndarray:
    return (logits / 2 + np.random.default_rng(1).gumbel(size=logits.shape)).argmax(axis=1)


def write(path: Path, rows: list[Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def page_data(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.split(DATA)[1].split("</script>")[0])
    return found


# ------------------------------------------------------------------------------ names


def test_two_classes_of_one_name_are_labelled_by_name_and_number(tmp_path):
    classes = ["maillot", "tench", "maillot"]
    rows = [["a", "maillot (class 2)"], ["b", "0"], ["c", "tench"]]
    labels = write(tmp_path / "labels.csv", [["file", "label"], *rows])
    found = read_label_lines(labels, ["a", "b", "c"], classes)
    assert [number for _, number in found] == [2, 0, 1]
    write(labels, [["file", "label"], ["a", "maillot"]])
    with pytest.raises(InputError, match=r"2 classes are called.*'maillot \(class 0\)', 'maillot"):
        read_label_lines(labels, ["a"], classes)


def test_ground_truth_does_not_guess_between_two_classes_of_one_name(pseudocal, logits, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    (tmp_path / "classes.txt").write_text("maillot\ntench\nmaillot\n")
    assert pseudocal(
        *("label", tmp_path / "logits.npy", "-n", 10, "-o", tmp_path / "out"),
        *("--classes", tmp_path / "classes.txt"),
    ).code == 0  # fmt: skip
    scaling = TemperatureScaling(2.0)
    Calibration("pseudocal", scaling).save(tmp_path / "out" / "calibration.json")
    names = np.array(["maillot (class 0)", "tench", "maillot (class 2)"])[logits.argmax(axis=1)]
    labels = write(tmp_path / "truth.csv", [["label"], *([name] for name in names)])
    arguments = ("evaluate", tmp_path / "out" / "logits.npy", labels)
    given = ("--calibration", tmp_path / "out" / "calibration.json", "--json")
    done = pseudocal(*arguments, *given)
    assert done.code == 0, done.err
    assert accuracy(done) == 1
    write(labels, [["label"], *(["maillot"] for _ in names)])
    done = pseudocal(*arguments, *given)
    assert (done.code, "which is the name of several classes" in done.err) == (3, True)


def test_the_page_hides_names_that_tell_the_class(tmp_path):
    page = tmp_path / "label.html"
    telling = [ToLabel("Heron/1.png"), ToLabel("other/2.png")]
    write_labelling_page(page, telling, ["crane", "heron"])
    data = page_data(page)
    assert [one["title"] for one in data["chosen"]] == ["input 1", "input 2"]
    assert [one["name"] for one in data["chosen"]] == ["Heron/1.png", "other/2.png"]  # to save
    write_labelling_page(page, [ToLabel("heronry/1.png")], ["crane", "heron"])
    assert page_data(page)["chosen"][0]["title"] is None


def test_numbers_on_the_page_have_few_digits(pseudocal, logits, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    rows = [["age", "income"], *([0.1 + 0.2, 12345.6789] for _ in range(N))]
    inputs = write(tmp_path / "inputs.csv", rows)
    out = tmp_path / "out"
    done = pseudocal("label", tmp_path / "logits.npy", "-n", 3, "-o", out, "--inputs", inputs)
    assert done.code == 0, done.err
    cells = dict(page_data(out / "label.html")["chosen"][0]["cells"])
    assert (cells["age"], cells["income"]) == ("0.3", "12346")


def test_synonyms_of_the_class_file_reach_the_page(pseudocal, logits, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    (tmp_path / "classes.txt").write_text("maillot\tswimsuit\ttank suit\ntench\neel\n")
    arguments = ("label", tmp_path / "logits.npy", "-n", 3, "-o", tmp_path / "out")
    done = pseudocal(*arguments, "--classes", tmp_path / "classes.txt")
    assert done.code == 0, done.err
    data = page_data(tmp_path / "out" / "label.html")
    assert data["classes"] == ["maillot", "tench", "eel"]
    assert data["synonyms"] == [["swimsuit", "tank suit"], [], []]
    label(tmp_path / "out", 3, classes=["a\tb", "c", "d"])
    assert page_data(tmp_path / "out" / "label.html")["synonyms"] == [["b"], [], []]


def test_swapped_and_missing_names_are_seen(pseudocal, logits, image_files, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    out = tmp_path / "out"
    assert pseudocal("label", tmp_path / "logits.npy", "-n", 3, "-o", out).code == 0
    labels = write(tmp_path / "labels.csv", [["file", "label"], [0, "cat"]])
    run_first = f"expected a run folder, got the file {labels}: pass the folder first"
    numeric = f"got {labels}, whose column 'label' is not numeric"
    no_folder = f"expected a run folder, got {tmp_path / 'none'}: no such folder"
    after = "(a folder of images is the data, which comes after the model)"
    for words, said in (
        (("refine", labels, out), run_first),
        (("threshold", labels, out, "--max-error", "5%"), run_first),
        (("label", labels), numeric),
        (("label", tmp_path / "none"), no_folder),
        (("refine", tmp_path / "none", labels), no_folder),
        (("threshold", tmp_path / "none", "--max-error", "5%"), no_folder),
        (("calibrate", image_files, "model.onnx", "-o", tmp_path / "new"), after),
    ):
        done = pseudocal(*words)
        assert (done.code, said in done.err) == (3, True), done.err
        assert "pass --" not in done.err
    (out / "run.json").write_text('"text"')
    done = pseudocal("label", out)
    assert done.err.endswith("; restore it, or make it again\n")


# ------------------------------------------------------------------------------ skipped rows


def test_skipped_rows_of_a_labels_file_count_as_cannot_tell(pseudocal, logits, truth, tmp_path):
    np.save(tmp_path / "logits.npy", logits)
    rows = rows_to_label(logits, 40)
    kept = [row for i, row in enumerate(rows) if i % 4]
    labels = write(tmp_path / "l.csv", [["file", "label"], *([row, truth[row]] for row in kept)])
    said = [[row, truth[row] if i % 4 else "cannot tell"] for i, row in enumerate(rows)]
    in_full = write(tmp_path / "full.csv", [["file", "label"], *said])
    measured = []
    for file in (labels, in_full):
        out = tmp_path / file.stem
        done = pseudocal("refine", tmp_path / "logits.npy", file, "-o", out)
        assert done.code == 0, done.err
        measured.append(Calibration.load(out / "calibration.json").measured)
    assert measured[0] == measured[1]
    few = write(tmp_path / "few.csv", [["file", "label"], *([r, truth[r]] for r in rows[30:])])
    done = pseudocal("refine", tmp_path / "logits.npy", few, "-o", tmp_path / "few")
    assert (done.code, "do not represent the rest" in done.err) == (3, True)


# ------------------------------------------------------------------------------ evaluate and apply


def accuracy(done: Any) -> float:
    rows = json.loads(done.out)
    return float(next(row for row in rows if row["metric"] == "accuracy")["before"]["value"])


def test_evaluate_takes_the_table_that_calibrate_takes(pseudocal, vision, image_files, tmp_path):
    out = tmp_path / "out"
    arguments = ("calibrate", vision["onnx"], image_files, "-o", out, "--size", 16)
    assert pseudocal(*arguments, "--format", "csv").code == 0
    with (out / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = [[row["file"], row["class"]] for row in csv.DictReader(file)]
    table = write(tmp_path / "truth.csv", [["file", "label"], *reversed(rows)])
    again = pseudocal(*arguments, "--ground-truth", table)
    assert again.code == 0, again.err
    done = pseudocal("evaluate", out / "logits.npy", table, "--json")
    assert done.code == 0, done.err
    assert accuracy(done) == 1
    np.save(tmp_path / "copy.npy", np.load(out / "logits.npy"))
    given = ("--calibration", out / "calibration.json", "--json")
    done = pseudocal("evaluate", tmp_path / "copy.npy", table, *given)
    assert done.code == 0, done.err
    assert accuracy(done) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_apply_reads_and_writes_tables(pseudocal, logits, suffix, tmp_path):
    names = [f"{i}.png" for i in range(N)]
    rows = [["file", "cat", "dog", "eel"]]
    rows += [[name, *row] for name, row in zip(names, logits.tolist(), strict=True)]
    saved = write(tmp_path / "logits.csv", rows)
    if suffix == "parquet":
        csv_reader = pytest.importorskip("pyarrow.csv")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = csv_reader.read_csv(saved)
        saved = tmp_path / "logits.parquet"
        parquet.write_table(table, saved)
    Calibration("pseudocal", TemperatureScaling(2.0)).save(tmp_path / "calibration.json")
    out = tmp_path / f"probabilities.{suffix}"
    done = pseudocal("apply", tmp_path / "calibration.json", saved, "-o", out)
    assert done.code == 0, done.err
    if suffix == "parquet":
        found = parquet.read_table(out).to_pydict()
    else:
        with out.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        found = {name: [line[name] for line in lines] for name in lines[0]}
    assert found.pop("file") == names
    assert list(found) == ["cat", "dog", "eel"]
    values = np.array([[float(cell) for cell in column] for column in found.values()]).T
    np.testing.assert_allclose(values, softmax(logits / 2), atol=1e-5)


# ------------------------------------------------------------------------------ settings


def test_python_refuses_probabilities_as_the_command_does(
    pseudocal, features, tmp_path, monkeypatch
):
    (tmp_path / "gives_probabilities.py").write_text(
        "import numpy as np\nfrom pseudocal import softmax\n"
        "def predict(x):\n    return softmax(np.asarray(x)[:, :3])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import gives_probabilities  # type: ignore[import-not-found]

    done = pseudocal("calibrate", "gives_probabilities:predict", features, "-o", tmp_path / "out")
    assert done.code == 3
    why = "the outputs look like probabilities, not logits: they lie between 0 and 1"
    assert why in done.err
    with pytest.raises(InputError, match=why):
        PseudoCal().fit(gives_probabilities.predict, np.load(features))


def test_a_job_takes_other_data_another_model_and_another_folder(
    pseudocal, tabular, features, tmp_path
):
    ground_truth = tmp_path / "truth.npy"
    np.save(ground_truth, np.zeros(400, dtype=int))
    arguments = ("calibrate", tabular["onnx"], features, "-o", tmp_path / "a", "--seed", 3)
    assert pseudocal(*arguments, "--ground-truth", ground_truth).code == 0
    day_2 = tmp_path / "day2.npy"
    np.save(day_2, np.load(features)[:150])
    job = ("--job", tmp_path / "a" / "job.toml")
    other = ("--data", day_2, "--model", tabular["onnx"], "-o", tmp_path / "b")
    done = pseudocal("calibrate", *job, *other)
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    assert (len(record["names"]), record["ground_truth"]) == (150, None)
    assert Calibration.load(tmp_path / "b" / "calibration.json").settings["seed"] == 3
    done = pseudocal("calibrate", "--data", day_2, "-o", tmp_path / "c")
    assert (done.code, "--job" in done.err) == (2, True)


def test_a_job_keeps_its_class_names_in_a_file(pseudocal, tabular, features, tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\neel\n")
    given = ("calibrate", tabular["onnx"], features, "-o", tmp_path / "a", "--no-logits")
    assert pseudocal(*given, "--classes", tmp_path / "names.txt").code == 0
    assert 'classes = "classes.txt"' in (tmp_path / "a" / "job.toml").read_text()
    assert (tmp_path / "a" / "classes.txt").read_text() == "cat\ndog\neel\n"
    assert read_job(tmp_path / "a" / "job.toml").classes == ("cat", "dog", "eel")
    awkward = Job("m", "d", tmp_path / "b", classes=("two\nlines", "", "c "))
    write_job(awkward, tmp_path / "job.toml", classes="c.txt")
    assert read_job(tmp_path / "job.toml").classes == awkward.classes
    write_job(replace(awkward, classes=("", "b ", "")), tmp_path / "job.toml", classes="c.txt")
    assert read_job(tmp_path / "job.toml").classes == ("", "b ", "")
    outside = (tmp_path / "job.toml").read_text().replace("c.txt", "../names.txt")
    (tmp_path / "job.toml").write_text(outside)
    with pytest.raises(InputError, match="beside the job file"):
        read_job(tmp_path / "job.toml")


# ------------------------------------------------------------------------------ a wrong file


def test_a_json_file_as_data_is_named_and_not_printed(tmp_path):
    path = tmp_path / "truth.json"
    path.write_text(json.dumps({f"new_{i:03d}.png": "cat" for i in range(1100)}))
    with pytest.raises(InputError, match="which begins with") as caught:
        refuse_texts(str(path))
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400
