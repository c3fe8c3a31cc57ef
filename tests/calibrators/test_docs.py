"""The tables in the docs are those that the code prints."""

from pathlib import Path

import pytest

from pseudocal.calibrators import comparison_table, needs_table


@pytest.mark.parametrize("table", [comparison_table, needs_table])
def test_tables_are_up_to_date(table):
    assert table() in (Path(__file__).parents[2] / "docs" / "calibrators.md").read_text(encoding="utf-8")
