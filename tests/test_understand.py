"""The code of the pages that explain the method runs as pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "understand" / "method.md"


def test_the_method_in_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    exec(blocks[0], {})
    assert float(capsys.readouterr().out) > 1
