"""What the docs name is there: files, functions, types."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "pseudocal"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = {
        name for name in re.findall(r"[\w/]+\.py\b", architecture()) if "/" in name and not name.startswith("tests/")
    }
    assert len(named) > 40
    assert [name for name in sorted(named) if not (SRC / name).is_file()] == []


def test_every_file_of_the_library_has_a_place_in_the_architecture() -> None:
    text = architecture()
    own = sorted(path.stem for path in SRC.glob("*.py") if not path.stem.startswith("_"))
    packages = sorted(path.parent.relative_to(SRC).as_posix() for path in SRC.glob("**/__init__.py"))
    assert [name for name in own if f"`{name}.py`" not in text] == []
    assert [name for name in packages if name not in (".", "app", "lab") and f"{name}/" not in text] == []


def test_every_type_of_the_table_is_defined() -> None:
    table = architecture().partition("## The types that flow")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    code = "\n".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    assert len(named) > 25
    assert [name for name in sorted(named) if not re.search(rf"^class {name}\b", code, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_imports_is_there(page: Path) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    for module, names in re.findall(r"^from (pseudocal[\w.]*) import ([\w, ]+)$", code, re.MULTILINE):
        if module.startswith(("pseudocal.app", "pseudocal.lab", "pseudocal.torch")):
            pytest.importorskip("torch")
        there = import_module(module)
        assert [name for name in names.split(", ") if not hasattr(there, name)] == []


def test_the_page_on_python_lists_every_argument() -> None:
    pytest.importorskip("typer")
    from dataclasses import fields

    from pseudocal.app import Job, Result
    from pseudocal.calibrators import Step

    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for record in (Job, Result, Step):
        assert [field.name for field in fields(record) if f"| `{field.name}` |" not in text] == []
