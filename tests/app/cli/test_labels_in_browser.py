"""From the labelling page to a refined report.

A person labels in a real browser, and `refine` reads what it saved.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration

pytestmark = pytest.mark.filterwarnings("default")  # of the browser's driver

SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1200, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
CLASSES = ("<script>document.title='owned'</script>", "=cmd()", "-1+1", 'a, "quoted" <b>one</b>')
NAMES = (
    "<script>owned<script>",
    "=cmd()",
    "'=cmd()",
    "@sum",
    "-1+1",
    'a, "b"',
    "<img src=x onerror=owned>",
    "猫 &amp;",
)
WEIGHTS = 4 * np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.fixture
def calibrated(pseudocal, image_files, tmp_path, monkeypatch) -> Path:
    """A folder of results of images and classes with hostile names."""
    model = ModuleType("classifier_by_colour")
    model.predict = lambda x: x.mean(axis=(2, 3)) @ WEIGHTS  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, model.__name__, model)
    (tmp_path / "images").mkdir()
    for i, path in enumerate(sorted(path for path in image_files.rglob("*") if path.is_file())):
        shutil.copy(path, tmp_path / "images" / f"{NAMES[i % len(NAMES)]} {i}{path.suffix}")
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    words = (
        "classifier_by_colour:predict",
        tmp_path / "images",
        "-o",
        tmp_path / "out",
        "--size",
        16,
    )
    done = pseudocal(
        "calibrate", *words, "--mean", "0.5", "--std", "0.25", "--classes", tmp_path / "classes.txt"
    )
    assert done.code == 0, done.err
    return tmp_path / "out"


def label(tab: Any, way: str, number: int) -> None:
    button = tab.locator("#classes button").nth(number)
    if way == "keyboard":
        tab.keyboard.press(button.get_attribute("aria-keyshortcuts"))
    else:
        button.tap() if way == "touch" else button.click()


def labelled_in(browser: Any, page: Path, size: str, way: str, to: Path) -> list[int]:
    """Label twenty images, with a reload and a change of mind on the way, and save the file."""
    said = [i % 4 for i in range(20)]
    context = browser.new_context(**SIZES[size])
    tab, problems = context.new_page(), []
    for event in ("console", "pageerror", "dialog"):
        tab.on(event, lambda happened: problems.append(happened))
    tab.goto(page.as_uri())
    for _ in range(4):  # on a busy machine headless Chromium may lose what a page has just stored
        for number in said[:10]:
            label(tab, way, number)
        tab.get_by_text("10 of 20 labelled").wait_for()
        tab.wait_for_timeout(300)
        tab.reload()
        if tab.locator("#where").text_content() != "Label 20 images: 1 of 20":
            break
    assert tab.locator("#where").text_content() == "Label 20 images: 11 of 20"
    for number in said[10:]:
        label(tab, way, number)
    tab.locator("#review button").nth(0).click()
    for _ in range(7):
        tab.keyboard.press("ArrowRight") if way == "keyboard" else tab.locator("#next").click()
    tab.keyboard.press("ArrowLeft") if way == "keyboard" else tab.locator("#back").click()
    assert tab.locator("#where").text_content() == "Label 20 images: 7 of 20"
    said[6] = (said[6] + 1) % 4
    tab.wait_for_timeout(600)  # else a tap on the button of the last one is a double tap
    label(tab, way, said[6])
    with tab.expect_download() as download:
        tab.keyboard.press("Control+s") if way == "keyboard" else tab.locator("#save").click()
    assert download.value.suggested_filename == "labels.csv"
    download.value.save_as(to)
    assert tab.title() == "Label 20 images"  # and not "owned"
    assert problems == []
    context.close()
    return said


@pytest.mark.parametrize(
    ("size", "way"),
    [
        ("desktop", "mouse"),
        pytest.param("desktop", "keyboard", marks=pytest.mark.slow),
        pytest.param("phone", "touch", marks=pytest.mark.slow),
        ("phone", "keyboard"),
    ],
)
def test_from_the_page_to_a_refined_report(browser, pseudocal, calibrated, tmp_path, size, way):
    before = (calibrated / "report.html").read_text()
    assert pseudocal("label", calibrated, "-n", 20).code == 0
    said = labelled_in(browser, calibrated / "label.html", size, way, tmp_path / "labels.csv")
    done = pseudocal("refine", calibrated, tmp_path / "labels.csv")
    assert done.code == 0, done.err
    assert "measured on 20 labels" in done.out
    page = (calibrated / "report.html").read_text()
    assert "Verdict, measured on 20 labels" in page
    assert "Verdict, measured on" not in before
    assert "<script>" not in page
    assert "<img src=x" not in page
    (tmp_path / "numbers.csv").write_text(numbered(calibrated, said))
    temperature = Calibration.load(calibrated / "calibration.json").temperature
    assert pseudocal("refine", calibrated, tmp_path / "numbers.csv").code == 0
    assert Calibration.load(calibrated / "calibration.json").temperature == temperature


def test_labels_for_a_threshold_say_so(browser, pseudocal, calibrated, tmp_path):
    """The file that the page saves has a column that `threshold` reads and `refine` refuses."""
    assert pseudocal("label", calibrated, "-n", 20, "--for-threshold", "20%").code == 0
    path = tmp_path / "labels.csv"
    labelled_in(browser, calibrated / "label.html", "desktop", "mouse", path)
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["file", "label", "sampling"]
    assert all(line["sampling"].startswith("threshold 20% at T=") for line in lines)
    done = pseudocal("threshold", calibrated, path, "--max-error", "20%")
    assert done.code == 0, done.err
    assert json.loads((calibrated / "threshold.json").read_text())["given"] == 20
    assert pseudocal("refine", calibrated, path).code == 3


def numbered(out: Path, said: list[int]) -> str:
    """The same labels, written by hand into the template.

    The numbers of the classes, without names.
    """
    with (out / "to-label.csv").open(newline="", encoding="utf-8") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    text = io.StringIO()
    csv.writer(text).writerows([("file", "label"), *zip(names, said, strict=True)])
    assert json.loads((out / "run.json").read_text())["classes"] == list(CLASSES)
    return text.getvalue()
