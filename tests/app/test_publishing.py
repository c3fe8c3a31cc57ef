"""A run that is killed while it publishes is finished by whoever comes next.

One run at a time writes into a folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pseudocal.app.cli import main
from pseudocal.app.publishing import (
    DECIDED,
    MARKER,
    STAGED,
    _make_ours,
    finish_publishing,
    publishing,
)
from pseudocal.files import OutputError

from .conftest import CHILD, WRITTEN, in_child, names, seed_of

HIDDEN = {STAGED, DECIDED}

PUBLISHING = """
import os, signal, sys
from pathlib import Path

from pseudocal.app import publishing

out, moment, number = Path(sys.argv[1]), int(sys.argv[2]), getattr(signal, sys.argv[3])
done = 0

def counted(call):
    def and_kill(*arguments, **named):
        global done
        given = call(*arguments, **named)
        done += 1
        if done == moment:
            os.kill(os.getpid(), number)
        return given
    return and_kill

def interrupted(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, interrupted)
with publishing.publishing(out) as aside:
    os.replace, os.unlink, Path.rename = map(counted, (os.replace, os.unlink, Path.rename))
    for name in ("calibration.json", "report.html", "report.json", "predictions.csv"):
        (aside / name).write_text("new")
print(done)
"""


def publish(out: Path, moment: int, number: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PUBLISHING, str(out), str(moment), number]
    return subprocess.run(command, env=CHILD, capture_output=True, text=True)


@pytest.fixture
def published(tmp_path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    for name in (
        "calibration.json",
        "report.html",
        "report.json",
        "predictions.parquet",
        "model.onnx",
    ):
        (out / name).write_text("old")
    (out / "mine.txt").write_text("mine")
    return out


def texts(out: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in out.iterdir() if path.is_file()}


NEW = {"mine.txt": "mine"} | dict.fromkeys(
    ("calibration.json", "report.html", "report.json", "predictions.csv"), "new"
)


def test_publishing_moves_files_and_removes_those_of_the_run_before(published):
    moves = int(publish(published, 0, "SIGKILL").stdout)
    assert moves == 9  # the rename that decides, two old files, four new ones, the list, the marker
    assert texts(published) == NEW
    assert names(published) == set(NEW)


@pytest.mark.parametrize("moment", range(1, 10))
def test_a_run_that_is_killed_while_it_publishes_is_finished_by_the_next(published, moment):
    """After each rename and each removal."""
    assert publish(published, moment, "SIGKILL").returncode == -signal.SIGKILL
    assert names(published) & HIDDEN == {DECIDED}
    finish_publishing(published)
    assert texts(published) == NEW
    assert names(published) == set(NEW)


@pytest.mark.parametrize(
    ("moment", "number"), [(1, "SIGTERM"), (3, "SIGINT"), (5, "SIGTERM"), (8, "SIGINT")]
)
def test_a_run_that_is_asked_to_end_while_it_publishes_ends_when_it_has(published, moment, number):
    done = publish(published, moment, number)
    assert done.returncode == -signal.SIGINT, done.stderr  # as KeyboardInterrupt ends a process
    assert texts(published) == NEW
    assert names(published) == set(NEW)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_killed_run_left_is_done_before_the_next_begins(fails, published):
    """Even if that fails."""
    publish(published, 5, "SIGKILL")
    _make_ours(published / STAGED)
    (published / STAGED / "logits.npy").write_bytes(bytes(100))
    try:
        with publishing(published) as aside:
            assert texts(published) == NEW
            assert names(aside) == {MARKER}
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert names(published) & HIDDEN == set()


def test_a_killed_calibration_leaves_old_results_and_is_swept(calibrate, features, tmp_path):
    out = tmp_path / "out"
    assert calibrate(out, "--seed", 1)[0] == 0
    (tmp_path / "killed.py").write_text(
        "import os, signal\ndef predict(x):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = ["calibrate", "killed:predict", str(features), "-o", str(out), "-q"]
    assert in_child(words, cwd=tmp_path).returncode == -signal.SIGKILL
    assert names(out) == WRITTEN | {STAGED}
    assert seed_of(out) == (1, 1)
    assert calibrate(out, "--seed", 2)[0] == 0
    assert names(out) == WRITTEN
    assert seed_of(out) == (2, 2)


def test_a_report_is_drawn_of_the_run_that_was_killed_while_it_published(
    calibrate, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    assert calibrate(out, "--seed", 1)[0] == 0
    replace = os.replace

    def stop(path, target):
        if Path(target) == out / "report.html":
            raise KeyboardInterrupt  # calibration.json was moved, report.json was not
        replace(path, target)

    monkeypatch.setattr(os, "replace", stop)
    assert calibrate(out, "--seed", 2)[0] == 130
    monkeypatch.undo()
    assert seed_of(out) == (2, 1)
    assert main(["report", str(out)]) == 0
    assert seed_of(out) == (2, 2)
    assert names(out) == WRITTEN


def test_two_runs_into_one_folder(calibrate, passes, features, tmp_path):
    out, code = (
        tmp_path / "out",
        "import time\ndef predict(x):\n    open('started', 'w').close()\n    time.sleep(60)\n",
    )
    (tmp_path / "sleepy.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pseudocal",
        "calibrate",
        "sleepy:predict",
        str(features),
        "-o",
        "out",
        "-q",
    ]
    with subprocess.Popen(command, cwd=tmp_path, env=CHILD) as other:
        try:
            while not (tmp_path / "started").exists():
                assert other.poll() is None
                time.sleep(0.02)
            code, err = calibrate(out)
            assert code == 4
            assert f"expected an output folder that no other run writes to, got {out}" in err
            assert passes == []
            assert names(out) == {STAGED}
            with pytest.raises(OutputError, match="right now"):
                finish_publishing(out)
        finally:
            other.kill()
    assert calibrate(out)[0] == 0
    assert names(out) == WRITTEN


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_killed_at_any_moment_a_calibration_leaves_the_results_of_one_run(
    seed, calibrate, features, tmp_path
):
    """The next run ends as if there had been no other."""
    (tmp_path / "steady.py").write_text(
        "import numpy as np, time\n"
        "weights = np.random.default_rng(1).normal(size=(5, 3))\n"
        "def predict(x):\n    time.sleep(0.02)\n    return 3 * x @ weights\n"
    )
    out, moment = tmp_path / "out", float(np.random.default_rng(seed).uniform(0.3, 4.0))
    assert calibrate(out, "--seed", 1)[0] == 0
    words = [
        "calibrate",
        "steady:predict",
        str(features),
        "-o",
        str(out),
        "-q",
        "--format",
        "csv",
        "--seed",
        "2",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "pseudocal", *words], cwd=tmp_path, env=CHILD
    ) as process:
        time.sleep(moment)
        process.kill()
    finish_publishing(out)
    assert names(out) == WRITTEN
    assert seed_of(out) in ((1, 1), (2, 2))
    assert in_child(words, cwd=tmp_path).returncode == 0
    assert seed_of(out) == (2, 2)
    assert names(out) == WRITTEN


def test_an_interruption_while_files_move_is_delivered_afterwards(tmp_path, monkeypatch):
    """Neither lost nor in between: all files are there, and then the command ends."""
    original = os.replace

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    def publish():
        with publishing(tmp_path / "out") as aside:
            (aside / "report.html").write_text("hello")
            (aside / "report.json").write_text("{}")
            monkeypatch.setattr(os, "replace", interrupted)

    with pytest.raises(KeyboardInterrupt):
        publish()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.json"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_exported_model_of_an_earlier_run_stays(tmp_path):
    for name in ("model.pth", "unconfirmed-model.onnx", "model.onnx"):
        with publishing(tmp_path / "out") as aside:
            (aside / name).write_text("a model")
            (aside / "calibration.json").write_text("{}")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.onnx",
        "calibration.json",
    }


def test_files_of_others_with_our_names_stay(calibrate, tmp_path):
    """A folder of the user's own is no output folder: its model would be replaced or removed."""
    out = tmp_path / "project"
    out.mkdir()
    for name in ("model.onnx", "classes.txt"):
        (out / name).write_text("mine")
    code, err = calibrate(out)
    assert code == 4
    assert "choose another folder" in err
    assert names(out) == {"model.onnx", "classes.txt"}
    assert (out / "model.onnx").read_text() == "mine"


def test_the_results_do_not_replace_the_model(calibrate, tmp_path):
    out = tmp_path / "out"
    assert calibrate(out)[0] == 0
    (out / "model.onnx").write_text("mine")
    words = ["calibrate", str(out / "model.onnx"), "data.npy", "-o", str(out), "-q"]
    assert main(words) == 3
    assert (out / "model.onnx").read_text() == "mine"


def test_the_results_are_not_written_between_the_data(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    words = ["calibrate", "model.onnx", str(tmp_path / "images"), "-o", str(tmp_path / "images")]
    assert main(words) == 3
    assert "choose another folder" in capsys.readouterr().err
    assert names(tmp_path / "images") == set()
