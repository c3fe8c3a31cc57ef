"""The how-to pages: their commands run in order and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("onnx", "onnxruntime", "skops"):
    pytest.importorskip(package)

pytestmark = pytest.mark.slow
PAGES = Path(__file__).parents[3] / "docs" / "howto"
COMMANDS = {
    "images": ["calibrate", "label", "refine", "evaluate"],
    "text": [
        "calibrate",
        *["label", "refine"] * 2,
        *["label", "refine", "apply"],
        "calibrate",
    ],
    "language_models": ["label", "refine", "apply", "evaluate"],
    "label": ["calibrate", "label", "refine"],
    "thresholds": ["calibrate", "label", *["threshold"] * 3],
    "segmentation": ["calibrate", "label", "refine", "calibrate"],
    "deploy": ["calibrate", "label", "refine", "calibrate", "apply", "evaluate"],
    "watch": ["calibrate", *["watch"] * 3, "label", "refine"],
}


@pytest.mark.parametrize("name", [*COMMANDS])
def test_a_page_shows_what_its_commands_print(follow_page, name):
    assert follow_page(PAGES / f"{name}.md") == COMMANDS[name]


@pytest.mark.parametrize(
    ("old", "new"),
    [("Measured accuracy: 75%", "Measured accuracy: 85%"), ("verdict: apply", "verdict: caution")],
)
def test_a_page_that_shows_something_else_is_noticed(follow_page, tmp_path, old, new):
    text = (PAGES / "label.md").read_text(encoding="utf-8")
    assert old in text
    page = tmp_path / "label.md"
    page.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(AssertionError, match="shown"):
        follow_page(page)
