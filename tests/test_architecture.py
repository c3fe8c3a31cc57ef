"""The reference lists exactly what is public."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = [
    "pseudocal",
    *(f"pseudocal.{name}" for name in ("app", "calibrators", "distributed", "metrics")),
    *(f"pseudocal.lab.{name}" for name in ("adapt", "bench", "data", "plugins", "segmentation")),
]


def reference() -> list[str]:
    pages = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    return re.findall(r"^::: (\S+)$", text, re.MULTILINE)


@pytest.mark.parametrize("module", LISTED)
def test_what_is_public_is_in_the_reference(module: str) -> None:
    if module != "pseudocal":
        pytest.importorskip("torch")  # the application and the lab need more than the library
    # A name that two modules export is listed under one of them.
    listed = {name.rpartition(".")[2] for name in reference()}
    missing = set(import_module(module).__all__) - listed
    assert missing == set(), "list them in a page of docs/reference/python/"


def test_what_is_in_the_reference_is_public() -> None:
    for package in ("torch", "typer", "sklearn"):
        pytest.importorskip(package)
    listed = reference()
    assert len(set(listed)) == len(listed)
    for name in listed:
        module, _, thing = name.rpartition(".")
        there = import_module(module)
        assert thing in getattr(there, "__all__", vars(there)), name
