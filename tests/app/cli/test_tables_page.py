"""The page docs/howto/tables.md: its code and its commands run, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pseudocal import Calibration

for package in ("lightgbm", "pandas", "pyarrow", "skops", "xgboost"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "tables.md"


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
def test_the_code_and_the_commands_of_the_page_run(follow_page, tmp_path):
    ran = follow_page(PAGE, all_code=True)
    assert ran == ["calibrate", "label", "refine", *["calibrate"] * 5, "label"]
    for folder in ("forest", "histogram", "mlp", "xgboost", "lightgbm"):
        calibration = Calibration.load(tmp_path / folder / "calibration.json")
        assert calibration.counts["mixup_samples"] > 0
        assert (tmp_path / folder / "report.html").exists()
    assert Calibration.load(tmp_path / "histogram" / "calibration.json").measured.labels == 50
    assert (tmp_path / "pipeline" / "label.html").exists()
