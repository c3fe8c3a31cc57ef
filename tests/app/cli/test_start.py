"""The command spends its time on the model.

What else there is to do waits until the model is at work.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pseudocal
from pseudocal.app.cli import command
from pseudocal.app.report.page import templates, warm_up


def test_a_missing_package_is_left_to_whoever_needs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    templates.cache_clear()
    warm_up()
    with pytest.raises(ImportError, match=r"pseudocal\[report\]"):
        templates()


def test_the_command_starts_without_what_it_needs_later_or_never():
    later = (
        "pseudocal.lab.adapt",
        "pseudocal.lab.bench",
        "pseudocal.lab.data",
        "pseudocal.distributed",
        "jinja2",
        "onnx",
        "PIL",
        "pyarrow",
        "rich",
        "scipy.special",
        "torch",
    )
    code = f"import sys, pseudocal.app.cli; print([m for m in {later!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_ends_with_the_code_of_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["pseudocal", "report", str(tmp_path)])
    try:
        assert command() == 3
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert "report.json" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["msgspec", "tomli_w", "typer"])
def test_without_its_extra_the_command_names_it_in_one_line(missing, tmp_path):
    code = f"import sys; sys.modules[{missing!r}] = None; {AS_A_SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    expected = (
        f"pseudocal: expected the package {missing}, got none: pip install 'pseudocal[cli]'\n"
    )
    assert (done.returncode, done.stderr, done.stdout) == (5, expected, "")


INTERRUPTED = """
import os, signal, sys

moment = sys.argv[1]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["calibrate", "model.onnx", "x.npy", "-o", "out"]
"""
AS_A_SCRIPT = """
from pseudocal_command import command

sys.exit(command())
"""
AS_A_MODULE = """
import runpy

runpy.run_module("pseudocal", run_name="__main__", alter_sys=True)
"""
FIRST, LATER = ("numpy", "scipy", "pseudocal.scaling"), ("pseudocal.app.cli", "typer")


@pytest.mark.parametrize(
    ("start", "module"),
    [
        *((AS_A_SCRIPT, module) for module in (*FIRST, *LATER)),
        *((AS_A_MODULE, module) for module in LATER),
    ],
    ids=lambda value: {AS_A_SCRIPT: "script", AS_A_MODULE: "python -m"}.get(value, value),
)
def test_ctrl_c_during_imports_is_one_line(start, module, tmp_path):
    """With `python -m`, Python imports the package and all it needs before any line of ours is run."""
    words = [sys.executable, "-c", INTERRUPTED + start, module]
    environment = os.environ | {"PYTHONPATH": str(Path(pseudocal.__file__).parents[1])}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (130, "pseudocal: interrupted\n", "")
    assert os.listdir(tmp_path) == []
