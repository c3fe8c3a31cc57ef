"""`calibrate --ray`: what the command says without a cluster, and runs that go on where they stopped."""

from __future__ import annotations

import json
import shutil
import socket
import warnings
from pathlib import Path

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.app import model_file, shards
from pseudocal.calibrators.executors import block_order
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.distributed import LocalExecutor, addresses


def predictions(folder):
    import pyarrow.parquet as pq

    return pq.read_table(folder / "predictions.parquet").to_pydict()


def temperature(folder):
    return json.loads((folder / "calibration.json").read_text())["scaling"]["temperature"]


def test_rows_of_an_array(ray, pseudocal, tabular, features, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", here).code == 0
    result = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", there, "--ray", "--workers", 2, "--json"
    )
    assert result.code == 0, result.err
    assert temperature(there) == pytest.approx(temperature(here), rel=1e-6)
    assert json.loads(result.out)["used"] == 400
    assert predictions(there)["file"] == [str(i) for i in range(400)]
    assert {p.name for p in there.iterdir()} == {
        "calibration.json",
        "job.toml",
        "logits.npy",
        "unconfirmed-model.onnx",
        "evidence.npz",
        "predictions.parquet",
        "probe.npy",
        "report.html",
        "report.json",
        "run.json",
    }


def test_labels_do_the_same_as_in_one_process(ray, pseudocal, tabular, features, tmp_path):
    here, there, both = tmp_path / "here", tmp_path / "there", tmp_path / "both"
    on_ray = ("--ray", "--workers", 1)
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", here).code == 0
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", there, *on_ray).code == 0
    np.testing.assert_allclose(
        np.load(there / "logits.npy"), np.load(here / "logits.npy"), rtol=1e-5, atol=1e-5
    )
    for out in (here, there):
        assert pseudocal("label", out, "-n", 30).code == 0
    assert (there / "to-label.csv").read_text() == (here / "to-label.csv").read_text()
    names = (here / "to-label.csv").read_text().split()[1:]
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "\n".join(["file,label", *(f"{name}{i % 3}" for i, name in enumerate(names))])
    )
    for out in (here, there):
        assert pseudocal("refine", out, labels).code == 0
    done = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", both, *on_ray, "--labels", labels
    )
    assert done.code == 0, done.err
    for out in (there, both):
        assert temperature(out) == pytest.approx(temperature(here), rel=1e-4)
        assert json.loads((out / "report.json").read_text())["labels"]["labels"] == 30
        assert {p.name for p in out.iterdir()} - {"to-label.csv", "label.html"} == {
            p.name for p in here.iterdir()
        } - {"to-label.csv", "label.html"}
    folder = tmp_path / "rows"
    folder.mkdir()
    np.savez(folder / "0.npz", np.load(features))
    done = pseudocal(
        "calibrate", tabular["onnx"], folder, "-o", tmp_path / "no", *on_ray, "--labels", labels
    )
    assert (done.code, "files of rows cannot be labelled" in done.err) == (3, True)


def test_images_one_of_them_broken(ray, pseudocal, vision, image_files, tmp_path):
    folder = tmp_path / "images"
    shutil.copytree(image_files, folder)
    (folder / "day 0" / "zz.png").write_bytes(b"no image")
    options = ("--mean", "0.5", "--std", "0.25", "--max-bad", "5%")
    here, there = tmp_path / "here", tmp_path / "there"
    assert pseudocal("calibrate", vision["onnx"], folder, "-o", here, *options).code == 0
    result = pseudocal(
        "calibrate", vision["onnx"], folder, "-o", there, *options, "--ray", "local", "--workers", 1
    )
    assert result.code == 0, result.err
    assert temperature(there) == pytest.approx(
        temperature(here), rel=1e-6
    )  # one batch: the same pairs
    assert len(predictions(there)["file"]) == 60
    assert "day 0/zz.png" not in predictions(there)["file"]
    unreadable = [
        json.loads((out / "report.json").read_text())["data"]["unreadable"] for out in (here, there)
    ]
    assert [name for name, _ in unreadable[1]] == ["day 0/zz.png"]
    assert unreadable[0] == unreadable[1]
    assert "1 input could not be read: " in result.out
    assert "day 0/zz.png" in (there / "report.html").read_text()
    out = tmp_path / "out"
    words = ("calibrate", vision["onnx"], folder, "-o", out, *options[:4], "--ray")
    for _ in range(2):  # the second run finds the block of the first
        result = pseudocal(*words)
        assert result.code == 3
        assert (
            "at most 1% of 61 inputs to be unreadable, got at least 1: day 0/zz.png" in result.err
        )
        assert [path.name for path in out.iterdir() if path.name[0] != "."] == ["parts"]
    assert pseudocal(*words, "--max-bad", "5%").code == 0
    assert json.loads((out / "report.json").read_text())["data"]["unreadable"] == unreadable[0]


def test_files_of_rows_and_a_resumed_run(ray, pseudocal, tabular, tmp_path):
    folder, out, on_ray = tmp_path / "rows", tmp_path / "out", ("--ray", "--workers", 1)
    folder.mkdir()
    for i in range(6):
        rows = np.random.default_rng(i).normal(size=(120, 5)).astype(np.float32)
        np.savez(folder / f"{i}.npz", rows)
    model = tmp_path / "model.onnx"
    shutil.copy(tabular["onnx"], model)
    words = ("calibrate", model, folder, "-o", out, *on_ray)
    assert pseudocal(*words).code == 0
    first, before = predictions(out), temperature(out)
    assert not (out / "parts").exists()
    last = folder / f"{block_order(PseudoCal().seed, 6)[-1]}.npz"
    whole = last.read_bytes()
    last.write_bytes(b"broken")
    result = pseudocal(*words)
    assert (result.code, "at most 1% of 6 blocks to fail" in result.err) == (3, True)
    (out / "parts" / "part-000002.npz").unlink()
    half = out / "parts" / ".part-000002.1.aside.npz"  # of a worker that was killed
    half.write_bytes(b"half")
    kept = sorted((out / "parts").glob("part-*"))
    assert [path.name for path in kept] == [f"part-{i:06d}.npz" for i in (0, 1, 3, 4)]
    stamps = [path.stat().st_mtime_ns for path in kept]
    assert pseudocal(*words).code == 3
    assert [path.stat().st_mtime_ns for path in kept] == stamps
    assert not half.exists()
    model.touch()  # another model, for all that is known
    assert pseudocal(*words).code == 3
    assert all(path.stat().st_mtime_ns != stamp for path, stamp in zip(kept, stamps, strict=True))
    result = pseudocal(*words, "--max-bad", "20%")
    assert (result.code, len(predictions(out)["file"])) == (0, 600)
    assert last.name in (out / "report.html").read_text()
    assert "1 of 6 files were skipped" in result.out
    assert "could not be read" not in result.out
    last.write_bytes(whole)
    assert pseudocal(*words).code == 0
    assert (predictions(out), temperature(out)) == (first, before)


@pytest.mark.slow
def test_images_far_away(ray, pseudocal, vision, image_files, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in sorted(p for p in Path(image_files).rglob("*") if p.is_file()):
        shutil.copy(path, flat)
    here, there = tmp_path / "here", tmp_path / "there"
    assert pseudocal("calibrate", vision["onnx"], flat, "-o", here).code == 0
    assert pseudocal("calibrate", vision["onnx"], f"file://{flat}", "-o", there, "--ray").code == 0
    assert temperature(there) == pytest.approx(temperature(here), rel=1e-6)
    assert predictions(there)["file"][0].startswith("file://")


def test_the_command_and_a_fit_on_the_same_files_agree(ray, pseudocal, tabular, tmp_path):
    folder, out = tmp_path / "rows", tmp_path / "out"
    folder.mkdir()
    for i in range(5):
        np.savez(
            folder / f"{i}.npz", np.random.default_rng(i).normal(size=(120, 5)).astype(np.float32)
        )
    options = ("--batch-size", 32, "--predict", "seen", "--ray", "--workers", 1)
    assert pseudocal("calibrate", tabular["onnx"], folder, "-o", out, *options).code == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableCalibrationWarning)
        found = PseudoCal().fit(
            model_file(tabular["onnx"]), shards(folder), batch_size=32, executor=LocalExecutor()
        )
    assert temperature(out) == found.temperature


def test_an_address_nobody_answers_at_is_said_at_once(
    monkeypatch, pseudocal, tabular, features, tmp_path
):
    library = pytest.importorskip("ray")
    monkeypatch.setattr(library, "is_initialized", lambda: False)
    monkeypatch.setattr(
        library, "init", lambda *args, **options: pytest.fail("Ray would wait for it")
    )
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "no-such-host.invalid:6379", "auto"):
        result = pseudocal(
            "calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--ray", address, "-q"
        )
        assert (result.code, len(result.err.splitlines())) == (3, 1)
        assert result.err.startswith("pseudocal: expected a Ray cluster at ")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(addresses, "CONNECTION_SECONDS", 0.2)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = pseudocal(
            "calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--ray", address, "-q"
        )
    assert (result.code, "got no reply: timed out" in result.err) == (3, True)
    result = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--ray=head", "-q"
    )
    assert (result.code, "host:6379" in result.err) == (3, True)


def test_a_cluster_answers(ray):
    addresses.check_address(ray.get_runtime_context().gcs_address)


def test_an_address_whose_package_is_missing(monkeypatch, pseudocal, tabular, tmp_path):
    registry = pytest.importorskip("fsspec.registry")
    absent = {"class": "no_such_package.FileSystem", "err": "Install no-such-package"}
    monkeypatch.setitem(registry.known_implementations, "nowhere", absent)
    for url, code, said in (
        (
            "nowhere://bucket/x",
            5,
            "expected the package for nowhere:// addresses, got none: Install no-such-package",
        ),
        ("unheardof://bucket/x", 3, "cannot be listed"),
    ):
        result = pseudocal("calibrate", tabular["onnx"], url, "-o", tmp_path / "out", "--ray", "-q")
        assert (result.code, len(result.err.splitlines())) == (code, 1)
        assert said in result.err


def test_what_only_workers_read_asks_for_them(pseudocal, tabular, tmp_path):
    np.savez(tmp_path / "a.npz", np.zeros((3, 5)))
    for data, what in (
        (tmp_path, r"files of rows (.npz)"),
        (tmp_path / "*.npz", "a pattern"),
        ("s3://b/x.npz", "an ad"),
    ):
        result = pseudocal("calibrate", tabular["onnx"], data, "-o", tmp_path / "out", "-q")
        assert (result.code, "; pass --ray local" in result.err, what in result.err) == (
            3,
            True,
            True,
        )
    assert "s3://" in pseudocal("calibrate", "--help").out


def test_what_a_cluster_cannot_do_is_said(pseudocal, tabular, features, tmp_path):
    options = ("--ray", "--ground-truth", "y.npy")
    result = pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "out", *options)
    assert (result.code, "--ground-truth" in result.err) == (3, True)
