"""The images of the how-to pages: an annotated report, and a monitor over 13 days.

    python benchmarks/howto_pictures.py docs/images

Both are SVG files with screenshots of real pages inside, one for light and one for dark settings.
The pages come from the files of docs/howto/howto_files.py; the digits of the monitor get noisier
from the eighth day on. Needs chromium on the PATH and the package playwright. Ten seconds of CPU
time.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import shutil
from base64 import b64encode
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from pseudocal.app.cli import main as pseudocal

FILES = Path(__file__).parents[1] / "docs" / "howto" / "howto_files.py"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
WIDTH = 400  # of the page in the image: its text is legible on a phone
MARGIN = 30  # for the numbers beside it
PREPARED = ("--resize", "stretch", "--preprocess", "zero-one", "--classes", "classes.txt")
NOISE = (*[0.05] * 7, 0.1, 0.15, 0.2, 0.3, *[0.4] * 2)  # of each day
# what the numbers of the report stand beside
NUMBERED = (
    ".recommendation .headline",
    ".recommendation h2",
    ".essentials div:nth-child(1)",
    ".essentials div:nth-child(2)",
    ".essentials div:nth-child(3)",
    ".essentials div:nth-child(4)",
)


class Area(NamedTuple):
    """A part of a page, in CSS pixels."""

    top: float
    height: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out.absolute()
    out.mkdir(exist_ok=True)
    from playwright import sync_api as playwright

    with (
        TemporaryDirectory() as folder,
        chdir(folder),
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        files = howto_files()
        files.main([])
        draw_report(browser, out / "report.svg")
        draw_monitor(browser, files, out / "monitor.svg")
        browser.close()


def howto_files() -> Any:
    """The script that writes the files of the how-to pages."""
    spec = importlib.util.spec_from_file_location("howto_files", FILES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw_report(browser: Any, path: Path) -> None:
    """The first screen of a report, with numbers."""
    run("calibrate", "model.onnx", "images/", "-o", "out", "--second-opinion", "other.onnx")
    page = Path("out/report.html")
    areas = [area_of(browser, page, name) for name in NUMBERED]
    whole = area_of(browser, page, ".recommendation")
    tops = [area.top + 12 for area in areas]
    whole = Area(0, whole.top + whole.height + 12)
    save(browser, page, whole, path, tops)


def draw_monitor(browser: Any, files: Any, path: Path) -> None:
    """Accuracy and evidence of a monitor over time."""
    run("calibrate", "model.onnx", "reference/", "-o", "baseline", "--second-opinion", "other.onnx")
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    rng = np.random.default_rng(0)
    truth: dict[str, str] = {}
    for day, noise in enumerate(NOISE, 1):
        rows = rng.choice(np.arange(1200, len(x)), 150, replace=False)
        files.write_digits(f"day{day}", x[rows], y[rows], noise, truth)
        start = ("--baseline", "baseline") if day == 1 else ()
        run("watch", "monitor", f"day{day}", "--time", f"2026-11-{day:02}", *start, prepared=())
    files.write_table(Path("days.csv"), ["file", "label"], truth.items())
    for day in range(1, len(NOISE) + 1):
        run("watch", "monitor", f"day{day}", "--ground-truth", "days.csv", prepared=())
    page = Path("monitor/index.html")
    first = area_of(browser, page, "section:has(h2:text-is('Accuracy'))")
    last = area_of(browser, page, "section:has(h2:text-is('Evidence that the model got worse'))")
    top = first.top - 8
    save(browser, page, Area(top, last.top + last.height + 8 - top), path)


def run(*words: str, prepared: Sequence[str] = PREPARED) -> None:
    """Run a command of pseudocal."""
    assert pseudocal([*words, *prepared, "-q"]) == 0, words


def area_of(browser: Any, page: Path, selector: str) -> Area:
    tab = opened(browser, page, "light")
    box = tab.locator(selector).first.bounding_box()
    tab.close()
    return Area(box["y"], box["height"])


def opened(browser: Any, page: Path, scheme: str) -> Any:
    tab = browser.new_page(
        viewport={"width": WIDTH, "height": 2400}, color_scheme=scheme, device_scale_factor=2
    )
    tab.goto(page.absolute().as_uri())
    return tab


def save(browser: Any, page: Path, area: Area, path: Path, numbered: Sequence[float] = ()) -> None:
    """Save a part of a page as an image for light and dark, with numbers beside it."""
    clip = {"x": 0, "y": area.top, "width": WIDTH, "height": area.height}
    margin = MARGIN if numbered else 0
    parts = []
    for scheme in ("light", "dark"):
        tab = opened(browser, page, scheme)
        shot = few_colours(tab.screenshot(clip=clip))
        tab.close()
        parts.append(
            f'<image class="{scheme}" x="{margin}" width="{WIDTH}" height="{area.height:.0f}" '
            f'href="data:image/png;base64,{b64encode(shot).decode()}"/>'
        )
    for number, top in enumerate(numbered, 1):
        y = top - area.top
        parts.append(f'<circle cx="14" cy="{y:.0f}" r="12"/>')
        parts.append(f'<text x="14" y="{y + 5:.0f}">{number}</text>')
    style = (
        ".dark{display:none} circle{fill:#2364aa} text{fill:#fff;font:bold 15px sans-serif;"
        "text-anchor:middle} @media (prefers-color-scheme:dark){.dark{display:inline}"
        ".light{display:none}}"
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + margin}" '
        f'height="{area.height:.0f}" viewBox="0 0 {WIDTH + margin} {area.height:.0f}">'
        f"<style>{style}</style>{''.join(parts)}</svg>\n",
        encoding="utf-8",
    )
    print(path, path.stat().st_size)


def few_colours(png: bytes) -> bytes:
    """The same image with a palette of 64 colours, a third of the size."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(64)
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
