"""The page docs/howto/tables.md: its code and its commands run, in order."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration

for package in ("lightgbm", "pandas", "pyarrow", "skops", "xgboost"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "tables.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
def test_the_code_and_the_commands_of_the_page_run(pseudocal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    ran = []
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            exec(text, names)
            continue
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "pip":
                continue
            if words[1] == "refine":
                write_labels(Path(words[2]), names["truth"])
            done = pseudocal(*words[1:])
            assert done.code == 0, done.err
            ran.append(words[1])
    assert ran == ["calibrate"] * 6 + ["label", "refine"]
    for folder in ("forest", "histogram", "mlp", "xgboost", "lightgbm"):
        calibration = Calibration.load(tmp_path / folder / "calibration.json")
        assert calibration.counts["mixup_samples"] > 0
        assert (tmp_path / folder / "report.html").exists()
    assert Calibration.load(tmp_path / "pipeline" / "calibration.json").measured.labels == 50


def write_labels(folder: Path, truth: np.ndarray) -> None:
    """Label the rows that `label` drew, as a person would who knows them."""
    with (folder / "to-label.csv").open(newline="", encoding="utf-8") as file:
        rows = [int(row["file"]) for row in csv.DictReader(file)]
    lines = ["file,label", *(f"{i},{truth[i]}" for i in rows)]
    Path("labels.csv").write_text("\n".join(lines))
