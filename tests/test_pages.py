"""Pages that run as pasted print what they show: README, quickstart, how-to pages, the notebook."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script(name: str) -> Any:
    """A module of `.ci`, which is no package."""
    spec = spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


RUNNER = script("run_pages")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.parent == RUNNER.HOWTO else page
        for page in RUNNER.PAGES
    ],
    ids=lambda page: page.name,
)
@pytest.mark.filterwarnings(
    "default::DeprecationWarning", "default::FutureWarning", "default:T = 1:UserWarning"
)
def test_a_page_prints_what_it_shows(page: Path) -> None:
    for package in ("sklearn", "onnxruntime", "typer", "skops", "xgboost", "lightgbm"):
        pytest.importorskip(package)
    with RUNNER.empty_folder():
        outputs = list(RUNNER.outputs_of(page))
    assert len(outputs) >= 1
    for output in outputs:
        assert output.agrees, f"{output.code}\nprinted:\n{output.printed}\nshown:\n{output.shown}"


def test_another_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    (output,) = RUNNER.outputs_of(page)
    assert not output.agrees
    assert "```text\n2\n```" in RUNNER.renewed(page.read_text(encoding="utf-8"), [output])


def test_the_notebook_shows_its_outputs() -> None:
    pytest.importorskip("sklearn")
    runner = script("run_notebook")
    notebook = json.loads(runner.NOTEBOOK.read_text(encoding="utf-8"))
    cells = 0
    for cell, outputs in runner.executed(notebook):
        assert runner.comparable(cell["outputs"]) == runner.comparable(outputs), cell["source"]
        cells += 1
    assert cells >= 8
