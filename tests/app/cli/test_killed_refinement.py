"""`refine` of a segmenter, killed before each of its changes to files.

OUT is the old one or, finished, the new one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pseudocal.app.publishing import DECIDED, STAGED, finish_publishing

SEGMENTER = """
def predict(x):
    n, _, height, width = x.shape
    return 50 * x.reshape(n, 3, height // 2, 2, width // 2, 2).mean(axis=(3, 5))
"""

# a fork for each moment: the folder is copied, refined by a child, and the child is killed at that
# change
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from pseudocal.app import refine

start, answers, folder, moments = sys.argv[1], sys.argv[2], Path(sys.argv[3]), map(int, sys.argv[4].split(","))
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")

def killed_at(moment, out):
    changes = 0
    def hook(event, arguments):
        nonlocal changes
        written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or written:
            changes += 1
            if changes == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    refine(out, answers)
    os._exit(0)

for moment in moments:
    shutil.copytree(start, folder / f"out-{moment}")
    child = os.fork()
    if child == 0:
        killed_at(moment, folder / f"out-{moment}")
    print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def asked(pseudocal, tmp_path, monkeypatch) -> Path:
    """The results of a segmenter, and answers to ten questions about its pixels."""
    (tmp_path / "killed_segmenter.py").write_text(SEGMENTER)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(1)
    for i in range(6):
        patches = rng.uniform(30, 225, size=(3, 4, 3)).astype(np.uint8)
        Image.fromarray(patches.repeat(8, 0).repeat(8, 1)).save(tmp_path / "images" / f"{i}.png")
    words = (
        "killed_segmenter:predict",
        tmp_path / "images",
        "-o",
        tmp_path / "old",
        "--size",
        "24x32",
    )
    assert pseudocal("calibrate", *words, "--resize", "stretch", "--format", "csv").code == 0
    assert pseudocal("label", tmp_path / "old", "-n", 10).code == 0
    lines = (tmp_path / "old" / "to-label.csv").read_text().splitlines()
    (tmp_path / "labels.csv").write_text(
        "\n".join([lines[0], *(f"{line}{i % 3}" for i, line in enumerate(lines[1:]))])
    )
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    """The files; the report names its folder, which is another for each moment."""
    return {
        path.name: re.sub(rb"/(old|new|out-\d+)\b", b"/OUT", path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def killed(folder: Path, moments: list[int]) -> dict[int, int]:
    """Refine a copy of the old folder for each moment; return how each run ended."""
    given = [
        str(folder / "old"),
        str(folder / "labels.csv"),
        str(folder),
        ",".join(map(str, moments)),
    ]
    command = [sys.executable, "-c", KILLED, *given]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {int(moment): int(end) for moment, end in map(str.split, done.stdout.splitlines())}


def check_killed(folder: Path, moments: list[int], pseudocal) -> set[str]:
    """Check each folder that was left, and say which of the outcomes occurred."""
    ends = killed(folder, moments)
    old = content(folder / "old")
    shutil.copytree(folder / "old", folder / "new")
    assert pseudocal("refine", folder / "new", folder / "labels.csv").code == 0
    new, found = content(folder / "new"), set()
    assert new["calibration.json"] != old["calibration.json"]
    assert new["predictions.csv"] != old["predictions.csv"]
    for moment, code in ends.items():
        out = folder / f"out-{moment}"
        assert code in (0, -signal.SIGKILL)
        decided = (out / DECIDED).exists()
        if code and not decided and content(out) != new:
            assert content(out) == old  # at once, without any other run
        finish_publishing(out)
        assert content(out) in (old, new)
        assert not decided or content(out) == new
        assert not {path.name for path in out.iterdir()} & {STAGED, DECIDED}
        found.add("ended" if code == 0 else "new" if content(out) == new else "old")
    return found


def test_killed_at_some_changes_refine_leaves_one_of_two_whole_folders(asked, pseudocal):
    assert check_killed(asked, [12, 28, 10_000], pseudocal) == {"old", "new", "ended"}


@pytest.mark.slow
def test_killed_before_any_change_refine_leaves_one_of_two_whole_folders(asked, pseudocal):
    assert check_killed(asked, list(range(1, 40)), pseudocal) == {"old", "new", "ended"}
