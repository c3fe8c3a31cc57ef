"""Calibrated probabilities of every row: in order, exactly once, whatever happens on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal
from pseudocal.app import model_file, predict_blocks, shards
from pseudocal.app.jobs.predictions import Parts, PartWork, spans
from pseudocal.calibrators import Calibration
from pseudocal.distributed import LocalExecutor, RayExecutor
from pseudocal.scaling import TemperatureScaling

from ...conftest import clusters, linear, npz_files

HALF = Calibration("pseudocal", TemperatureScaling(2.0))


def written(folder):
    import pyarrow.parquet as pq

    parts = sorted(Path(folder).glob("part-*.parquet"))
    tables = [pq.read_table(part).to_pydict() for part in parts]
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


def test_every_row_once_and_in_order(ray, model, tmp_path):
    x = clusters(1000)
    done = predict_blocks(
        HALF, model, spans(1000, 90), tmp_path, executor=RayExecutor(workers=2), source=x
    )
    table = written(tmp_path)
    assert done == {"files": 12, "rows_written": 1000, "skipped": {}}
    assert table["file"] == [str(i) for i in range(1000)]
    np.testing.assert_allclose(table["probabilities"], HALF.probabilities(model(x)), atol=1e-6)
    assert table["class"] == model(x).argmax(axis=1).tolist()
    np.testing.assert_allclose(
        table["confidence"], HALF.probabilities(model(x)).max(axis=1), atol=1e-6
    )


def test_a_worker_that_dies_after_writing_does_not_write_twice(ray, tmp_path):
    predict, mark = linear(), str(tmp_path / "killed")

    def fatal(x):
        if not os.path.exists(mark) and len(list(Path(tmp_path, "out").glob("part-*"))) == 3:
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return predict(x)

    x = clusters(800)
    predict_blocks(
        HALF, fatal, spans(800, 100), tmp_path / "out", executor=RayExecutor(workers=1), source=x
    )
    assert os.path.exists(mark)
    assert written(tmp_path / "out")["file"] == [str(i) for i in range(800)]


def test_a_resumed_run_does_what_is_left(model, tmp_path):
    (tmp_path / "in").mkdir()
    blocks = shards(npz_files(tmp_path / "in", 5))
    out = tmp_path / "out"
    predict_blocks(HALF, model, blocks, out, executor=LocalExecutor())
    first = written(out)
    stamps = {part.name: part.stat().st_mtime_ns for part in out.glob("part-*")}
    (out / "part-000003.parquet").unlink()
    again = predict_blocks(HALF, model, blocks, out, executor=LocalExecutor())
    assert again["rows_written"] == 150
    assert written(out) == first
    kept = {
        part.name for part in out.glob("part-*") if part.stat().st_mtime_ns == stamps[part.name]
    }
    assert kept == set(stamps) - {"part-000003.parquet"}
    assert [p.name for p in out.iterdir() if p.name.startswith(".")] == []


def test_another_calibration_or_other_blocks_start_over(model, tmp_path):
    x = clusters(200)
    predict_blocks(HALF, model, spans(200, 20), tmp_path, executor=LocalExecutor(), source=x)
    fitted = PseudoCal().fit(model, x)
    predict_blocks(fitted, model, spans(200, 100), tmp_path, executor=LocalExecutor(), source=x)
    table = written(tmp_path)
    assert len(table["file"]) == 200
    np.testing.assert_allclose(table["probabilities"], fitted.probabilities(model(x)), atol=1e-6)


def test_blocks_that_fail_are_skipped_and_foreign_folders_alone(model, tmp_path):
    paths = npz_files(tmp_path, 10)
    paths[3].write_bytes(b"not a zip")
    done = predict_blocks(
        HALF, model, shards(paths), tmp_path / "out", executor=LocalExecutor(max_bad=0.1)
    )
    assert list(done["skipped"]) == [str(paths[3])]
    assert done["files"] == 9
    (tmp_path / "part-000000.parquet").touch()
    with pytest.raises(InputError, match="expected an empty folder"):
        predict_blocks(HALF, model, shards(paths), tmp_path, executor=LocalExecutor())


def test_an_array_is_all_rows_and_nothing_else_is(model, tmp_path):
    x = clusters(300)
    done = predict_blocks(HALF, model, x, tmp_path / "out", executor=LocalExecutor())
    assert (done["rows_written"], written(tmp_path / "out")["file"]) == (
        300,
        [str(i) for i in range(300)],
    )
    for wrong in ("x.npy", [], [x]):
        with pytest.raises(InputError, match="expected an array, or a list of blocks"):
            predict_blocks(HALF, model, wrong, tmp_path / "none", executor=LocalExecutor())
    assert not (tmp_path / "none").exists()


def test_what_fails_at_once_leaves_nothing_behind(tmp_path):
    def broken(x):
        raise RuntimeError("no")

    with pytest.raises(InputError, match="RuntimeError: no"):
        predict_blocks(
            HALF, broken, clusters(300), tmp_path / "new" / "out", executor=LocalExecutor()
        )
    assert list(tmp_path.iterdir()) == []


def test_images_are_one_row_each(tmp_path):
    z = np.random.default_rng(0).normal(size=(5, 3, 4, 6))
    work = PartWork(HALF, lambda x: x, tmp_path, z, batch_size=2, classes=("a", "b", "c"))
    assert list(Parts(work, spans(5), LocalExecutor()).steps()) == [1]
    table = written(tmp_path)
    assert len(table["file"]) == 5
    np.testing.assert_allclose(
        table["confidence_after"], HALF.probabilities(z).max(axis=1).mean(axis=(1, 2)), rtol=1e-5
    )
    np.testing.assert_allclose(
        np.array(table["fractions"])[:, 0], (z.argmax(axis=1) == 0).mean(axis=(1, 2)), rtol=1e-5
    )
    assert table["class_name"] == [("a", "b", "c")[i] for i in table["class"]]


def test_a_named_model_of_one_logit(tmp_path, monkeypatch):
    (tmp_path / "one_logit.py").write_text("def predict(x):\n    return 4 * x[:, :1]\n")
    monkeypatch.chdir(tmp_path)
    x = clusters(600)
    named = PseudoCal().fit(
        model_file("one_logit:predict", binary=True), x, executor=LocalExecutor()
    )
    assert named.scaling == PseudoCal(binary=True).fit(lambda x: 4 * x[:, :1], x).scaling
    out = tmp_path / "out"
    model = model_file("one_logit:predict", binary=True)
    predict_blocks(named, model, spans(600), out, executor=LocalExecutor(), source=x)
    second = 1 / (1 + np.exp(-4 * x[:, 0] / named.temperature))
    np.testing.assert_allclose(np.array(written(out)["probabilities"])[:, 1], second, atol=1e-6)
