"""Pages that run as pasted print what they show: README, quickstart, comparison."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def runner() -> Any:
    """`.ci/run_pages.py`, which is in no package."""
    spec = spec_from_file_location("run_pages", ROOT / ".ci" / "run_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["run_pages"] = module
    spec.loader.exec_module(module)
    return module


RUNNER = runner()


@pytest.mark.parametrize("page", RUNNER.PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_it_shows(page: Path) -> None:
    for package in ("sklearn", "onnxruntime", "typer"):
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
