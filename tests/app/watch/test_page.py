"""The page of a monitor in a real browser: narrow and wide, light and dark, long and short."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from pseudocal.app.monitor_folder import (
    EARLY,
    LATE,
    OTHERS,
    BaselineEvent,
    BatchEvent,
    Change,
    ChangedClass,
    Event,
    LabelsEvent,
    Range,
    State,
    TruthEvent,
    TypicalInput,
    thinned,
)
from pseudocal.app.monitor_page import Axis, change_lines, page, temperature_chart
from pseudocal.monitor import Monitor, Reference, Signals

pytestmark = pytest.mark.filterwarnings("default")  # of the browser's driver
NASTY = '<script>alert("owned")</script>&"'


def identity(number: int) -> str:
    return f"{number:064x}"


def made(batches: int, *, alarm: bool = False, nasty: str = "") -> tuple[State, list[Event]]:
    """A monitor of many batches; from two thirds on they are worse."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 4))
    monitor = Monitor(Reference.of(Signals.of(logits, logits + rng.normal(size=logits.shape))))
    baseline = BaselineEvent(
        identity(0), "2024-01-01", f"model{nasty}.onnx", f"images{nasty}/", 400, 1.2,
        Range(0.9, 0.8, 0.97), False, 0.9, 0.93,
    )  # fmt: skip
    events: list[Event] = [baseline]
    start = datetime(2024, 1, 1)
    for i in range(batches):
        worse = i >= 2 * batches // 3
        accuracy = (0.7 if worse else 0.9) + 0.02 * float(rng.normal())
        events.append(
            BatchEvent(
                id=identity(i + 1),
                time=(start + timedelta(days=i)).isoformat()[:10],
                data=f"day {i}{nasty}",
                inputs=500,
                skipped=i % 3,
                accuracy=Range(accuracy, accuracy - 0.08, min(1.0, accuracy + 0.07)),
                confidence=0.88 + 0.01 * float(rng.normal()),
                agreement=accuracy + 0.03,
                in_use=1.2,
                temperature=Range(1.2 + worse, 1.0 + worse, 1.5 + worse),
                verdict="apply",
                gap=Range(0.88 - accuracy, 0.8 - accuracy, 0.95 - accuracy),
                predicted={f"class {k}{nasty}": 25 for k in range(20)},
                watched=500 * (i + 1),
                e_value=1e9 if worse else 0.3,
                alarm=worse,
                raised=i == 2 * batches // 3,
            )
        )
    change = None
    if alarm:
        change = Change(
            "disagreement",
            events[-1].time,
            events[-1].time,
            (ChangedClass(f"cat{nasty}", 0.1, 0.3, {"disagreement": 0.05, "uncertainty": -0.01}),),
            tuple(
                TypicalInput(f"{i}{nasty}.png", f"cat{nasty}", None, f"text {nasty}")
                for i in range(12)
            ),
        )
    state = State({}, 0, baseline, None, {}, None, {}, (), 1.2, monitor.as_json(), change=change)
    return replace(state, batches=batches), events


@pytest.fixture
def show(browser, tmp_path):
    """Open a page, and collect whatever it tries to say, fetch or do."""
    said: list[str] = []
    tabs = []

    def open_page(width: int, state: State, events: list[Event], scheme: str = "light") -> Any:
        path = tmp_path / "index.html"
        path.write_text(page(state, events), encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tabs.append(tab)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("dialog", lambda dialog: said.append(dialog.message))
        tab.on(
            "request",
            lambda request: said.append(request.url) if "file:" not in request.url else None,
        )
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert said == []


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("batches", [0, 1, 3, 200])
def test_it_fits(show, width, batches):
    state, events = made(batches, alarm=batches > 1, nasty=NASTY)
    tab = show(width, state, events)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    names = ("accuracy", "evidence", "temperature") if batches else ()
    for name in names:
        box = tab.locator(f"#figure-{name} svg").bounding_box()
        assert box["width"] > 0.7 * width
        assert box["height"] == 240
        small = tab.locator(f"#figure-{name} .times span").first
        assert small.evaluate("each => parseFloat(getComputedStyle(each).fontSize)") >= 12
    assert tab.locator("script").count() == 0
    assert tab.locator("h1").text_content() == f"model{NASTY}.onnx"
    assert "owned" not in tab.title() or tab.title() == f"Monitor of model{NASTY}.onnx"


def test_times_do_not_overlap_on_a_phone(show):
    tab = show(390, *made(200))
    boxes = [each.bounding_box() for each in tab.locator("#figure-accuracy .times span").all()]
    assert len(boxes) == 4
    for left, right in itertools.pairwise(boxes):
        assert left["x"] + left["width"] < right["x"]
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 390


def test_times_of_irregular_batches_do_not_overlap_on_a_phone(show):
    state, events = made(6)
    days = ("2009-01-31", "2009-03-31", "2009-04-30", "2009-08-31", "2009-11-30", "2010-06-30")
    for i, day in enumerate(days):
        events[i + 1] = replace(events[i + 1], time=day)
    tab = show(390, state, events)
    spans = tab.locator("#figure-accuracy .times span").all()
    assert [each.inner_text() for each in spans] == ["2009-01-31", "2009-08-31", "2010-06-30"]
    boxes = [each.bounding_box() for each in spans]
    for left, right in itertools.pairwise(boxes):
        assert left["x"] + left["width"] < right["x"]


def test_the_dark_is_dark(show):
    colours = {}
    for scheme in ("light", "dark"):
        tab = show(1200, *made(3), scheme=scheme)
        colours[scheme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}


def test_estimates_are_where_they_belong(show):
    """The band covers the estimate, and a worse batch is lower."""
    state, events = made(3)
    tab = show(1200, state, events)
    path = tab.locator("#figure-accuracy path.estimated.dots").get_attribute("d")
    heights = [float(part.split()[1].removesuffix("h0")) for part in path.split("M")[1:]]
    assert heights[2] > heights[0] + 20  # y grows downwards
    band = tab.locator("#figure-accuracy path.band").bounding_box()
    line = tab.locator("#figure-accuracy path.estimated").first.bounding_box()
    assert band["y"] < line["y"]
    assert band["y"] + band["height"] > line["y"] + line["height"]


def test_alarms_labels_and_ground_truth_are_drawn(show):
    state, events = made(6)
    batches = [event for event in events if isinstance(event, BatchEvent)]
    events.append(TruthEvent(identity(90), "2024-02-01", batches[2].id, 500, 0.85, 0.03))
    labels = LabelsEvent(
        identity(91), "2024-02-01", batches[4].time, batches[5].time, 1000, 50,
        Range(0.6, 0.4, 0.75), Range(0.2, 0.1, 0.4), 1.2, 2.0, "apply", True, True,
    )  # fmt: skip
    events.append(labels)
    tab = show(1200, replace(state, labelled=labels), events)
    marks = tab.locator("#figure-accuracy .mark")
    assert marks.all_text_contents() == ["alarm", "labels"]
    left = [float(mark.evaluate("each => parseFloat(each.style.left)")) for mark in marks.all()]
    assert left[0] < left[1]
    assert tab.locator("#figure-accuracy path.true.dots").count() == 1
    assert tab.locator("#figure-accuracy path.measured.dots").count() == 1
    assert tab.locator("#alarm strong").inner_text() == "Retrain the model"
    text = tab.locator("main").inner_text()
    assert "85%" in text
    assert "retrain the model" in text


def test_the_accuracy_of_the_last_batch_comes_first(show):
    tab = show(390, *made(6, alarm=True))
    sentences = tab.locator("section.verdict p").all_text_contents()
    accuracy = "2024-01-06, 500 inputs, 2 skipped: estimated accuracy"
    assert sentences[0].startswith(accuracy)
    assert sentences[1].startswith("The second model disagrees more often than in the baseline.")
    assert tab.locator("#alarm strong").inner_text() == "Alarm"


def test_changed_classes_are_named_or_numbered():
    rise = {"disagreement": 0.05}
    classes = (ChangedClass("5", 0.11, 0.14, rise), ChangedClass("Acetone", 0.35, 0.19, rise))
    _, said = change_lines(Change("disagreement", None, "2024-01-06", classes))
    assert said == (
        "Inputs predicted as these classes contribute most to the change: class 5 (11% of "
        "predictions in the baseline, 14% now), Acetone (35% of predictions in the baseline, 19% now)."
    )


def test_a_batch_without_a_clear_temperature_says_so(show):
    state, events = made(3)
    assert isinstance(events[-1], BatchEvent)
    events[-1] = replace(events[-1], temperature=None)
    facts = show(390, state, events).locator("ul.facts").inner_text()
    assert "too uncertain to fit a temperature; 1.20 is in use" in facts


def test_after_labels_the_measured_accuracy_comes_before_the_state_of_the_alarm(show):
    state, events = made(3)
    labels = LabelsEvent(
        identity(91), "2024-02-01", "2024-01-03", "2024-01-03", 1000, 50,
        Range(0.6, 0.4, 0.75), Range(0.2, 0.1, 0.4), 1.2, 2.0, "apply", False, True,
    )  # fmt: skip
    tab = show(390, replace(state, labelled=labels, temperature=2.0), [*events, labels])
    sentences = tab.locator("section.verdict p").all_text_contents()
    assert sentences[1].startswith("Measured on 50 labels, batch of 2024-01-03: accuracy 60%")
    assert sentences[-1] == "The alarm needs 100 inputs; there are 0 since the last labels."
    assert "1.20 was in use" in tab.locator("ul.facts").inner_text()


def test_the_interval_of_a_temperature_is_drawn_whole():
    _, events = made(3)
    batches = [event for event in events if isinstance(event, BatchEvent)]
    batches[-1] = replace(batches[-1], temperature=Range(1.5, 0.4, 6.0))
    chart = temperature_chart(batches, Axis(batches))
    assert chart is not None
    band = dict(chart.paths)["band"].replace("Z", "").replace("M", "L").split("L")[1:]
    heights = [float(point.split()[1]) for point in band]
    assert 0 < min(heights) < max(heights) < 100


def test_retraining_is_the_next_step_after_labels_that_ask_for_it(show):
    state, events = made(3)
    labels = LabelsEvent(
        identity(91), "2024-02-01", "2024-01-03", "2024-01-03", 1000, 50,
        Range(0.6, 0.4, 0.75), Range(0.2, 0.1, 0.4), 1.2, 2.0, "apply", True, True,
    )  # fmt: skip
    tab = show(390, replace(state, labelled=labels, temperature=2.0, batches=1), [*events, labels])
    assert tab.locator("#alarm strong").inner_text() == "Retrain the model"
    sentences = tab.locator("section.verdict p").all_text_contents()
    assert sentences[-1].endswith("pseudocal watch MONITOR --baseline OUT")
    assert "in 1 batch since the last labels" in tab.locator("header").inner_text()


def test_hover_gives_the_numbers_of_a_batch(show):
    tab = show(1200, *made(200))
    tips = tab.locator("#figure-accuracy rect.area title")
    assert tips.count() == 200
    assert tips.first.text_content().startswith("2024-01-01: 500 inputs, estimated accuracy 9")


@pytest.mark.parametrize("missing", [False, True])
def test_batches_that_were_counted_late_stand_where_they_belong(missing):
    state, events = made(9)
    if missing:  # a gap in the line
        events[7] = replace(events[7], accuracy=None)
    late = [events[0], *events[5:], *events[1:5]]
    assert _first_line(page(state, late)) == _first_line(page(state, events))


def _first_line(html: str) -> str:
    return html.partition('<path class="estimated" d="')[2].partition('"')[0]


def test_a_thousand_batches_stay_below_two_megabytes():
    """The page of 5,000 batches is not larger."""
    sizes = []
    for batches in (1000, 5000):
        state, events = made(batches, alarm=True)
        sizes.append(len(page(state, _one_by_one(events)).encode()))
    assert sizes[0] < 2_000_000
    assert sizes[1] < 1.1 * sizes[0]


def _one_by_one(events: list[Event]) -> list[Event]:
    drawn: list[Event] = []
    for event in events:
        drawn = thinned([*drawn, event])
    return drawn


def test_thinned_events_are_late_ones_alarms_and_some_of_all_times():
    events = made(1000)[1]
    drawn = _one_by_one(events)
    assert drawn == [event for event in events if event in drawn]
    assert drawn[0] == events[0]  # the baseline
    assert drawn[-LATE:] == events[-LATE:]
    batches = [event for event in drawn if isinstance(event, BatchEvent)]
    assert len(batches) == LATE + EARLY
    assert sum(batch.raised for batch in batches) == 1
    days = [datetime.fromisoformat(batch.time) for batch in batches]
    gaps = [(late - early).days for early, late in itertools.pairwise(days)]
    assert sum(gaps) == 999
    assert max(gaps) <= 4 * 940 / EARLY  # 940 days before the latest 60


def test_ground_truth_goes_with_its_batch_and_many_labels_go():
    events = made(LATE + EARLY + 1)[1]
    first, second = events[1:3]
    truths = [
        TruthEvent(identity(9000 + i), "2024-02-01", batch.id, 500, 0.85, 0.03)
        for i, batch in enumerate((first, second))
    ]
    labels = [
        LabelsEvent(
            identity(9100 + i), "2024-02-01", "2024-01-01", "2024-01-01", 1000, 50,
            Range(0.6, 0.4, 0.75), Range(0.2, 0.1, 0.4), 1.2, 2.0, "apply", True, True,
        )
        for i in range(OTHERS + 5)
    ]  # fmt: skip
    drawn = thinned([*events, *truths, *labels])
    assert first in drawn
    assert second not in drawn  # its neighbours are as close as others', and it comes first
    assert [event for event in drawn if isinstance(event, TruthEvent)] == truths[:1]
    assert [event for event in drawn if isinstance(event, LabelsEvent)] == labels[-OTHERS:]


def test_only_alarms_go_too():
    """So that a monitor of nothing but alarms is as small as others."""
    events = [
        replace(event, raised=True) if isinstance(event, BatchEvent) else event
        for event in made(LATE + EARLY + 5)[1]
    ]
    assert len(thinned(events)) == LATE + EARLY + 1
