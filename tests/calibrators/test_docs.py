"""The tables in the docs are those that the code prints, what they show runs, and what they name is there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal.calibrators import PARTS, comparison_table, needs_table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("table", [comparison_table, needs_table])
def test_tables_are_up_to_date(table):
    page = (DOCS / "paper" / "calibrators.md").read_text(encoding="utf-8")
    missing = [row for row in table().splitlines() if row not in page.splitlines()]
    assert missing == [], f"paste what {table.__name__}() prints into docs/paper/calibrators.md"
    assert table() in page, f"rows of {table.__name__}() have another order in the page"


def test_the_inputs_of_a_plugin_are_listed():
    page = (DOCS / "paper" / "bench.md").read_text(encoding="utf-8")
    table = page.partition("| parameter | is given |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    for (name, given), (part, words) in zip(rows, PARTS.items(), strict=True):
        assert name == f"`{part}`"
        assert given.startswith(words), part


def test_the_other_calibrators_of_segmentation_run_as_they_stand():
    text = (DOCS / "howto" / "segmentation.md").read_text(encoding="utf-8")
    code = text.partition("### Other calibrators")[2].split("```python\n")[1].split("```")[0]
    z = 2 * np.random.default_rng(0).normal(size=(6, 3, 4, 4))
    batches = [(z, np.random.default_rng(1).integers(0, 3, size=(6, 4, 4)))]
    names: dict[str, Any] = {
        "model": lambda x: x,
        "another_model": lambda x: -x,
        "source_loader": batches,
        "loader": batches,
    }
    exec(code, names)
    assert names["together"](z).shape == z.shape
