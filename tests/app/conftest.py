"""A browser to look at pages."""

from __future__ import annotations

import os
import shutil

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
REQUIRED = (
    os.environ.get("PSEUDOCAL_BROWSER") == "required"
)  # as .ci/run says: there nothing is skipped


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None and not REQUIRED:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    assert CHROMIUM, "expected a chromium, got none on the PATH"
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
