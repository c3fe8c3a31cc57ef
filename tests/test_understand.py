"""The code of the pages that explain the method runs, and their example gives the numbers they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_the_method_in_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    page = (DOCS / "understand" / "method.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(blocks[0], {})
    printed, shown = (
        re.search(r"^T = ([\d.]+), oracle ([\d.]+)$", text, re.MULTILINE)
        for text in (capsys.readouterr().out, page)
    )
    assert [*map(float, printed.groups())] == pytest.approx([*map(float, shown.groups())], rel=0.1)


def test_the_example_of_noisy_digits() -> None:
    """The networks may differ a little from machine to machine."""
    pytest.importorskip("sklearn")
    pictures = run_path(str(ROOT / "benchmarks" / "pictures_understand.py"))
    found = pictures["numbers_of"](pictures["noisy_digits"]())
    stored = json.loads((DOCS / "images" / "digits.json").read_text(encoding="utf-8"))
    assert found["verdict"] == stored["verdict"]
    assert found["temperature"] == pytest.approx(stored["temperature"], rel=0.1)
    for name in ("accuracy", "confidence", "agreement", "estimate", "low", "high"):
        assert found[name] == pytest.approx(stored[name], abs=0.03)
