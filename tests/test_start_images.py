"""The images of the first pages are those that their script draws from what is stored."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"


def script() -> Any:
    pytest.importorskip("sklearn")
    spec = spec_from_file_location("start_images", ROOT / "benchmarks" / "start_images.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["start_images"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["hero", "choose", "demo"])
def test_a_stored_image_is_what_the_script_draws(name: str) -> None:
    drawn = getattr(script(), name)()
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawn


def test_texts_below_the_hero_are_its_numbers() -> None:
    said = re.findall(r"says (\d+%), right (\d+%)", (IMAGES / "hero.svg").read_text("utf-8"))
    (before, right), (after, _) = said
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        text = page.read_text(encoding="utf-8")
        assert f"says {before} and is right on {right}; after 50 labels it says {after}" in text
        assert re.search(rf"{before} confident (may mean|means) {right} correct", text)


def test_the_choices_quote_the_same_numbers_as_their_image() -> None:
    drawn = (IMAGES / "choose.svg").read_text(encoding="utf-8")
    text = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r'"(ECE [\d.]+ x the best)"', text)
    assert quoted in drawn


def test_the_transcript_of_the_demo_is_the_recorded_one() -> None:
    import json

    recorded = json.loads((IMAGES / "demo.json").read_text(encoding="utf-8"))
    lines = {entry["line"].rstrip() for entry in recorded}
    page = (ROOT / "docs" / "howto" / "images.md").read_text(encoding="utf-8")
    (shown,) = re.findall(
        r"^\$ pseudocal demo\n(trained on .*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert [line for line in shown.splitlines() if line.rstrip() not in lines] == []
