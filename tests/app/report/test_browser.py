"""The report in a real browser.

Everything is there, nothing runs, nothing is fetched, it fits narrow and wide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal.app.report import Report, page
from pseudocal.app.report.page import comparison, line_of
from pseudocal.app.thresholds import ClassLine, RunThreshold
from pseudocal.arrays import Labelled
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.thresholds import Candidate, Light

pytestmark = pytest.mark.filterwarnings("default")  # of the browser's driver


@pytest.fixture
def show(browser, image_files, tmp_path, made):
    """Open a report and collect whatever the page tries to say, fetch or do."""
    events: list[str] = []
    tabs = []

    def open_report(
        width: int,
        scheme: str = "light",
        segments: bool = False,
        changed: Callable[[Report], Report] = lambda report: report,
        **settings,
    ):
        path = tmp_path / f"{made.NASTY.replace('/', '')} report.html"
        make = made.make_segmented if segments else made.make_report
        report = changed(make(image_files=image_files, **settings))
        path.write_text(page(report), encoding="utf-8")
        assert path.stat().st_size < 2_000_000
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tabs.append(tab)
        tab.on("console", lambda message: events.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: events.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
        tab.on(
            "request", lambda request: events.append(request.url) if _outside(request.url) else None
        )
        tab.goto(path.as_uri())
        assert "Calibration of" in tab.title()  # and not "owned"
        return tab

    yield open_report
    for tab in tabs:
        tab.close()
    assert events == []


def _outside(url: str) -> bool:
    return not (
        url.startswith("data:") or (url.startswith("file:") and url.endswith("report.html"))
    )


@pytest.mark.parametrize("labelled", [False, True])
def test_every_figure_is_there(show, labelled):
    tab = show(1400, labelled=labelled)
    for name in ("confidences", "reliability-before", "reliability-after"):
        box = tab.locator(f"#figure-{name}").bounding_box()
        assert box["width"] > 300
        assert tab.locator(f"#figure-{name} title").text_content()
        assert tab.locator(f"#figure-{name} desc").text_content()
        assert tab.locator(f"#figure-{name} rect.after, #figure-{name} rect.before").count() > 5
    image_files = tab.locator(".examples img")
    assert image_files.count() == 24
    assert image_files.evaluate_all(
        "all => all.every(image => image.complete && image.naturalWidth > 0)"
    )
    assert tab.locator("#metrics").count() == int(labelled)


def test_hover_gives_numbers(show):
    tab = show(1400)
    column = tab.locator("#figure-confidences .hover").last
    assert not column.locator(".tip").is_visible()
    column.locator(".area").hover()
    assert column.locator(".tip").is_visible()
    assert "before" in column.locator(".tip").text_content()


def looks(tab):
    """The same page narrow and wide, light and dark."""
    for width, scheme in itertools.product((390, 1400), ("light", "dark")):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        yield width, scheme


def test_it_fits(show):
    tab = show(400, labelled=True)
    for width, scheme in looks(tab):
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(v) for v in paper[4:-1].split(",")) > 380) == (scheme == "light")


@pytest.mark.parametrize(("width", "least"), [(375, 150), (1200, 250)])
def test_maps_fill_the_page_in_their_own_shape(show, width, least):
    tab = show(width, segments=True, labelled=True)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    shown = tab.locator(".maps img")
    boxes = shown.evaluate_all("all => all.map(e => e.getBoundingClientRect().toJSON())")
    assert len(boxes) == 24
    assert min(box["width"] for box in boxes) >= least
    own = shown.evaluate_all("all => all.map(e => e.naturalWidth / e.naturalHeight)")
    assert [box["width"] / box["height"] for box in boxes] == pytest.approx(own, rel=0.02)
    assert max(box["right"] for box in boxes) > width - 40
    assert tab.locator(".maps figcaption").first.is_visible()


LINES = """cells => cells.flatMap(cell => {
    const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), split = [];
    while (words.nextNode()) for (const word of words.currentNode.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(words.currentNode, word.index);
        range.setEnd(words.currentNode, word.index + word[0].length);
        if (range.getClientRects().length > 1) split.push(word[0]);
    }
    return split;
})"""


def broken(tab) -> list[str]:
    """The words and numbers in tables that go on in another line; long names may."""
    cells = tab.locator("table:not(.plain):visible td, table:not(.plain):visible th")
    return [word for word in cells.evaluate_all(LINES) if len(word) < 14]


@pytest.mark.parametrize(
    ("segments", "verdict"),
    [
        (False, "caution"),
        (True, "do not apply"),
        pytest.param(False, "do not apply", marks=pytest.mark.slow),
        pytest.param(True, "caution", marks=pytest.mark.slow),
    ],
)
def test_on_a_telephone_no_number_or_word_is_broken_and_tables_scroll(show, segments, verdict):
    tab = show(375, labelled=True, segments=segments, verdict=verdict)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    assert broken(tab) == []
    overflows = "all => all.map(e => getComputedStyle(e.parentElement).overflowX)"
    assert set(tab.locator("table").evaluate_all(overflows)) == {"auto"}
    assert tab.locator(".hero .scroll").evaluate(
        "e => e.scrollWidth <= e.clientWidth"
    )  # both temperatures fit


@pytest.mark.parametrize("verdict", ["apply", "caution", "do not apply"])
def test_the_verdict_stands_at_the_top_and_can_be_read(show, made, verdict):
    tab = show(400, verdict=verdict)
    panel = tab.get_by_role("region", name="Verdict")  # what a screen reader calls it
    assert verdict in panel.locator("h2").text_content().lower()
    assert panel.locator("h2 svg .sign").bounding_box()["width"] > 0  # a sign, not a colour alone
    assert panel.locator(".reasons li").count() == 2
    assert panel.bounding_box()["y"] < tab.locator("#temperature").bounding_box()["y"]
    chart = tab.locator("#figure-accuracy")
    assert chart.bounding_box()["width"] > 300
    assert "Estimated accuracy: 58% (46% to 70%)" in chart.locator("desc").text_content()
    for label, value in zip(
        chart.locator(".label").all(), chart.locator(".value").all(), strict=True
    ):
        assert label.bounding_box()["x"] + label.bounding_box()["width"] < value.bounding_box()["x"]
    assert chart.locator("path.before, path.after, rect.interval, circle.estimated").count() == 4
    for _ in looks(tab):  # the contrast that is asked of large text
        word = tab.locator("#verdict strong").evaluate("e => getComputedStyle(e).color")
        paper = panel.evaluate("e => getComputedStyle(e).backgroundColor")
        assert made.contrast(word, paper) > 4.5


def with_longest_answers(report: Report) -> Report:
    """A cause, a risk in numbers and a threshold of two models: the longest answers there are."""
    cause = Reason(ReasonCode.WITHIN_INTERVAL, {"before": 0.957, "low": 0.73, "high": 1.0})
    risk = Reason(ReasonCode.EXPECTED_GAIN, {"fell": 6.0})
    trust = replace(report.trust, reasons=(cause, risk))
    threshold = RunThreshold(0.05, "estimated", 0.0, 0.7786, True, 0.72, 0.05)
    advice = replace(report.recommendation, reason=cause)
    return replace(report, trust=trust, threshold=threshold, recommendation=advice)


def with_class_thresholds(report: Report) -> Report:
    """Twelve classes with each light."""
    lights: tuple[Light, ...] = ("estimated", "not enough labels", "guaranteed")
    lines = [
        ClassLine(k, f"kind of thing {k}", light, 0.0, 0.91234, 0.4, 40 - k)
        for k, light in enumerate(lights * 4)
    ]
    threshold = RunThreshold(
        0.05, "guaranteed", 0.9, None, True, 0.4, 0.02, 77, 1, classes=tuple(lines)
    )
    candidates = (Candidate(0.4, 77, 1, 0.0497),)
    return replace(report, threshold=replace(threshold, candidates=candidates))


@pytest.mark.parametrize("width", [390, 1200])
def test_thresholds_by_class_have_a_light_each(show, made, width):
    tab = show(width, changed=with_class_thresholds)
    lights = tab.locator(".lights .light")
    shown = [light.text_content() for light in lights.all() if light.is_visible()]
    assert shown == ["guaranteed"] * 4 + ["estimated"] * 4
    assert "4 more classes without enough labels" in tab.locator("main").text_content()
    assert tab.locator(".lights").first.locator("th[scope=row]").first.text_content() == (
        "kind of thing 2"  # of the guaranteed ones, that with most labels
    )
    colours = {
        light.text_content(): light.evaluate("e => getComputedStyle(e, '::before').borderColor")
        for light in lights.all()
    }
    assert len(set(colours.values())) == 3
    dot = "e => getComputedStyle(e, '::before').backgroundColor"
    assert lights.first.evaluate(dot) == colours["guaranteed"]
    assert lights.last.evaluate(dot) == "rgba(0, 0, 0, 0)"  # a shape, not a colour alone
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert broken(tab) == []
        tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert tab.evaluate(CUT_OFF) == []
        assert tab.evaluate(OVERLAPS) == []
        tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = false)")


@pytest.mark.parametrize("size", [(1200, 800), (390, 844)], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    "settings",
    [
        {"verdict": "apply"},
        {"verdict": "caution"},
        {"verdict": "do not apply", "labelled": True},
        {"segments": True, "labelled": True},
        {"verdict": "caution", "changed": with_longest_answers},
    ],
    ids=["deploy", "label", "keep", "pixels", "longest"],
)
def test_the_recommendation_stands_in_the_first_screen(show, settings, size):
    tab = show(size[0], **settings)
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    panel = tab.get_by_role("region", name="Recommendation")
    bottoms = []
    for name in (".headline", "h2", ".command code", ".because", ".essentials"):
        box = panel.locator(name).bounding_box()
        assert box["width"] > 100
        assert box["x"] + box["width"] <= size[0]
        bottoms.append(box["y"] + box["height"])
    assert bottoms[:4] == sorted(bottoms[:4])  # accuracy, decision, command, reason
    assert max(bottoms) <= size[1]
    command = panel.locator(".command code").text_content()
    decision = panel.locator("h2 strong").text_content()
    assert command == "pseudocal label out -n 50"
    wanted = {
        "apply": "Deploy the calibrated model.onnx instead of the original, or first label",
        "do not apply": "Keep the model",
    }
    assert decision.startswith(wanted.get(settings.get("verdict"), "Label 50"))
    assert panel.locator("dt").count() == 4


@pytest.mark.parametrize("size", [(1200, 800), (390, 844)], ids=["wide", "narrow"])
def test_ten_questions_are_answered_in_the_first_screen_as_the_docs_say(show, size):
    docs = (Path(__file__).parents[3] / "docs" / "howto" / "report.md").read_text(encoding="utf-8")
    lines = docs.partition("| question | where | what it says |\n|---|---|---|\n")[2].splitlines()
    answers = [line.split("`", 1)[1].rsplit("`", 1)[0] for line in lines if line.startswith("|")]
    assert len(answers) == 10
    tab = show(size[0], verdict="caution")
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    panel = tab.get_by_role("region", name="Recommendation")
    box = panel.bounding_box()
    assert box["y"] + box["height"] <= size[1]
    text = " ".join(panel.text_content().split())
    assert [answer for answer in answers if answer not in text] == []


def test_the_reliability_of_mixup_samples_is_folded_unless_t_comes_from_them(show):
    fitted = show(1200)
    assert fitted.locator("#figure-reliability-after").is_visible()
    rejected = show(1200, verdict="do not apply")
    assert not rejected.locator("#figure-reliability-after").is_visible()
    rejected.locator(".diagnostics summary").first.click()
    assert rejected.locator("#figure-reliability-after").is_visible()
    measured = show(1200, verdict="do not apply", labelled=True)
    assert measured.locator("#figure-reliability-after").is_visible()


def test_bars_of_one_or_two_inputs_are_pale_and_have_no_interval(show):
    tab = show(1200, **of_classes(52))
    few = tab.locator("#figure-reliability-before rect.few")
    rows = tab.locator("#figure-reliability-before ~ figcaption tbody tr")
    counts = [int(row.locator("td").first.text_content()) for row in rows.all()]
    assert few.count() == sum(count < 3 for count in counts) > 0
    assert tab.locator("#figure-reliability-before .whisker").count() == len(counts) - few.count()
    opacity = few.first.evaluate("e => getComputedStyle(e).fillOpacity")
    assert float(opacity) < 0.5
    assert (
        "Pale bars have one or two inputs and are too few to interpret."
        in tab.locator("main").text_content()
    )


def test_it_prints_and_nothing_from_outside_becomes_an_element(show, made, tmp_path):
    tab = show(1400)
    assert tab.locator("img[onerror]").count() == 0
    assert tab.locator("script").count() == 0
    assert tab.locator("h1").text_content() == made.NASTY
    tab.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 10_000


@pytest.mark.parametrize("segments", [False, True])
def test_on_paper_nothing_is_dark_cut_off_or_folded(show, segments):
    tab = show(
        680, "dark", labelled=True, segments=segments
    )  # what a sheet of A4 leaves between its margins
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("document.documentElement.scrollWidth") <= 680
    inner = tab.locator("table:visible, pre, figure, .examples")
    assert (
        inner.evaluate_all("all => Math.max(...all.map(e => e.getBoundingClientRect().right))")
        <= 680
    )
    assert broken(tab) == []
    assert tab.locator("#figure-accuracy").bounding_box()["width"] > 200
    assert not tab.locator(
        "figure summary"
    ).first.is_visible()  # there is nothing to unfold on paper
    name = tab.locator(".examples .name").first
    assert name.evaluate("e => e.scrollWidth <= e.clientWidth")


OVERLAPS = """() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
        const node = walker.currentNode, parent = node.parentElement;
        if (!node.data.trim() || !parent.checkVisibility({visibilityProperty: true})) continue;
        if (parent.closest("title, desc, style")) continue;
        const hidden = getComputedStyle(parent).overflowX === "hidden", edge = parent.getBoundingClientRect().right;
        const range = document.createRange();
        range.selectNodeContents(node);
        for (const {left, right, top, bottom} of range.getClientRects())
            if (right - left > 1) found.push([node, {left, right: hidden ? edge : right, top, bottom}]);
    }
    const clash = [];
    for (let i = 0; i < found.length; i++) for (let k = i + 1; k < found.length; k++) {
        const [one, a] = found[i], [two, b] = found[k];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (one !== two && wide > 1.5 && high > 4) clash.push(`${one.data} / ${two.data}`);
    }
    return clash;
}"""
CUT_OFF = """() => [...document.querySelectorAll(".scroll, .verdict, .hero, section")]
    .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth)
    .map(e => `${e.className} ${e.scrollWidth} > ${e.clientWidth}: ${e.textContent.slice(0, 60)}`)"""
CROSSED = """() => {
    const boxes = [...document.querySelectorAll("#figure-accuracy text")].map(e => e.getBoundingClientRect());
    const across = (line, b) => line.left > b.left && line.left < b.right;
    const meets = (line, b) => across(line, b) && line.top < b.bottom - 2 && line.bottom > b.top + 2;
    const guides = [...document.querySelectorAll("#figure-accuracy .guide")].map(e => e.getBoundingClientRect());
    return guides.filter(line => boxes.some(b => meets(line, b))).length;
}"""


def of_classes(classes: int, labelled: bool = True) -> dict[str, Any]:
    """The settings of a report on a classifier of so many classes."""
    rng = np.random.default_rng(0)
    z = 4.5 * rng.normal(size=(600, classes))
    labels = (z / 3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    given = {
        "logits": z,
        "mixup_samples": Labelled(z[:580], labels[:580]),
        "ground_truth": labels if labelled else None,
    }
    return given | {"classes": [f"kind of thing {i}" for i in range(classes)]}


@pytest.mark.parametrize(
    "settings",
    [
        of_classes(2),
        of_classes(2, labelled=False),
        of_classes(52),
        of_classes(1000) | {"verdict": "do not apply"},
        {"segments": True, "labelled": True},
    ],
    ids=["two", "unlabelled", "fifty-two", "thousand", "segmentation"],
)
def test_no_text_overlaps_and_no_column_is_cut_off(show, settings):
    tab = show(1200, **settings)
    for width in (390, 1200):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = false)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(OVERLAPS) == []
        assert tab.evaluate(CROSSED) == 0
        tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert tab.evaluate(CUT_OFF) == []
        assert tab.evaluate(OVERLAPS) == []
        if tab.locator("#metrics").count():
            change = tab.locator("[aria-labelledby=metrics] td:last-child").first.bounding_box()
            assert 0 <= change["x"] <= change["x"] + change["width"] <= width


def test_a_comparison_fits(browser, made, tmp_path):
    reports = [
        made.make_report(labelled=True),
        made.make_report(verdict="do not apply"),
        made.make_segmented(),
    ]
    lines = [
        line_of(one, f"results of day {k}", f"{k}/report.html") for k, one in enumerate(reports)
    ]
    (tmp_path / "comparison.html").write_text(comparison(lines), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "comparison.html").as_uri())
    assert tab.locator("tbody tr").count() == 3
    for width, _ in looks(tab):
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(CUT_OFF) == []
        assert tab.evaluate(OVERLAPS) == []
        word = tab.locator(".word.bad").evaluate("e => getComputedStyle(e).color")
        assert (
            made.contrast(word, tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            > 4.5
        )
