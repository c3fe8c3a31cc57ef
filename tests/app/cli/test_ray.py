"""`calibrate --ray`: what the command says without a cluster, and predictions as files of parts."""

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
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.distributed import LocalExecutor, addresses


def parts(folder):
    import pyarrow.parquet as pq

    tables = [
        pq.read_table(path).to_pydict() for path in sorted((folder / "predictions").glob("part-*"))
    ]
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


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
    assert parts(there)["file"] == [str(i) for i in range(400)]
    assert {p.name for p in there.iterdir()} == {
        "calibration.json",
        "job.toml",
        "logits.npy",
        "model.onnx",
        "predictions",
        "probe.npy",
        "report.html",
        "report.json",
        "run.json",
    }
    assert [p.name for p in (there / "predictions").glob("kept-*")] == []
    assert pseudocal("calibrate", tabular["onnx"], features, "-o", there).code == 0
    assert not (there / "predictions").exists()  # an ordinary run replaces them with one file


def test_answers_do_the_same_as_in_one_process(ray, pseudocal, tabular, features, tmp_path):
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
    answers = tmp_path / "labels.csv"
    answers.write_text(
        "\n".join(["file,label", *(f"{name}{i % 3}" for i, name in enumerate(names))])
    )
    for out in (here, there):
        assert pseudocal("refine", out, answers).code == 0
    done = pseudocal(
        "calibrate", tabular["onnx"], features, "-o", both, *on_ray, "--labels", answers
    )
    assert done.code == 0, done.err
    for out in (there, both):
        assert temperature(out) == pytest.approx(temperature(here), rel=1e-4)
        assert "measured on 30 answers" in (out / "report.html").read_text()
        assert {p.name for p in out.iterdir()} - {"to-label.csv", "label.html"} == {
            p.name for p in here.iterdir()
        } - {
            "to-label.csv",
            "label.html",
        }
    folder = tmp_path / "rows"
    folder.mkdir()
    np.savez(folder / "0.npz", np.load(features))
    done = pseudocal(
        "calibrate", tabular["onnx"], folder, "-o", tmp_path / "no", *on_ray, "--labels", answers
    )
    assert (done.code, "expected no answers about files of rows" in done.err) == (3, True)


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
    assert len(parts(there)["file"]) == 60
    assert "day 0/zz.png" not in parts(there)["file"]
    unreadable = [
        json.loads((out / "report.json").read_text())["data"]["unreadable"] for out in (here, there)
    ]
    assert [name for name, _ in unreadable[1]] == ["day 0/zz.png"]
    assert unreadable[0] == unreadable[1]
    assert "1 inputs could not be read; the report lists them" in result.out
    assert "day 0/zz.png" in (there / "report.html").read_text()
    result = pseudocal(
        "calibrate", vision["onnx"], folder, "-o", tmp_path / "no", *options[:4], "--ray"
    )
    assert (
        result.code,
        "at most 1% of 61 inputs to be unreadable, got 1: day 0/zz.png" in result.err,
    ) == (3, True)
    assert not (tmp_path / "no").exists()


def test_files_of_rows_and_a_resumed_run(ray, pseudocal, tabular, tmp_path):
    folder, out, on_ray = tmp_path / "rows", tmp_path / "out", ("--ray", "--workers", 1)
    folder.mkdir()
    for i in range(6):
        np.savez(
            folder / f"{i}.npz", np.random.default_rng(i).normal(size=(120, 5)).astype(np.float32)
        )
    assert pseudocal("calibrate", tabular["onnx"], folder, "-o", out, *on_ray).code == 0
    first, before = parts(out), temperature(out)
    (out / "predictions" / "part-000002.parquet").unlink()
    (out / "predictions" / ".part-000002.1.aside.parquet").write_bytes(
        b"half"
    )  # of a worker that was killed
    stamps = {p: p.stat().st_mtime_ns for p in (out / "predictions").glob("part-*")}
    assert pseudocal("calibrate", tabular["onnx"], folder, "-o", out, *on_ray).code == 0
    assert (parts(out), temperature(out)) == (first, before)
    assert all(p.stat().st_mtime_ns == stamp for p, stamp in stamps.items())
    assert not list((out / "predictions").glob(".*"))
    (folder / "3.npz").write_bytes(b"broken")
    result = pseudocal("calibrate", tabular["onnx"], folder, "-o", out, *on_ray, "--max-bad", "20%")
    assert (result.code, len(parts(out)["file"])) == (0, 600)
    assert "3.npz" in (out / "report.html").read_text()
    assert "1 of 6 files were left out" in result.out
    assert "inputs could not be read" not in result.out
    result = pseudocal("calibrate", tabular["onnx"], folder, "-o", out, *on_ray)
    assert (result.code, "at most 1% of 6 blocks to fail" in result.err) == (3, True)


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
    assert parts(there)["file"][0].startswith("file://")


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
    for option in (["--format", "csv"], ["--ground-truth", "y.npy"]):
        result = pseudocal(
            "calibrate", tabular["onnx"], features, "-o", tmp_path / "out", "--ray", *option
        )
        assert (result.code, option[0] in result.err) == (3, True)
