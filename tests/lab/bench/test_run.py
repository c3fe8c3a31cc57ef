from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pseudocal import PseudoCal
from pseudocal.calibrators import Calibration, ensemble
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.bench import Store, Suite, Task, run
from pseudocal.lab.bench.domains import domains_of
from pseudocal.lab.bench.executors import Pool, Ray
from pseudocal.lab.bench.heads import load_model
from pseudocal.lab.bench.records import gaps
from pseudocal.lab.bench.stages import calibrate_and_score
from pseudocal.lab.bench.store import alone
from pseudocal.lab.bench.views import backbone_of, partners
from pseudocal.scaling import TemperatureScaling
from pseudocal.synthesis import STRATEGIES

# the tiny networks of these tests say nearly one class
pytestmark = pytest.mark.filterwarnings("ignore::pseudocal.calibrators.trust.DistrustWarning")


def whole(task: Task, store: Store) -> Network:
    network = load_model(task, store)
    backbone = backbone_of(task.backbone, task.weights, task.seed) if task.frozen else network.backbone
    return Network(backbone, network.head).eval()


@pytest.mark.parametrize("number", [1, 2])  # a head on frozen features, and a network trained as a whole
def test_scores_are_those_of_the_whole_network_on_images(tiny, done, number):
    task = tiny.tasks[number]
    mixes: list[Any] = []
    images = domains_of(task, None)[1].inputs
    calibration = PseudoCal(seed=task.seed).fit(whole(task, done), images, watch=mixes.append)
    with np.load(done.folder(task) / "mixes" / "pseudocal.npz") as stored:
        np.testing.assert_allclose(stored["logits"], np.concatenate([m.logits for m in mixes]), atol=1e-4)
        np.testing.assert_array_equal(stored["labels"], np.concatenate([m.labels for m in mixes]))
        np.testing.assert_array_equal(partners(len(images), task.seed)[stored["first"]], stored["second"])
    assert done.scores(task)["pseudocal"]["temperature"] == pytest.approx(calibration.temperature, rel=1e-5)


@pytest.mark.parametrize(("name", "strategy"), [("cutmix", "CutMix"), ("lambda-0.8-soft", None)])
def test_other_syntheses_are_those_of_the_whole_network_too(tiny, done, name, strategy):
    task = tiny.tasks[1]
    settings: dict[str, Any] = {} if strategy else {"lam": 0.8, "labels": "soft"}
    chosen = STRATEGIES[strategy] if strategy else None
    images = domains_of(task, None)[1].inputs
    calibration = PseudoCal(seed=task.seed, **settings).fit(whole(task, done), images, strategy=chosen)
    assert done.scores(task)[name]["temperature"] == pytest.approx(calibration.temperature, rel=1e-5)


def test_an_ensemble_has_the_members_of_its_group(tiny, done):
    task = tiny.tasks[0]
    logits = [np.load(done.folder(member) / "target.npz")["logits"] for member in task.members()]
    assert len(logits) == 3
    assert not np.allclose(logits[0], logits[1])
    together = np.load(done.folder(task) / "calibrations" / "ensemble.npy")
    np.testing.assert_allclose(together, ensemble(logits))


def test_target_labels_lie_apart_and_only_scores_read_them(tiny, done, tmp_path):
    shutil.copytree(done.out, tmp_path / "copy")
    store, task = Store(tmp_path / "copy"), tiny.tasks[0]
    folder = store.folder(task)
    with np.load(folder / "target.npz") as outputs:
        assert set(outputs) == {"logits", "features", "flipped"}
    (folder / "target_labels.npy").unlink()
    shutil.rmtree(folder / "mixes")
    shutil.rmtree(folder / "calibrations")
    with pytest.raises(FileNotFoundError, match="target_labels"):
        calibrate_and_score(task, tiny.calibrators, store)
    before = done.folder(task) / "calibrations"
    assert {path.name for path in (folder / "calibrations").iterdir()} | {"oracle.json"} == {
        path.name for path in before.iterdir()
    }
    for path in (folder / "calibrations").iterdir():
        assert path.read_bytes() == (before / path.name).read_bytes()


def test_flipped_images_are_mirrored(tiny, done):
    task = tiny.tasks[1]
    images = domains_of(task, None)[1].inputs
    with torch.no_grad():
        logits = whole(task, done)(torch.from_numpy(images[:8, ..., ::-1].copy())).numpy()
    np.testing.assert_allclose(np.load(done.folder(task) / "target.npz")["flipped"][:8], logits, atol=1e-4)


@pytest.mark.parametrize("executor", [Pool, Ray])
def test_other_executors_leave_the_same_files(tiny, done, tmp_path, content_of, executor):
    suite = Suite("some", tiny.tasks[1:], ("none", "tempscal", "mc-dropout", "pseudocal", "oracle"))
    assert run(suite, Store(tmp_path / "here")) == []
    with executor(workers=2) as workers:
        assert run(suite, Store(tmp_path / "there"), executor=workers) == []
    assert content_of(tmp_path / "there") == content_of(tmp_path / "here")


def test_what_is_done_is_not_done_again(tiny, done):
    before = {path: path.stat().st_mtime_ns for path in done.out.rglob("*") if path.is_file()}
    counted = []
    assert run(tiny, done, progress=lambda what, finished, total: counted.append(total)) == []
    after = {path: path.stat().st_mtime_ns for path in done.out.rglob("*") if path.is_file()}
    assert set(counted) == {0}
    assert {path.name for path in after if after[path] != before.get(path)} == {"tiny.json"}


def test_a_stage_can_be_done_again(tiny, done, tmp_path, content_of):
    shutil.copytree(done.out, tmp_path / "copy")
    store = Store(tmp_path / "copy")
    path = store.folder(tiny.tasks[0]) / "calibrations" / "tempscal.json"
    Calibration("tempscal", TemperatureScaling(9.0)).save(path)
    trained = (store.folder(tiny.tasks[0]) / "train.json").stat().st_mtime_ns
    run(tiny, store)
    assert Calibration.load(path).temperature == 9.0
    run(tiny, store, redo="calibrate")
    assert content_of(store.out) == content_of(done.out)
    assert (store.folder(tiny.tasks[0]) / "train.json").stat().st_mtime_ns == trained


def test_a_failed_task_is_recorded_and_stops_nobody(tiny, cache, tmp_path):
    good = tiny.tasks[0]
    bad = replace(tiny.tasks[1], options=(("weight", float("inf")),))
    suite = Suite("broken", (bad, good), ("none", "pseudocal", "oracle"))
    failures = run(suite, Store(tmp_path))
    assert [failure.task for failure in failures] == [bad]
    assert "expected a finite loss" in failures[0].error
    note = json.loads((Store(tmp_path).folder(bad) / "error.json").read_text())
    assert note["stage"] == "train"
    assert set(Store(tmp_path).scores(good)) == {"none", "pseudocal", "oracle"}
    assert gaps(suite, Store(tmp_path)) == [f"optdigits->fonts mcc seed 0: {note['error']}"]


def test_calibrators_fail_one_by_one(tiny, cache, tmp_path):
    store = Store(tmp_path)
    task = replace(tiny.tasks[0], scenario="source-free", method="shot", iterations=4)
    suite = Suite("free", (task,), ("none", "tempscal", "pseudocal", "oracle"))
    assert run(suite, store) == []
    assert set(store.scores(task)) == {"none", "pseudocal", "oracle"}
    assert gaps(suite, store) == ["optdigits->fonts shot seed 0: no TempScal"]
    note = json.loads((store.folder(task) / "calibrations" / "tempscal.error.json").read_text())
    assert "expected source data" in note["error"]


def test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed(tiny_file, tiny, done, tmp_path, content_of):
    words = ["bench", "run", str(tiny_file), "--out", str(tmp_path), "--workers", "1", "--quiet"]
    for moment in ("training/run.json", "mixes/pseudocal.npz", "calibrations/tempscal.json"):
        process = subprocess.Popen([sys.executable, "-m", "pseudocal", *words], env=os.environ)
        while process.poll() is None and not list(tmp_path.glob(f"tasks/**/{moment}")):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not content_of(done.out).keys() <= content_of(tmp_path).keys()  # it was still at work
    assert run(tiny, Store(tmp_path)) == []
    assert content_of(tmp_path) == content_of(done.out)


def test_two_runs_take_turns_in_a_folder(tmp_path):
    seen = []

    def second():
        with alone(tmp_path):
            seen.append("second")

    with ThreadPoolExecutor(1) as other:
        with alone(tmp_path):
            waiting = other.submit(second)
            time.sleep(0.05)  # it would have come by now
            seen.append("first")
        waiting.result()
    assert seen == ["first", "second"]
