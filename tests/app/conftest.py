"""A browser, a model that counts what it is asked, and the command as a function or a child."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _pytest.runner import runtestprotocol

import pseudocal
from pseudocal.app.cli import main

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
REQUIRED = (
    os.environ.get("PSEUDOCAL_BROWSER") == "required"
)  # as .ci/run says: there nothing is skipped


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None and not REQUIRED:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    assert CHROMIUM, "expected a chromium, got none on the PATH"
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


SOURCE = str(Path(pseudocal.__file__).parents[1])
CHILD = os.environ | {"PYTHONPATH": SOURCE}
WRITTEN = {
    "evidence.npz",
    "job.toml",
    "logits.npy",
    "probe.npy",
    "run.json",
    "calibration.json",
    "predictions.csv",
    "report.html",
    "report.json",
}


def rows(size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(size, 5)).astype(np.float32)


@pytest.fixture
def features(tmp_path) -> Path:
    np.save(tmp_path / "x.npy", rows(400))
    return tmp_path / "x.npy"


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """A model, `staging_model:predict`, and how many inputs it was asked about, call by call."""
    seen: list[int] = []
    weights = np.random.default_rng(1).normal(size=(5, 3))

    def predict(x):
        seen.append(len(x))
        return 3 * x @ weights

    holder = ModuleType("staging_model")
    holder.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "staging_model", holder)
    return seen


@pytest.fixture
def calibrate(passes, features, capsys):
    def run(out: Path, *more: object, data: Path = features) -> tuple[int, str]:
        words = [
            "calibrate",
            "staging_model:predict",
            data,
            "-o",
            out,
            "-q",
            "--format",
            "csv",
            *more,
        ]
        code = main([str(word) for word in words])
        return code, capsys.readouterr().err

    return run


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def seed_of(out: Path) -> tuple[int, int]:
    """The seeds of the runs that wrote calibration.json and report.json."""
    calibration, report = (
        json.loads((out / name).read_text()) for name in ("calibration.json", "report.json")
    )
    return calibration["settings"]["seed"], report["settings"]["seed"]


def in_child(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pseudocal", *words]
    return subprocess.run(command, env=CHILD, capture_output=True, text=True, **more)


BROWSER_TRIES = 3  # on a busy machine headless Chromium may lose what a page has just stored


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test that uses the browser again if it fails, at most twice."""
    if "browser" not in getattr(item, "fixturenames", ()):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(BROWSER_TRIES)):
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if left == 0 or not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
