"""Collect, conclude and render: three steps over one folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.app import Run, calibrate, collect_outputs, conclude, label, refine, render
from pseudocal.app.run import COLLECTED
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.labels import LabelSample, rows_to_label

CLASSES = 4
MODELS = """
import numpy as np
weights = np.random.default_rng(0).normal(size=(5, 4))
def first(x): return 4 * x @ weights
def second(x): return 4 * x @ (weights + 0.2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models in a module, rows, and their true classes."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "steps_models.py").write_text(MODELS)
    rng = np.random.default_rng(1)
    np.save(folder / "x.npy", rng.normal(size=(1200, 5)))
    return folder


@pytest.fixture(scope="module")
def collected(folder: Path) -> Run:
    before = Path.cwd()
    os.chdir(folder)
    try:
        calibrate("steps_models:first", "x.npy", "out", second_opinion="steps_models:second")
    finally:
        os.chdir(before)
    return Run.open(folder / "out")


def test_assumed_preprocessing_is_at_best_caution(collected: Run) -> None:
    record = collected.record
    assumed = replace(record, data=replace(record.data, assumed=("mean", "std")))
    given = conclude(collected).trust
    found = conclude(Run(collected.folder, assumed)).trust
    assert given is not None
    assert found == given.doubted(Reason(ReasonCode.PREPROCESSING_ASSUMED))
    assert found.verdict == "caution"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def some_labels(run: Run, n: int) -> LabelSample:
    rows = rows_to_label(run.logits, n)
    labels = np.where(np.arange(n) % 4, run.logits[rows].argmax(axis=1), 0)
    return LabelSample(rows, labels)


def test_a_temperature_in_use_stays_unless_labels_speak_against_it(collected: Run) -> None:
    labels = some_labels(collected, 60)
    fitted = conclude(collected, labels)
    measured = fitted.measured
    assert measured is not None
    assert measured.verdict == "apply"
    assert measured.gap_after.value < 0  # the confidence is too low, so a smaller T is better
    better, worse = 0.9 * fitted.temperature, 1.1 * fitted.temperature
    assert measured.temperature.low < better < worse < measured.temperature.high
    kept = conclude(collected, labels, in_use=better)
    assert (kept.temperature, kept.verdict) == (better, "apply")
    assert kept.measured is not None
    assert measured.gap_after.value < kept.measured.gap_after.value < 0
    assert kept.measured.reasons[-1].code == ReasonCode.LABELS_KEEP_T
    for in_use in (worse, 10 * fitted.temperature, 1.0, fitted.temperature):
        assert conclude(collected, labels, in_use=in_use) == fitted


def test_a_run_has_the_logits_of_all_models(collected: Run, folder: Path) -> None:
    x = np.load(folder / "x.npy")
    weights = np.random.default_rng(0).normal(size=(5, CLASSES))
    np.testing.assert_allclose(collected.logits, 4 * x @ weights, atol=1e-5)
    (second,) = collected.second_logits
    np.testing.assert_allclose(second, 4 * x @ (weights + 0.2), atol=1e-5)


def test_to_conclude_is_a_pure_function_of_the_folder(collected: Run) -> None:
    before = contents(collected.folder)
    one = conclude(collected)
    other = conclude(Run.open(collected.folder))
    assert one == other == collected.calibration()
    assert contents(collected.folder) == before


def test_the_library_fits_the_same_temperature(collected: Run, folder: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(5, CLASSES))
    fitted = PseudoCal(pairing="batch").fit(
        lambda x: 4 * x @ weights,
        np.load(folder / "x.npy").astype(np.float32),
        second_opinion=lambda x: 4 * x @ (weights + 0.2),
    )
    assert fitted.temperature == pytest.approx(conclude(collected).temperature, rel=1e-6)
    assert fitted.verdict == conclude(collected).verdict


def test_evidence_comes_back_from_its_file_to_the_last_bit(collected: Run) -> None:
    once = collected.evidence()
    again = collected.record.method.empty_evidence()
    again.merge(once.pack())
    for name, array in once.pack().items():
        assert np.array_equal(array, again.pack()[name]), name


def test_rendering_again_gives_the_same_bytes(collected: Run, tmp_path: Path) -> None:
    render(collected, conclude(collected), tmp_path, out=Path("out"))
    written = contents(tmp_path)
    assert {"calibration.json", "report.html", "report.json"} <= set(written)
    stored = contents(collected.folder)
    assert [name for name in written if written[name] != stored[name]] == []


def test_labels_change_the_conclusion_and_not_the_run(collected: Run) -> None:
    before = contents(collected.folder)
    refined = conclude(collected, some_labels(collected, 40))
    assert refined.measured.labels == 40
    assert refined.temperature != conclude(collected).temperature
    assert contents(collected.folder) == before


def test_refining_twice_gives_the_same_bytes(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    out = tmp_path / "out"
    calibrate("steps_models:first", "x.npy", out)
    label(out, 30)
    run = Run.open(out)
    chosen = some_labels(run, 30)
    rows = "".join(
        f"{row},{label}\n" for row, label in zip(chosen.rows, chosen.labels, strict=True)
    )
    (tmp_path / "labels.csv").write_text("file,label\n" + rows)
    refine(out, tmp_path / "labels.csv")
    once = contents(out)
    refine(out, tmp_path / "labels.csv")
    assert contents(out) == once
    assert Run.open(out).calibration().measured.labels == 30


def test_saved_outputs_are_a_run(collected: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", collected.logits)
    out = collect_outputs(tmp_path / "z.npy", tmp_path / "out")
    run = Run.open(out)
    assert np.array_equal(run.logits, collected.logits)
    assert conclude(run).temperature == 1
    chosen = some_labels(run, 40)
    alone = replace(conclude(collected), estimates={}, method="none", trust=None)
    assert conclude(run, chosen).temperature == alone.refined(collected.logits, chosen).temperature


def test_a_passed_pairing_is_used(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    calibrate("steps_models:first", "x.npy", tmp_path, method=PseudoCal(pairing="anywhere"))
    assert Run.open(tmp_path).record.method.pairing == "anywhere"


@pytest.mark.parametrize("moment", range(8))
def test_a_killed_run_leaves_nothing_and_is_repeated(
    moment: int, folder: Path, tmp_path: Path, monkeypatch
) -> None:
    """Killed before its n-th rename, then run again: the same files."""
    monkeypatch.chdir(folder)
    calibrate("steps_models:first", "x.npy", tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    out = tmp_path / "out"
    child = os.fork()
    if child == 0:
        count = iter(range(10**6))
        original = os.replace

        def dying(*arguments):
            if next(count) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        os.replace = dying  # type: ignore[assignment]
        Path.replace = lambda self, target: dying(self, target)  # type: ignore[method-assign]
        calibrate("steps_models:first", "x.npy", out)
        os._exit(0)
    os.waitpid(child, 0)
    calibrate("steps_models:first", "x.npy", out)
    again = contents(out)
    assert set(again) == set(whole)
    same = ("calibration.json", "logits.npy", "evidence.npz", "predictions.parquet")
    assert [name for name in same if again[name] != whole[name]] == []


def test_every_file_of_a_run_is_listed(collected: Run) -> None:
    assert {"run.json", "logits.npy", "second-0.npy", "evidence.npz", "probe.npy"} <= {
        name for name in COLLECTED if (collected.folder / name).exists()
    }


def test_no_file_calls_back_into_one_above_it():
    """The path of one image through `calibrate`, as `benchmarks/files.py` traces it."""
    pytest.importorskip("onnxruntime")
    script = Path(__file__).parents[2] / "benchmarks" / "files.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "functions" in done.stdout
    assert "circle" not in done.stdout, done.stdout
