"""What the README claims is what the page of results says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d+\.\d+")


def table_in_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("<!-- results -->")[1].strip().splitlines()


def test_every_number_of_the_readme_stands_in_the_results():
    rows = [line for line in table_in_readme() if NUMBER.search(line)]
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(rows) >= 5
    for row in rows:
        name = row.split("|")[1].strip()
        assert row in results.splitlines(), f"{name} has other numbers in docs/results.md"
        assert set(NUMBER.findall(row)) <= set(NUMBER.findall(results))
