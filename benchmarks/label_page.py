"""The labelling page: an image of it for the docs, and how long a large one takes to load.

    python benchmarks/label_page.py image docs/howto/label.png
    python benchmarks/label_page.py load

Both need chromium on the PATH and the package playwright. The image shows the built-in Noto emoji.
`load` opens a page with 200 detailed images and 1,000 classes five times, each time in a new
browser window.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pseudocal.app.labelling import ToLabel, write_labelling_page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
]
DESKTOP = {"width": 1000, "height": 600}
ROUNDS = 5
SHOWN = 50  # inputs on the page
LABELLED = 12  # how many of them have a label


def main() -> None:
    """Draw the image, or measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("image", help="draw the image of the docs")
    drawing.add_argument("png", type=Path)
    drawing.set_defaults(run=draw_page)
    commands.add_parser("load", help="measure how long a large page takes to load").set_defaults(
        run=measure_loading
    )
    given = parser.parse_args()
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        given.run(browser, Path(folder), given)
        browser.close()


def draw_page(browser: Any, folder: Path, given: argparse.Namespace) -> None:
    """A page of fifty inputs, a few of them labelled, as a PNG of few colours."""
    from pseudocal.lab.data import load

    noto = load("emoji")["noto"]
    rows = np.random.default_rng(0).permutation(len(noto.labels))[:SHOWN]
    for row in rows:
        Image.fromarray(noto.inputs[row : row + 1][0].transpose(1, 2, 0)).save(
            folder / f"{row}.png"
        )
    chosen = [ToLabel(f"unlabelled/images/{row:04}.png", folder / f"{row}.png") for row in rows]
    tab = browser.new_page(viewport=DESKTOP)
    path = folder / "label.html"
    write_labelling_page(path, chosen, noto.classes)
    tab.goto(path.as_uri())
    for row in rows[:LABELLED]:
        tab.keyboard.type(noto.classes[noto.labels[row]])
        tab.keyboard.press("Enter")
    tab.keyboard.type("animal")
    tab.wait_for_timeout(300)  # for the image to be decoded
    tab.screenshot(path=folder / "page.png")
    Image.open(folder / "page.png").convert("RGB").quantize(64).save(given.png, optimize=True)
    print(f"{given.png}: {given.png.stat().st_size:,} bytes")


def measure_loading(browser: Any, folder: Path, _given: argparse.Namespace) -> None:
    """The time until the page can be used, and its size."""
    rng = np.random.default_rng(0)
    for i in range(200):  # more detail than photographs of this size have
        pixels = rng.integers(0, 255, size=(90, 120, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((960, 720), Image.Resampling.BICUBIC).save(
            folder / f"{i}.jpg", quality=95
        )
    chosen = [ToLabel(f"{i}.jpg", folder / f"{i}.jpg") for i in range(200)]
    path = folder / "label.html"
    write_labelling_page(path, chosen, [f"class number {i}" for i in range(1000)])
    seconds = []
    for _round in range(ROUNDS):
        tab = browser.new_page(viewport=DESKTOP)
        started = time.perf_counter()
        tab.goto(path.as_uri())
        tab.wait_for_selector("body[data-ready]")
        tab.evaluate("document.getElementById('image').decode()")
        seconds.append(time.perf_counter() - started)
        tab.close()
    print(f"200 images, 1,000 classes: {path.stat().st_size / 1e6:.1f} MB")
    print(
        f"loaded in {statistics.median(seconds):.2f} s (median of {ROUNDS}, slowest {max(seconds):.2f} s)"
    )


if __name__ == "__main__":
    main()
