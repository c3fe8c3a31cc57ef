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
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling
from pseudocal.lab.bench import Store, Suite, run
from pseudocal.lab.bench.executors import Pool, Ray
from pseudocal.lab.bench.records import missing_scores, read_records
from pseudocal.lab.bench.store import alone

# the tiny networks of these tests say nearly one class
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


@pytest.mark.parametrize("executor", [pytest.param(Pool, marks=pytest.mark.slow), Ray])
def test_other_executors_leave_the_same_files(ray, tiny, done, tmp_path, content_of, executor):
    suite = Suite("some", tiny.tasks[1:], ("none", "tempscal", "mc-dropout", "pseudocal", "oracle"))
    assert run(suite, Store(tmp_path / "here")) == []
    with executor(workers=2) as workers:
        assert run(suite, Store(tmp_path / "there"), executor=workers) == []
    assert content_of(tmp_path / "there") == content_of(tmp_path / "here")


def test_the_log_of_a_training_is_kept(tiny, done):
    for task in tiny.tasks:
        lines = (done.folder(task) / "train.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        assert (last["stage"], last["step"]) == (task.method, task.iterations)
    pytest.importorskip("tensorboard")
    assert list((done.folder(tiny.tasks[0]) / "tensorboard").iterdir())


def test_what_is_done_is_not_done_again(tiny, done):
    before = {path: path.stat().st_mtime_ns for path in done.out.rglob("*") if path.is_file()}
    counted = []
    assert run(tiny, done, progress=lambda what, finished, total: counted.append(total)) == []
    after = {path: path.stat().st_mtime_ns for path in done.out.rglob("*") if path.is_file()}
    assert set(counted) == {0}
    assert {path.name for path in after if after[path] != before.get(path)} == {"tiny.json"}


def test_what_a_killed_run_left_aside_is_removed_from_finished_tasks_too(
    tiny, done, tmp_path, content_of
):
    shutil.copytree(done.out, tmp_path / "copy")
    store = Store(tmp_path / "copy")
    for folder in (store.folder(tiny.tasks[0]) / "mixup", store.out / "suites"):
        (folder / ".half.1.aside.json").write_text("{")
    assert run(tiny, store) == []
    assert {path.name for path in store.out.rglob(".*")} == {".lock"}
    assert content_of(store.out) == content_of(done.out)


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


def test_models_of_a_store_from_before_are_used(tiny, done, tmp_path, content_of):
    """Stores once had logits of mirrored images too, and no reliability of classifiers."""
    shutil.copytree(done.out, tmp_path / "copy")
    store, folder = Store(tmp_path / "copy"), Store(tmp_path / "copy").folder(tiny.tasks[0])
    with np.load(folder / "target.npz") as file:
        outputs = dict(file)
    np.savez(folder / "target.npz", **outputs, flipped=outputs["logits"])
    (folder / "reliability.npz").unlink()
    before = {
        path: path.stat().st_mtime_ns for path in store.out.rglob("*.[sn]*") if path.is_file()
    }
    assert run(tiny, store) == []
    assert {
        path.name for path, time_of in before.items() if path.stat().st_mtime_ns != time_of
    } <= {"reliability.npz"}
    left, right = content_of(store.out), content_of(done.out)
    assert {name for name in right if left[name] != right[name]} == {
        str((folder / "target.npz").relative_to(store.out))
    }


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
    assert missing_scores(suite, Store(tmp_path)) == [
        f"optdigits->fonts mcc seed 0: {note['error']}"
    ]


def test_calibrators_fail_one_by_one(tiny, cache, tmp_path):
    store = Store(tmp_path)
    task = replace(tiny.tasks[0], scenario="source-free", method="dine", iterations=4)
    suite = Suite("free", (task,), ("none", "tempscal", "pseudocal", "oracle"))
    assert run(suite, store) == []
    assert set(store.scores(task)) == {"none", "pseudocal", "oracle"}
    why = "InputError: expected source data, got dine, source-free, which has none"
    assert missing_scores(suite, store) == [f"optdigits->fonts dine seed 0: no TempScal: {why}"]


def test_after_shot_source_rows_are_predicted_if_a_calibrator_asks(tiny, cache, tmp_path):
    store = Store(tmp_path)
    task = replace(tiny.tasks[0], scenario="source-free", method="shot", iterations=4)
    assert run(Suite("free", (task,), ("none", "pseudocal, lam=0.7", "oracle")), store) == []
    assert not list(store.folder(task).glob("source*"))
    suite = Suite(
        "appendix", (task,), ("none", "tempscal", "transcal", "pseudocal, lam=0.7", "oracle")
    )
    assert run(suite, store) == []
    assert set(store.scores(task)) == set(suite.calibrators)
    assert {path.name for path in store.folder(task).glob("source*")} == {
        "source_val.npz",
        "source_train.npz",
    }
    assert {
        record.calibrator for record in read_records(suite, store) if record.seconds is not None
    } == {
        *("none", "tempscal", "transcal", "pseudocal, lam=0.7", "oracle"),
    }


def is_written(store: Path, name: str) -> bool:
    """Whether a file is in the folder of a task, while a run writes and removes folders."""
    try:
        return any(store.glob(f"tasks/**/{name}"))
    except FileNotFoundError:  # a folder was removed while it was searched
        return False


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed(
    tiny_file, tiny, done, tmp_path, content_of
):
    words = ["bench", "run", str(tiny_file), "--out", str(tmp_path), "--workers", "1", "--quiet"]
    for moment in (
        "training/run.json",
        "mixup/pseudocal.npz",
        "calibrations/tempscal.json",
    ):
        with subprocess.Popen(
            [sys.executable, "-m", "pseudocal", *words], env=os.environ
        ) as running:
            while running.poll() is None and not is_written(tmp_path, moment):
                time.sleep(0.002)
            running.send_signal(signal.SIGKILL)
        assert (
            not content_of(done.out).keys() <= content_of(tmp_path).keys()
        )  # it was still at work
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


def test_every_blas_is_limited_before_the_first_task() -> None:
    code = """
import numpy
from threadpoolctl import threadpool_info
from pseudocal.lab.bench.grid import limited

with limited(1):
    import scipy.linalg  # a calibrator may be the first to use it

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert len(pools) >= 2
    print([pool["num_threads"] for pool in pools])
"""
    environment = {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}
    environment["OPENBLAS_NUM_THREADS"] = "2"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    assert set(json.loads(done.stdout)) == {1}
