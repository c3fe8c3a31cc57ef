"""The page docs/howto/tables.md: its code and its commands run, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pseudocal import Calibration

for package in ("lightgbm", "pandas", "pyarrow", "skops", "xgboost"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "tables.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
@pytest.mark.filterwarnings("ignore:T = 1")  # as the page says of tables that cannot be mixed
def test_the_code_and_the_commands_of_the_page_run(pseudocal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    ran = []
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            exec(text, names)
            continue
        for line in text.splitlines():
            if not line.startswith("$ pseudocal "):
                continue
            words = shlex.split(line.removeprefix("$ "))
            done = pseudocal(*words[1:])
            assert done.code == 0, done.err
            ran.append(words[1])
    assert ran == ["calibrate", "label", "refine", *["calibrate"] * 5, "label"]
    for folder in ("forest", "histogram", "mlp", "xgboost", "lightgbm"):
        calibration = Calibration.load(tmp_path / folder / "calibration.json")
        assert calibration.counts["mixup_samples"] > 0
        assert (tmp_path / folder / "report.html").exists()
    assert Calibration.load(tmp_path / "histogram" / "calibration.json").measured.labels == 50
    assert (tmp_path / "pipeline" / "label.html").exists()
    assert names["model"].calibration_.temperature == 1
    assert names["calibration"].measured.labels == 50
