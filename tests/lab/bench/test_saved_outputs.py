"""`pseudocal bench compare`: somebody's saved outputs."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pseudocal.app.cli import main
from pseudocal.arrays import InputError
from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.bench import Store, run
from pseudocal.lab.bench.saved_outputs import compare_outputs, read_outputs
from pseudocal.lab.bench.store import load_arrays

NAMES = (
    "none",
    "vectorscal-released",
    "vectorscal",
    "tempscal",
    "cpcs-released",
    "transcal",
    "pseudocal",
    "oracle",
)


@pytest.fixture(scope="module")
def task_folder(tiny, done, tmp_path_factory):
    """The folder of a task that `bench run` has scored."""
    task = tiny.tasks[0]
    store = Store(shutil.copytree(done.out, tmp_path_factory.mktemp("store") / "copy"))
    names = (*NAMES, "oracle-released")
    suite = replace(tiny, name="baselines", tasks=(task,), calibrators=names)
    assert run(suite, store) == []
    return store.folder(task), store.scores(task)


def test_scores_are_those_of_a_run(task_folder):
    folder, scores = task_folder
    found = {each.calibrator: each for each in compare_outputs(folder)}
    assert {*NAMES, "oracle-released"} <= found.keys()
    assert "ensemble" not in found  # nor anything else that needs a model
    for name in NAMES:
        mine = {**found[name].metrics, "temperature": found[name].temperature}
        assert mine == {
            key: value
            for key, value in scores[name].items()
            if key not in ("correspondence", "chance", "resolution")
        }


def test_the_released_codes_files_give_the_same(task_folder, tmp_path, capsys):
    folder, scores = task_folder
    sets = {
        "src_train": "source_train",
        "src_val": "source_val",
        "tgt": "target",
        "mix": "mixup/pseudocal",
    }
    kinds = {"features": "feature", "logits": "output", "labels": "label"}
    for ours, theirs in sets.items():
        for name, array in load_arrays(folder / f"{theirs}.npz").items():
            if name in kinds:
                np.save(tmp_path / f"{ours}_{kinds[name]}.npy", array)
    labels = np.load(folder / "target_labels.npy").astype(
        np.float64
    )  # as the released code saves them
    np.savez(tmp_path / "tgt_label.npz", labels)
    assert main(["bench", "compare", str(tmp_path), "--format", "csv"]) == 0
    rows = {row["calibrator"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert float(rows["transcal"]["ece"]) == scores["transcal"]["ece"]
    assert float(rows["pseudocal"]["temperature"]) == scores["pseudocal"]["temperature"]
    assert main(["bench", "compare", str(tmp_path)]) == 0
    assert "| TempScal |" in capsys.readouterr().out


def test_the_target_alone_has_the_oracles_and_a_constant(tmp_path):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(200, 4))
    np.savez(
        tmp_path / "tgt.npz",
        output=logits,
        label=(logits + rng.gumbel(size=logits.shape)).argmax(axis=1),
    )
    assert [each.calibrator for each in compare_outputs(tmp_path)] == [
        "none",
        "constant",
        "oracle-released",
        "oracle",
    ]


def test_a_plugin_may_return_logits_and_another_fail(tmp_path, capsys):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from pseudocal.lab.plugins import calibrator\n"
        "@calibrator('halved', title='Halved')\n"
        "def halved(target_logits): return target_logits / 2\n"
        "@calibrator('number', title='Number')\n"
        "def number(target_logits): return 1.7\n"
        "@calibrator('broken', title='Broken')\n"
        "def broken(target_logits): return target_logits[0, 99]\n"
    )
    logits = 3 * np.random.default_rng(0).normal(size=(200, 4))
    np.savez(tmp_path / "tgt.npz", output=logits, label=logits.argmax(axis=1))
    command = ["bench", "compare", str(tmp_path), "--plugin", str(plugin), "--format", "csv"]
    names = ("constant", "halved", "number", "broken")
    for name in names:
        command += ["--calibrator", name]
    try:
        assert main(command) == 6
    finally:
        for name in names[1:]:
            CALIBRATORS.pop(name, None)
    said = capsys.readouterr()
    rows = {row["calibrator"]: row for row in csv.DictReader(io.StringIO(said.out))}
    assert rows["halved"]["ece"] == rows["constant"]["ece"] != ""
    assert "Number: expected a Calibration or logits of shape (n, classes)" in said.err
    assert "Broken: IndexError" in said.err
    assert "lacks their inputs" not in said.err


def test_plugins_are_compared_by_default(registries, tmp_path, capsys):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from pseudocal.lab.plugins import calibrator\n"
        "@calibrator('saved-halved', title='Halved')\n"
        "def halved(target_logits): return target_logits / 2\n"
        "@calibrator('saved-whole', title='Whole')\n"
        "def whole(model, target_inputs): return target_inputs\n"
    )
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(200, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.savez(tmp_path / "tgt.npz", output=logits, label=labels)
    assert main(["bench", "compare", str(tmp_path), "--plugin", str(plugin)]) == 0
    said = capsys.readouterr()
    rows = {line.split("|")[1].strip(): line for line in said.out.splitlines()}
    assert rows["Halved"].split("|")[2:6] == rows["Constant, T = 2"].split("|")[2:6]
    assert "lacks their inputs: " in said.err
    assert said.err.splitlines()[0].endswith(", Whole")


@pytest.mark.filterwarnings("ignore::pseudocal.scaling.linear.UnfinishedFitWarning")
def test_a_baseline_that_fails_leaves_the_others(tmp_path, capsys):
    rng = np.random.default_rng(11)
    for rows, n in (
        ("src_train", 60),
        ("src_val", 40),
        ("tgt", 50),
    ):  # noise: no temperature is right
        labels, logits, features = (
            rng.integers(0, 3, n),
            300 * rng.normal(size=(n, 3)),
            rng.normal(size=(n, 5)),
        )
        np.savez(tmp_path / f"{rows}.npz", label=labels, output=logits, feature=features)
    failed = [each for each in compare_outputs(tmp_path) if each.error]
    assert failed
    assert all("released" in each.calibrator and not each.metrics for each in failed)
    assert main(["bench", "compare", str(tmp_path)]) == 6
    said = capsys.readouterr()
    assert "| TempScal |" in said.out
    assert "as released: expected the released search to stay positive" in said.err
    assert "MC-Dropout, " in said.err
    assert "PseudoCal needs mix_output and mix_label" in said.err
    assert main(["bench", "compare", str(tmp_path), "--format", "csv"]) == 6


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "expected tgt_output, outputs of the target, in .*, got none"),
        (
            {"tgt_output": np.zeros((3, 2))},
            "expected tgt_label, labels of the target, in .*, got none",
        ),
        (
            {"tgt_output": np.zeros((3, 2)), "tgt_label": np.zeros(2)},
            "as many rows in all arrays of tgt, got 3 of tgt_",
        ),
        (
            {"tgt_output": np.zeros(3)},
            r"expected numbers of shape \(n, columns\) in .*, got float64 of shape \(3,\)",
        ),
        (
            {"tgt_output": np.full((3, 2), 0.5)},
            "expected logits in .*tgt_output.npy, got probabilities",
        ),
        ({"tgt_label": np.array([0.5])}, "expected whole numbers as labels in .*, got 0.5"),
        ({"tgt_label": np.array(["a"])}, r"expected numbers of shape \(n,\) in"),
    ],
)
def test_mistakes_are_named(tmp_path, files, message):
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(InputError, match=message):
        compare_outputs(tmp_path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match="expected a folder of saved outputs, got"):
        read_outputs(tmp_path / "none")
    (tmp_path / "tgt_output.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match="expected arrays of numbers, got"):
        read_outputs(tmp_path)
