"""Tasks of segmentation: U-Nets of a few steps on images of two halves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from torch import nn

from pseudocal import Calibration
from pseudocal.app.cli import main
from pseudocal.arrays import InputError
from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.executors import Pool, Ray
from pseudocal.lab.bench.published import published
from pseudocal.lab.bench.records import missing_scores, read_records
from pseudocal.lab.bench.stages import calibrate as calibrate_stage
from pseudocal.lab.bench.stages import compare_calibrators, forget_stages
from pseudocal.lab.bench.stages import train as train_stage
from pseudocal.lab.bench.suite_file import parse_suite, read_suite
from pseudocal.lab.bench.tables import tables
from pseudocal.lab.data import scenes
from pseudocal.lab.segmentation import SegmenterRun, load_segmenter, train_segmenter
from pseudocal.lab.segmentation.comparison import (
    SEGMENTATION_CALIBRATORS,
    compare_ensemble,
    compare_on_scenes,
)

TINY = """
seeds = 2

[[tasks]]
data = "scenes"
source = "noto"
target = ["twemoji", "fluent"]
method = "source-only"
width = 4
iterations = 12
options = { batch = 4, pixels_per_image = 50, scenes = 20 }
"""

# networks of so few steps are not to be believed
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "tiny-scenes.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def suite(file):
    return read_suite(file)


@pytest.fixture(scope="module")
def counted():
    """How many there were to do of each kind."""
    return {}


@pytest.fixture(scope="module")
def done(suite, cache, counted, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("scenes"))
    assert (
        run(suite, store, progress=lambda what, finished, total: counted.update({what: total}))
        == []
    )
    return store


@pytest.fixture
def copy(done, tmp_path):
    shutil.copytree(done.out, tmp_path / "copy")
    return Store(tmp_path / "copy")


def changed(store, before):
    return {str(p.relative_to(store.out)) for p, t in written(store).items() if t != before.get(p)}


def written(store):
    return {path: path.stat().st_mtime_ns for path in store.out.rglob("*") if path.is_file()}


def test_scores_are_those_of_the_comparison(suite, done, cache, tmp_path):
    data = scenes("noto", "twemoji")
    models, target = [], data["twemoji"][:20]
    for seed in range(3):
        train, held_out = data["noto"].split(0.75, seed=seed)
        out = tmp_path / str(seed)
        run = SegmenterRun(out, seed=seed, iterations=12, batch=4)
        models.append((train_segmenter(train, run, settings={"width": 4}).load(), held_out))
    together = compare_ensemble([model for model, _ in models], target)
    for seed in range(2):
        task = next(task for task in suite.tasks if task.target == "twemoji" and task.seed == seed)
        cells = {
            cell.method: cell
            for cell in compare_on_scenes(*models[seed], target, pixels_per_image=50, seed=seed)
        }
        found = done.scores(task)
        assert set(found) == set(SEGMENTATION_CALIBRATORS)
        assert found.pop("ensemble") == {**together.scores, "temperature": None}
        assert found == {
            name: {**cell.scores, "temperature": cell.temperature} for name, cell in cells.items()
        }
        assert cells["none"].scores != cells["pseudocal"].scores


def test_targets_share_their_training(suite, done, counted):
    assert counted == {"features": 0, "models": 3, "calibrations": 4}
    assert len(list(done.out.rglob("model.safetensors"))) == 3
    twemoji, fluent = suite.tasks[:2]
    assert (
        twemoji.training
        == replace(fluent, options=(*fluent.options[:2], ("pixels_per_image", 9))).training
    )
    assert twemoji.training != replace(fluent, width=8).training


def test_what_is_there_is_not_done_again(suite, copy, done, content_of):
    before = written(copy)
    assert run(suite, copy) == []
    assert changed(copy, before) == {"suites/tiny-scenes.json"}
    (copy.folder(suite.tasks[0]) / "scores.json").unlink()
    assert run(suite, copy) == []
    assert {name.rpartition("/")[2] for name in changed(copy, before)} == {
        *("scores.json", "reliability.npz", "oracle.json", "times.json", "tiny-scenes.json"),
    }
    assert content_of(copy.out) == content_of(done.out)


@pytest.mark.parametrize(("stage", "trainings"), [("calibrate", 0), ("train", 3)])
def test_a_stage_can_be_done_again(suite, copy, done, content_of, monkeypatch, stage, trainings):
    calls = []
    monkeypatch.setattr(
        train_stage, "train_segmenter", lambda *a, **k: calls.append(1) or train_segmenter(*a, **k)
    )
    before = written(copy)
    assert run(suite, copy, redo=stage) == []
    assert len(calls) == trainings
    assert sum(name.endswith("pseudocal.json") for name in changed(copy, before)) == 4
    assert content_of(copy.out) == content_of(done.out)


@pytest.mark.slow
def test_a_killed_run_ends_as_if_undisturbed(file, suite, done, tmp_path, content_of):
    words = ["bench", "run", str(file), "--out", str(tmp_path), "--workers", "1", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "pseudocal", *words], env=os.environ)
    while process.poll() is None and len(list(tmp_path.glob("tasks/**/settings.json"))) < 2:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert run(suite, Store(tmp_path)) == []
    assert content_of(tmp_path) == content_of(done.out)


def test_what_a_kill_left_of_a_training_is_cleared_away(suite, copy, done, content_of):
    (copy.folder(suite.tasks[0].training) / "training").mkdir()
    assert run(suite, copy) == []
    assert content_of(copy.out) == content_of(done.out)


# as quick as it gets but for the start of processes; the executors themselves are tested elsewhere
@pytest.mark.slow
@pytest.mark.parametrize("executor", [Pool, Ray])
def test_other_executors_leave_the_same_files(suite, done, tmp_path, content_of, executor):
    with executor(workers=2) as workers:
        assert run(suite, Store(tmp_path), executor=workers) == []
    assert content_of(tmp_path) == content_of(done.out)


def test_an_ensemble_that_lacks_a_member_stops_nobody(suite, copy):
    task = suite.tasks[0]
    (copy.folder(task.members()[2].training) / "model.safetensors").unlink()
    forget_stages(task, copy, "calibrate")
    compare_calibrators(task, suite.calibrators, copy)
    assert set(copy.scores(task)) == set(SEGMENTATION_CALIBRATORS) - {"ensemble"}
    why = "InputError: expected all members of the ensemble, got no model of seed 2"
    assert missing_scores(suite, copy) == [f"noto->twemoji source-only seed 0: no Ensemble: {why}"]


def test_a_failed_training_is_recorded(suite, cache, tmp_path):
    bad = [
        replace(task, options=(("batch", 4), ("lr", 1e30), *task.options[2:]))
        for task in suite.tasks[:2]
    ]
    store, failing = (
        Store(tmp_path),
        replace(suite, tasks=tuple(bad), calibrators=("none", "pseudocal", "oracle")),
    )
    failures = run(failing, store)
    assert [failure.task for failure in failures] == bad
    note = store.error(bad[0])
    assert note["stage"] == "train"
    assert "expected a finite loss" in note["error"]


def test_tables_and_figures(file, done, tmp_path, capsys):
    assert main(["bench", "table", str(file), "--out", str(done.out)]) == 0
    said = capsys.readouterr().out
    for row in (
        "No calibration",
        "TempScal",
        "Ensemble",
        "PseudoCal",
        "Oracle",
        "Accuracy",
        "mIoU",
    ):
        assert f"| {row} | " in said
    assert said.startswith("| ECE, mean over targets, % | source-only | average |")
    assert main(["bench", "table", str(file), "--out", str(done.out), "--metric", "miou"]) == 0
    assert capsys.readouterr().out.startswith(
        "| mIoU, mean over targets, % | source-only | average |"
    )
    assert main(["bench", "figures", str(file), "--out", str(done.out), "--to", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tiny-scenes-reliability-source-only.svg", "tiny-scenes-temperatures.svg"}


@pytest.fixture
def streets(tmp_path):
    """Eight frames of each data set, below one folder."""
    rng = np.random.default_rng(0)
    frame, mask = "{}_000000_00000{}_leftImg8bit.png", "{}_000000_00000{}_gtFine_labelIds.png"
    for i in range(8):
        kinds = rng.integers(0, 3, (16, 32))
        pixels = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200]])[kinds] + rng.integers(
            0, 50, (16, 32, 3)
        )
        numbers = np.array([7, 8, 11])[kinds]
        city = (
            "cityscapes/leftImg8bit/val/ulm/" + frame.format("ulm", i),
            "cityscapes/gtFine/val/ulm/",
        )
        for path, pixel in (
            *((f"GTA5/images/{i}.png", pixels), (f"GTA5/labels/{i}.png", numbers)),
            *((city[0], pixels), (city[1] + mask.format("ulm", i), numbers)),
        ):
            file = tmp_path / "data" / "street-scenes" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixel.astype(np.uint8)).save(file)
    return tmp_path


def test_street_scenes_stand_beside_the_papers_numbers(streets):
    options = (("batch", 2), ("lr", 0.1), ("pixels_per_image", 50), ("scenes", 6), ("height", 16))
    whole = built_in("street-scenes", backbone="unet", width=4, iterations=4, options=options)
    suite = replace(
        whole, tasks=whole.tasks[:1], calibrators=("none", "tempscal", "pseudocal", "oracle")
    )
    store = Store(streets / "out", root=streets / "data")
    assert run(suite, store) == []
    (table,) = tables(suite, read_records(suite, store))
    cells = {name: row[0] for name, row in table.rows}
    assert cells["PseudoCal"].mean > 0
    assert cells["PseudoCal"].paper == published(suite.tasks, "ece")["pseudocal", suite.tasks[0]]
    missing = replace(suite, tasks=whole.tasks[1:])
    with pytest.raises(InputError, match=r"expected a folder synthia in .*, got GTA5, cityscapes"):
        run(missing, store)
    with pytest.raises(
        InputError, match="expected root, a folder with cityscapes, gta5, synthia in it, got None"
    ):
        run(suite, Store(streets / "other"))
    deep = replace(suite, tasks=built_in("street-scenes", weights=str(streets)).tasks[:1])
    with pytest.raises(
        InputError,
        match=r"such as torchvision's resnet101-63fe2227.pth, or a folder that has it, got",
    ):
        run(deep, store)


def test_a_backbone_for_classification_is_refused(cache, tmp_path, capsys):
    words = [
        "bench",
        "run",
        "scenes",
        "--backbone",
        "vit-b16",
        "--out",
        str(tmp_path),
        "--workers",
        "1",
    ]
    assert main(words) == 3
    assert (
        "expected a network among unet, segformer, deeplab, got 'vit-b16'"
        in capsys.readouterr().err
    )


def test_a_segmenter_is_fitted_at_full_size_on_request(cache, tmp_path, monkeypatch):
    """The U-Net's output has the size of its images; here it is halved, as DeepLab's is smaller."""
    whole = load_segmenter

    def halved(folder):
        return nn.Sequential(whole(folder), nn.AvgPool2d(2)).eval()

    monkeypatch.setattr(calibrate_stage, "load_segmenter", halved)
    task = {"data": "scenes", "source": "noto", "target": "fluent", "method": "source-only"}
    plain = {"batch": 4, "scenes": 6, "pixels_per_image": 500}
    suites = [
        parse_suite(
            {
                "calibrators": ["tempscal", "pseudocal", "oracle"],
                "tasks": [task | {"width": 8, "iterations": 60, "options": options}],
            },
            "scenes",
        )
        for options in (plain, plain | {"full_size": True})
    ]
    store = Store(tmp_path)
    for suite in suites:
        assert run(suite, store) == []
    one, other = (suite.tasks[0] for suite in suites)
    assert one.training == other.training
    assert one.folder != other.folder
    for name in ("tempscal", "pseudocal", "oracle"):
        rows = [
            Calibration.load(store.folder(each) / "calibrations" / f"{name}.json").temperature
            for each in (one, other)
        ]
        assert rows[0] != rows[1]
    wrong = task | {"options": {"full_size": 3}}
    with pytest.raises(InputError, match="expected full_size to be true or false, got 3"):
        parse_suite({"tasks": [wrong]}, "scenes")
