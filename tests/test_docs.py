"""What the docs name is there: files, functions, types."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import PseudoCal

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "pseudocal"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_in(page: Path) -> list[str]:
    """The Python that a page shows, one text for each place."""
    return re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def ci_module(name: str) -> Any:
    """A module of `.ci`, which is no package."""
    spec = spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_can_be_pasted_into_a_session(page: Path) -> None:
    """Until Python 3.13, a blank line must follow a loop, and may not stand within one."""
    for code in code_in(page):
        lines = code.splitlines()
        statements = ast.parse(code).body
        for statement, following in zip(statements, [*statements[1:], None], strict=True):
            if not hasattr(statement, "body"):
                continue
            last = statement.end_lineno
            assert all(lines[statement.lineno - 1 : last]), f"a blank line within {lines[last - 1]}"
            assert following is None or not lines[last], f"no blank line after {lines[last - 1]}"


def architecture() -> str:
    pages = ("architecture.md", "extending.md")
    return "\n".join(
        (ROOT / "docs" / "project" / name).read_text(encoding="utf-8") for name in pages
    )


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = {
        name
        for name in re.findall(r"[\w/]+\.py\b", architecture())
        if "/" in name and not name.startswith(("tests/", "ci/"))
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if not (SRC / name).is_file()] == []


def test_every_file_of_the_library_has_a_place_in_the_architecture() -> None:
    text = architecture()
    own = sorted(path.stem for path in SRC.glob("*.py") if not path.stem.startswith("_"))
    packages = sorted(
        path.parent.relative_to(SRC).as_posix() for path in SRC.glob("**/__init__.py")
    )
    assert [name for name in own if f"`{name}.py`" not in text] == []
    assert [
        name for name in packages if name not in (".", "app", "lab") and f"{name}/" not in text
    ] == []


def test_every_type_that_the_architecture_names_is_defined() -> None:
    named = set(re.findall(r"`([A-Z][a-z]\w+)[`(]", architecture()))
    code = "\n".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    assert len(named) > 10
    assert [
        name for name in sorted(named) if not re.search(rf"^class {name}\b", code, re.MULTILINE)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_imports_is_there(page: Path) -> None:
    for module, names in re.findall(
        r"^from (pseudocal[\w.]*) import ([\w, ]+)$", "".join(code_in(page)), re.MULTILINE
    ):
        if module.startswith(("pseudocal.app", "pseudocal.lab", "pseudocal.torch")):
            pytest.importorskip("torch")
        if module == "pseudocal.sklearn":
            pytest.importorskip("sklearn")
        there = import_module(module)
        assert [name for name in names.split(", ") if not hasattr(there, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_shows_is_python(page: Path) -> None:
    for code in code_in(page):
        compile(code, page.name, "exec")


def test_what_the_page_on_python_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = np.random.default_rng(0).normal(size=(300, 3))
    names: dict[str, Any] = {"model": lambda x: 8 * x, "target": target}
    calibration = PseudoCal().fit(names["model"], target)
    code = code_in(ROOT / "docs" / "reference" / "python" / "core.md")[0]
    exec(code.replace("seed=1", "seed=0"), names)
    assert names["calibration"].temperature == calibration.temperature


def test_make_targets_of_the_readme_are_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)`", readme))
    assert "demo" in named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_docstrings_list_every_argument() -> None:
    """The reference shows them."""
    pytest.importorskip("typer")
    from dataclasses import fields
    from inspect import signature

    from pseudocal.app import Result, calibrate
    from pseudocal.calibrators import Step

    listed = {
        calibrate: list(signature(calibrate).parameters),
        Result: [field.name for field in fields(Result)],
        Step: [field.name for field in fields(Step)],
    }
    for owner, names in listed.items():
        assert [name for name in names if f"        {name}: " not in owner.__doc__] == []


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    pytest.importorskip("typer")
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == ci_module("cli_reference").page(), "run: python .ci/cli_reference.py"


def test_examples_of_the_reference_are_code() -> None:
    pytest.importorskip("griffe")
    extension = ci_module("reference_examples")
    text = "Add.\n\n>>> 1 + 1\n2\n\nArgs:\n    x: one.\n\n>>> 3"
    fenced = "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nArgs:\n    x: one.\n\n```pycon\n>>> 3\n```"
    assert extension.fenced(text) == fenced


def test_lines_of_a_page_do_not_break_inside_an_option_or_a_table() -> None:
    mended = ci_module("page_wrapping").on_page_content
    assert mended('<code class="a --b">ask -n 5</code>') == (
        '<code class="a --b">ask <span class="whole">-n</span> 5</code>'
    )
    assert (
        mended("<td><strong>1.5</strong> ± 0.1</td>")
        == "<td><strong>1.5</strong>\u00a0±\u00a00.1</td>"
    )
    assert (
        mended("<th>noto-&gt;fluent</th>") == '<th><span class="whole">noto-&gt;fluent</span></th>'
    )
    assert mended("<td>+7.0e-07</td>") == '<td><span class="whole">+7.0e-07</span></td>'
    assert (
        mended("<td><code>caution</code></td>")
        == '<td><span class="whole"><code>caution</code></span></td>'
    )
    block = '<div class="language-text highlight"><pre><code>{}</code></pre></div>'
    assert "highlight columns" in mended(block.format("one    two\n" * 5))
    assert "columns" not in mended(block.format("one    # two\n" * 5))


def test_the_gallery_embeds_the_reports_that_it_links() -> None:
    page = (ROOT / "docs" / "howto" / "gallery.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((gallery/\w+\.html)\)", page)
    # links are relative to the file, embedded addresses to the page, which is howto/gallery/
    embedded = [f"gallery/{name}" for name in re.findall(r'<iframe src="([^"]+)"', page)]
    assert embedded == linked
    assert linked
