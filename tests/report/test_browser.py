"""The report in a real browser: everything is there, nothing runs, nothing is fetched, it fits narrow and wide."""

from __future__ import annotations

import shutil

import pytest

from pseudocal.report import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
    pytest.mark.filterwarnings("default"),  # of the browser's driver
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, pictures, tmp_path, made):
    """Open a report and collect whatever the page tries to say, fetch or do."""
    events: list[str] = []

    def open_report(width: int, scheme: str = "light", **settings):
        path = tmp_path / f"{made.NASTY.replace('/', '')} report.html"
        path.write_text(page(made.make_content(pictures=pictures, **settings)), encoding="utf-8")
        assert path.stat().st_size < 2_000_000
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: events.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: events.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda request: events.append(request.url) if _outside(request.url) else None)
        tab.goto(path.as_uri())
        tab.wait_for_load_state("networkidle")
        assert "Calibration of" in tab.title()  # and not "owned"
        return tab

    yield open_report
    assert events == []


def _outside(url: str) -> bool:
    return not (url.startswith("data:") or (url.startswith("file:") and url.endswith("report.html")))


@pytest.mark.parametrize("labelled", [False, True])
def test_every_figure_is_there(show, labelled):
    tab = show(1400, labelled=labelled)
    for name in ("confidences", "reliability-before", "reliability-after"):
        box = tab.locator(f"#figure-{name}").bounding_box()
        assert box["width"] > 300
        assert tab.locator(f"#figure-{name} title").text_content()
        assert tab.locator(f"#figure-{name} desc").text_content()
        assert tab.locator(f"#figure-{name} rect.after, #figure-{name} rect.before").count() > 5
    pictures = tab.locator(".examples img")
    assert pictures.count() == 24
    assert all(pictures.nth(i).evaluate("image => image.complete && image.naturalWidth > 0") for i in range(24))
    assert tab.locator("#measured").count() == int(labelled)


def test_hover_gives_numbers(show):
    tab = show(1400)
    column = tab.locator("#figure-confidences .hover").last
    assert not column.locator(".tip").is_visible()
    column.locator(".area").hover()
    assert column.locator(".tip").is_visible()
    assert "before" in column.locator(".tip").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits(show, width, scheme):
    tab = show(width, scheme, labelled=True)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(v) for v in paper[4:-1].split(",")) > 380) == (scheme == "light")


def test_nothing_from_outside_becomes_an_element(show, made):
    tab = show(1400)
    assert tab.locator("img[onerror]").count() == 0
    assert tab.locator("script").count() == 0
    assert tab.locator("h1").text_content() == made.NASTY


def test_it_prints(show, tmp_path):
    tab = show(1400)
    tab.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 10_000
