"""`pseudocal threshold` and `pseudocal label --for-threshold`: which predictions to accept."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import LabelSample, rows_to_label
from pseudocal.app import Run, collect_outputs
from pseudocal.app.report import Report
from pseudocal.app.run import LABEL_TABLE
from pseudocal.calibrators import find_threshold, threshold_pool
from pseudocal.calibrators.confidence import confidences

ROWS = 1200
CLASSES = 4


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of saved logits; `truth.npy` has classes drawn from the calibrated probabilities."""
    from pseudocal.app import collect_outputs

    folder = tmp_path_factory.mktemp("saved")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(ROWS, CLASSES)) * rng.uniform(0.5, 8, size=(ROWS, 1))
    np.save(folder / "logits.npy", logits)
    truth = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.save(folder / "truth.npy", truth)
    collect_outputs(folder / "logits.npy", folder / "out")
    return folder


@pytest.fixture
def out(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved / "out", tmp_path / "out")


@pytest.fixture
def truth(saved: Path) -> np.ndarray:
    found: np.ndarray = np.load(saved / "truth.npy")
    return found


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fill_in(path: Path, truth: np.ndarray, to: Path) -> Path:
    """What a person does with `to-label.csv`."""
    lines = table(path)
    for line in lines:
        line["label"] = str(truth[int(line["file"])])
    with to.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return to


def rule(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "threshold.json").read_text(encoding="utf-8"))
    return content


def accepted(out: Path) -> np.ndarray:
    import pyarrow.parquet

    column = pyarrow.parquet.read_table(out / "predictions.parquet")["accept"]
    assert str(column.type) == "bool"
    return np.array(column.to_pylist())


def test_an_estimate_without_labels(pseudocal, out):
    done = pseudocal("threshold", out, "--max-error", "5%")
    assert done.code == 0, done.err
    logits = np.load(out / "logits.npy")
    confidence = confidences(logits)
    found = find_threshold(logits.argmax(axis=1), confidence, 0.05)
    content = rule(out)
    assert content["basis"] == "estimated"
    assert content["confidence"] == found.confidence
    assert "This threshold uses no labels" in done.out
    assert f"--for-threshold 5% -n {found.labels_needed}" in done.out
    np.testing.assert_array_equal(accepted(out), confidence >= found.confidence)


def test_labels_drawn_for_a_threshold_give_a_guarantee(pseudocal, out, truth, tmp_path):
    done = pseudocal("label", out, "-n", 120, "--for-threshold", "5%")
    assert done.code == 0, done.err
    assert "Next: pseudocal threshold" in done.out
    lines = table(out / LABEL_TABLE)
    assert {line["sampling"] for line in lines} == {"threshold 5% at T=1"}
    logits = np.load(out / "logits.npy")
    predicted, confidence = logits.argmax(axis=1), confidences(logits)
    pool = threshold_pool(predicted, confidence, 0.05)
    assert len(pool) < 0.7 * ROWS
    rows = [int(line["file"]) for line in lines]
    assert set(rows) <= set(pool.tolist())
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    done = pseudocal("threshold", out, labels, "--max-error", "5%")
    assert done.code == 0, done.err
    sample = LabelSample(rows, truth[rows], "random", pool=pool)
    found = find_threshold(predicted, confidence, 0.05, sample)
    content = rule(out)
    assert content["basis"] == found.basis == "guaranteed"
    assert content["confidence"] == found.confidence
    assert (content["labels"], content["errors"]) == (found.labels, found.errors)
    assert content["upper"] <= 0.05
    assert content["sampling"] == "threshold"
    assert "with a probability of 90%" in content["promise"]
    assert content["promise"] in done.out
    assert {line["light"] for line in content["classes"]} <= {
        "guaranteed",
        "estimated",
        "not enough labels",
    }
    assert accepted(out).mean() == found.coverage
    for line in content["classes"]:
        if line["light"] == "not enough labels":
            assert (line["confidence"], line["coverage"]) == (None, 0)


def test_an_estimate_does_not_replace_a_threshold_from_labels(pseudocal, out, truth, tmp_path):
    pseudocal("label", out, "-n", 120, "--for-threshold", "5%")
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    pseudocal("threshold", out, labels, "--max-error", "5%")
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    done = pseudocal("threshold", out, "--max-error", "10%")
    assert done.code == 0, done.err
    assert "An estimated 10%" in done.out
    assert f"not written: {out / 'threshold.json'} keeps the threshold from 120 labels" in done.out
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    (out / "threshold.json").unlink()
    assert "not written" not in pseudocal("threshold", out, "--max-error", "10%").out
    assert rule(out)["basis"] == "estimated"


def test_drawing_more_begins_with_the_same(pseudocal, out):
    pseudocal("label", out, "-n", 20, "--for-threshold", "5%")
    first = [line["file"] for line in table(out / LABEL_TABLE)]
    pseudocal("label", out, "-n", 40, "--for-threshold", "5%")
    assert [line["file"] for line in table(out / LABEL_TABLE)][:20] == first


def test_too_few_labels_give_none_and_say_how_many_would(pseudocal, out, truth, tmp_path):
    pseudocal("label", out, "-n", 30, "--for-threshold", "5%")
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    done = pseudocal("threshold", out, labels, "--max-error", "5%")
    content = rule(out)
    assert (content["basis"], content["confidence"]) == ("none", None)
    assert content["labels_needed"] >= 45
    assert f"-n {content['labels_needed']}" in done.out
    assert not accepted(out).any()
    few = [line for line in content["classes"] if line["light"] == "not enough labels"]
    assert few
    assert f"  {few[0]['name']}: not enough labels ({few[0]['labels']} label" in done.out


def test_labels_for_a_threshold_are_no_sample_of_all_inputs(pseudocal, out, truth, tmp_path):
    pseudocal("label", out, "-n", 60, "--for-threshold", "5%")
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    done = pseudocal("refine", out, labels)
    assert done.code == 3
    assert f"run pseudocal threshold {out} {labels}" in done.err


def test_the_table_to_label_says_how_labels_without_the_column_were_drawn(
    pseudocal, out, truth, tmp_path
):
    pseudocal("label", out, "-n", 120, "--for-threshold", "5%")
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    find = ("threshold", out, labels, "--max-error", "5%")
    assert pseudocal(*find).code == 0
    expected = rule(out)
    plain = "".join(f"{line['file']},{line['label']}\n" for line in table(labels))
    labels.write_text("file,label\n" + plain, encoding="utf-8")
    (out / "threshold.json").unlink()
    assert pseudocal(*find).code == 0
    assert rule(out) == expected
    assert expected["sampling"] == "threshold"
    done = pseudocal("refine", out, labels)
    assert done.code == 3
    assert "expected labels that represent all inputs, got labels drawn for a threshold" in done.err
    pseudocal("label", out, "-n", 100, "--for-threshold", "5%")  # fewer than were labelled
    done = pseudocal(*find)
    assert done.code == 3
    missing = "the column sampling of their to-label.csv is missing"
    assert done.err.rstrip().endswith(missing)
    (out / LABEL_TABLE).unlink()
    done = pseudocal(*find)
    assert done.code == 3
    assert missing in done.err
    assert "--sampling random" in done.err


def test_labels_chosen_by_hand_are_refused(pseudocal, out, truth, tmp_path):
    """The second half of the questions, or other inputs of the pool, are no random sample."""
    pseudocal("label", out, "-n", 80, "--for-threshold", "5%")
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    lines = labels.read_text(encoding="utf-8").splitlines()
    labels.write_text("\n".join([lines[0], *lines[30:]]), encoding="utf-8")
    done = pseudocal("threshold", out, labels, "--max-error", "5%")
    assert done.code == 3
    assert "has no label for" in done.err
    mixed = [lines[0], *lines[1:40], *(line.replace("5%", "6%") for line in lines[40:])]
    labels.write_text("\n".join(mixed), encoding="utf-8")
    assert "drawn in one way" in pseudocal("threshold", out, labels, "--max-error", "5%").err


def test_refine_finds_the_threshold_too(pseudocal, out, truth, tmp_path):
    rows = rows_to_label(np.load(out / "logits.npy"), 300)
    path = tmp_path / "labels.csv"
    path.write_text(
        "file,label\n" + "".join(f"{row},{truth[row]}\n" for row in rows), encoding="utf-8"
    )
    done = pseudocal("refine", out, path, "--max-error", "10%")
    assert done.code == 0, done.err
    content = rule(out)
    assert content["basis"] == "measured"  # a service asks for "guaranteed"
    assert content["same_labels"] is True
    assert "guaranteed" not in {line["light"] for line in content["classes"]}
    assert "a probability of about 90%" in content["promise"]
    assert content["promise"] in done.out
    assert content["temperature"] == Run.open(out).calibration().temperature
    assert content["promise"] in (out / "report.html").read_text(encoding="utf-8")
    assert Report.load(out / "report.json").threshold.confidence == content["confidence"]
    chosen = accepted(out)
    assert chosen.mean() == content["coverage"]
    wrong = np.load(out / "logits.npy").argmax(axis=1) != truth
    assert wrong[chosen].mean() < wrong.mean()
    assert pseudocal("refine", out, path).code == 0  # another temperature would need another one
    assert not (out / "threshold.json").exists()


def test_labels_that_are_spread_or_fitted_to_guarantee_nothing(pseudocal, out, truth, tmp_path):
    logits = np.load(out / "logits.npy")
    path = tmp_path / "labels.csv"
    drawn = {
        "stratified": rows_to_label(logits, 300),
        "random": np.random.default_rng(1).permutation(ROWS)[:300],
    }
    for sampling, basis in (("stratified", "measured"), ("random", "guaranteed")):
        labels = "".join(f"{row},{truth[row]}\n" for row in drawn[sampling])
        path.write_text("file,label\n" + labels, encoding="utf-8")
        find = ("threshold", out, path, "--max-error", "10%", "--sampling", sampling)
        done = pseudocal(*find)
        assert done.code == 0, done.err
        content = rule(out)
        assert (content["basis"], content["sampling"]) == (basis, sampling)
        assert ("a probability of about 90%" in content["promise"]) == (basis == "measured")
        assert content["upper"] <= 0.1
        lights = {line["light"] for line in content["classes"]}
        assert basis in lights
        assert lights <= {basis, "estimated", "not enough labels"}
    done = pseudocal("refine", out, path, "--max-error", "10%", "--sampling", "random")
    assert done.code == 0, done.err
    assert rule(out)["basis"] == "measured"  # T was fitted to the same labels


def test_predicted_classes_are_a_second_model_too(pseudocal, tmp_path):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(300, 3))
    second = (logits + 2 * rng.normal(size=logits.shape)).argmax(axis=1)
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "second.npy", second)
    out = tmp_path / "out"
    collect_outputs(tmp_path / "logits.npy", out, second_opinion=tmp_path / "second.npy")
    assert pseudocal("threshold", out, "--max-error", "10%").code == 0
    content = rule(out)
    agrees = second == logits.argmax(axis=1)
    least = np.where(agrees, content["confidence"], content["if_disagree"] or np.inf)
    np.testing.assert_array_equal(accepted(out), confidences(logits) >= least)
    assert 0 < accepted(out).sum() < 300


def test_a_second_model_ranks_first_where_it_agrees(pseudocal, tmp_path, monkeypatch):
    """From files to files: the column `accept` follows agreement and confidence."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pair_of_models.py").write_text(
        "import numpy as np\n"
        "weights = np.random.default_rng(0).normal(size=(5, 3))\n"
        "def first(x): return 6 * x @ weights\n"
        "def second(x): return 6 * x @ (weights + 0.5)\n",
        encoding="utf-8",
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(500, 5)))
    out = tmp_path / "out"
    done = pseudocal(
        "calibrate",
        "pair_of_models:first",
        tmp_path / "x.npy",
        "-o",
        out,
        "--second-opinion",
        "pair_of_models:second",
    )
    assert done.code == 0, done.err
    done = pseudocal("threshold", out, "--max-error", "10%", "--json")
    content = json.loads(done.out)
    assert content["agreement"] is True
    run = Run.open(out)
    agrees = run.logits.argmax(axis=1) == run.second_logits[0].argmax(axis=1)
    confidence = confidences(run.logits, content["temperature"])
    least = np.where(agrees, content["confidence"], content["if_disagree"] or np.inf)
    chosen = accepted(out)
    np.testing.assert_array_equal(chosen, confidence >= least)
    assert chosen.any()
    assert content["promise"] in (out / "report.html").read_text(encoding="utf-8")
    assert Report.load(out / "report.json").threshold.coverage == content["coverage"]
    done = pseudocal("threshold", out, "--max-error", "10%", "--one-model")
    assert rule(out)["agreement"] is False
    np.testing.assert_array_equal(accepted(out), confidence >= rule(out)["confidence"])


def test_wrong_arguments_are_named(pseudocal, out):
    assert "expected a fraction" in pseudocal("threshold", out, "--max-error", "many").err
    done = pseudocal("threshold", out, "--max-error", "0")
    assert (done.code, "--max-error" in done.err) == (3, True)
    done = pseudocal("label", out, "-n", 1200, "--for-threshold", "5%")
    assert (done.code, "inputs to label, the candidates for this error limit" in done.err) == (
        3,
        True,
    )


def test_a_segmentation_model_has_no_threshold(pseudocal, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "model_of_maps.py").write_text(
        "import numpy as np\n"
        "def model(x): return np.tile(x[:, :3, None, None], (1, 1, 4, 4)) * 3\n",
        encoding="utf-8",
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(40, 5)))
    out = tmp_path / "out"
    done = pseudocal("calibrate", "model_of_maps:model", tmp_path / "x.npy", "-o", out)
    assert done.code == 0, done.err
    done = pseudocal("threshold", out, "--max-error", "5%")
    assert (done.code, "of a segmentation model" in done.err) == (3, True)


def test_a_larger_error_is_proposed_if_no_number_of_labels_helps(pseudocal, tmp_path):
    """At a confidence of 88% nothing guarantees 5%, but 20% is within reach."""
    from pseudocal.app import collect_outputs

    np.save(tmp_path / "logits.npy", np.tile([[2.0, 0.0], [0.0, 2.0]], (600, 1)))
    collect_outputs(tmp_path / "logits.npy", tmp_path / "out")
    done = pseudocal("threshold", tmp_path / "out", "--max-error", "5%")
    content = rule(tmp_path / "out")
    assert (content["labels_needed"], content["possible_error"]) == (None, 0.2)
    assert "Next: allow more errors: --max-error 20%" in done.out
    again = pseudocal("threshold", tmp_path / "out", "--max-error", "20%")
    assert "Next: pseudocal label" in again.out
    np.save(tmp_path / "logits.npy", np.tile([[0.1, 0.0], [0.0, 0.1]], (600, 1)))
    collect_outputs(tmp_path / "logits.npy", tmp_path / "other")
    done = pseudocal("threshold", tmp_path / "other", "--max-error", "5%")
    assert "Next: improve the model" in done.out


def test_a_threshold_that_new_labels_remove_is_named(pseudocal, out, truth, tmp_path):
    assert pseudocal("label", out, "-n", 50).code == 0
    labels = fill_in(out / LABEL_TABLE, truth, tmp_path / "labels.csv")
    assert pseudocal("threshold", out, "--max-error", "5%").code == 0
    done = pseudocal("refine", out, labels)
    assert done.code == 0, done.err
    said = "find it again with pseudocal threshold, which comes last"
    assert f"warning: removed {out / 'threshold.json'}: {said}\n" in done.err
    assert not (out / "threshold.json").exists()
    assert "warning: removed" not in pseudocal("refine", out, labels).err
