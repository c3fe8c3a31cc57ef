"""What people and programs look at: `index.html`, its sentences, and `metrics.prom`.

Charts are stretched to the width of the page. Their lines are in an SVG of 1,000 by 100 units
without a fixed aspect ratio; the texts around them are HTML, so they are readable on a phone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pseudocal.app.monitor_folder import (
    EARLY,
    LATE,
    METRICS,
    MONITOR_PAGE,
    BaselineEvent,
    BatchEvent,
    Change,
    Event,
    LabelsEvent,
    Range,
    State,
    TruthEvent,
    needs_retraining,
)
from pseudocal.app.periods import parse_time
from pseudocal.app.report.page import from_template
from pseudocal.monitor import DISAGREEMENT, FEWEST, UNCERTAINTY, Monitor

WIDTH = 1000  # units of a chart
HEIGHT = 100
EDGE = 12  # units that stay free at both ends
FEW_BATCHES = 60  # so many have a dot each
TICKS = 4  # times below a chart
TICK_WIDTH = 240  # units that a time takes on a phone
SMALLEST_E = 0.1  # the bottom of the chart of the evidence
LARGEST_E = 1e4  # and its top
SIGNALS = {
    DISAGREEMENT: "The second model disagrees more often than in the baseline.",
    UNCERTAINTY: "The model is less confident than in the baseline.",
}


# ------------------------------------------------------------------------------ sentences


def value_of(known: Range | None) -> float | None:
    """The value of an estimate without its interval; None if there is no estimate."""
    return None if known is None else known.value


def in_percent(value: Range | None) -> str:
    """An estimate with its interval in percent; a dash if there is none.

    >>> in_percent(Range(0.5, 0.41, 0.6))
    '50% (41% to 60%)'
    """
    return _with_interval(value, "{:.0%}".format)


def in_points(value: Range | None) -> str:
    """A gap with its interval in points; a dash if there is none.

    >>> in_points(Range(0.1, -0.02, 0.2)), in_points(Range(-0.01)), in_points(None)
    ('+10 points (-2 to +20)', '-1 point', '-')
    """
    one = value is not None and f"{100 * value.value:+.0f}" in ("+1", "-1")
    return _with_interval(value, lambda x: f"{100 * x:+.0f}", " point" if one else " points")


def temperature_words(value: Range | None) -> str:
    """A temperature with its interval; a dash if there is none.

    >>> temperature_words(Range(1.5, 1.2, None))
    '1.50'
    """
    return _with_interval(value, "{:.2f}".format)


def _with_interval(value: Range | None, form: Callable[[float], str], unit: str = "") -> str:
    if value is None:
        return "-"
    text = form(value.value) + unit
    if value.low is None or value.high is None:
        return text
    return f"{text} ({form(value.low)} to {form(value.high)})"


def batch_lines(batch: BatchEvent, state: State) -> Iterator[str]:
    """What a batch says, in sentences; the accuracy comes first."""
    skipped = f", {batch.skipped:,} skipped" if batch.skipped else ""
    about = f"{batch.time}, {batch.inputs:,} inputs{skipped}"
    baseline = state.baseline.accuracy
    if batch.accuracy is None:
        yield f"{about}: the accuracy could not be estimated without labels."
    else:
        before = ""
        if baseline is not None:
            how = " (measured)" if state.baseline.measured else ""
            before = f"; baseline {baseline.value:.0%}{how}"
        yield f"{about}: estimated accuracy {in_percent(batch.accuracy)}{before}."
    confidence = f"Mean confidence {batch.confidence:.0%} with T = {batch.in_use:.2f}"
    if batch.agreement is not None:
        confidence += f"; the second model agrees on {batch.agreement:.0%}"
    yield confidence + "."
    if batch.gap is not None:
        yield f"Confidence minus estimated accuracy: {in_points(batch.gap)}."
    used = f"{batch.in_use:.2f} {'is' if batch.in_use == state.temperature else 'was'}"
    if batch.temperature is not None:
        fits = f"The temperature fitted to this batch is {temperature_words(batch.temperature)}"
        yield f"{fits}; {used} in use."
    elif batch.accuracy is not None:
        yield f"The estimated accuracy is too uncertain to fit a temperature; {used} in use."


def headline(state: State) -> tuple[str, str]:
    """The state in a word or two, and its colour."""
    if state.change is not None:
        return "Alarm", "bad"
    if needs_retraining(state):
        return "Retrain the model", "bad"
    if Monitor.from_json(state.monitor).inputs < FEWEST:
        return "Not enough data", "caution"
    return "No alarm", "good"


def alarm_lines(state: State) -> Iterator[str]:
    """The state of the alarm, in sentences that follow the headline."""
    report = Monitor.from_json(state.monitor).report
    if state.change is not None:
        yield from change_lines(state.change)
    elif report.inputs < FEWEST:
        start = "baseline"
        if state.labelled is not None and state.labelled.rearmed:
            start = "last labels"
        yield f"The alarm needs {FEWEST} inputs; there are {report.inputs:,} since the {start}."
    else:
        evidence = f"The evidence of a change is {report.e_value:.2g}"
        yield f"{evidence}; the alarm is raised at {report.threshold:.0f}."
    if len(report.e_values) == 1:
        yield (
            "There is no second model, so only the uncertainty is watched and fully confident "
            "errors are missed."
        )


def change_lines(change: Change) -> Iterator[str]:
    """What changed, in sentences."""
    since = "before the oldest stored batch"
    if change.since is not None:
        since = f"with the batch of {change.since}"
    yield f"{SIGNALS[change.signal]} The change began {since}."
    worse = [one for one in change.classes if max(one.increase.values()) > 0][:3]
    if worse:
        listed = [
            f"{_class_words(one.name)} ({one.before:.0%} of predictions in the baseline, "
            f"{one.now:.0%} now)"
            for one in worse
        ]
        yield f"Inputs predicted as these classes contribute most to the change: {', '.join(listed)}."


def _class_words(name: str) -> str:
    """A class in a sentence: its name, or "class 5" if it has only a number.

    >>> _class_words("Acetone"), _class_words("5")
    ('Acetone', 'class 5')
    """
    return f"class {name}" if name.isdecimal() else name


def labels_lines(event: LabelsEvent) -> Iterator[str]:
    """What labels have measured, in sentences."""
    batches = f"batches of {event.first} to {event.last}"
    if event.first == event.last:
        batches = f"batch of {event.first}"
    yield (
        f"Measured on {event.labels} labels, {batches}: accuracy {in_percent(event.accuracy)}, "
        f"confidence minus accuracy {in_points(event.gap)} with T = {event.before:.2f}."
    )
    yield (
        "These 95% intervals stay valid if you add labels. The report also uses the unlabelled "
        "inputs, so its accuracy differs slightly."
    )
    if event.temperature == event.before:
        yield f"T = {event.temperature:.2f} stays in use."
    else:
        yield f"The monitor now uses T = {event.temperature:.2f}."
    if event.retrain:
        yield (
            "The accuracy has fallen below that of the baseline. A temperature corrects "
            "confidences, not predictions: retrain the model."
        )
    if event.advice:
        if event.retrain:
            yield f"Until then, {event.advice[0].lower()}{event.advice[1:]}."
        else:
            yield f"Recommendation: {event.advice}."
    if event.rearmed:
        yield "The labelled batches are the new baseline of the alarm."


# ------------------------------------------------------------------------------ charts


@dataclass(frozen=True)
class Text:
    """A text beside a chart, or a vertical line through it: where it stands, and its class."""

    at: float
    text: str
    kind: str = ""


Position = Callable[[float], float]
Value = TypeVar("Value")


class Axis:
    """The horizontal axis: where the times of batches stand, which come in the order of time."""

    def __init__(self, batches: Sequence[BatchEvent]) -> None:
        self.times = [parse_time(batch.time).timestamp() for batch in batches]
        self.first = self.times[0]
        self.last = self.times[-1]
        self.xs = [self.at(time) for time in self.times]

    def at(self, time: float) -> float:
        """Where a time stands."""
        if self.last == self.first:
            return WIDTH / 2
        inside = WIDTH - 2 * EDGE
        return round(EDGE + inside * (time - self.first) / (self.last - self.first), 1)

    def of(self, text: str) -> float:
        """Where a time of the history stands, or the nearest end."""
        time = parse_time(text).timestamp()
        return self.at(min(max(time, self.first), self.last))

    @property
    def ticks(self) -> list[Text]:
        """A few times below the chart."""
        span = self.last - self.first
        found = [self.first]
        for i in range(1, TICKS - 1):
            goal = self.first + i * span / (TICKS - 1)
            time = min(self.times, key=lambda time: abs(time - goal))
            x = self.at(time)
            if min(x - self.at(found[-1]), self.at(self.last) - x) >= TICK_WIDTH:
                found.append(time)
        if span:
            found.append(self.last)
        form = "%m-%d %H:%M" if 0 < span < 2 * 86400 else "%Y-%m-%d"
        return [
            Text(self.at(time), datetime.fromtimestamp(time, UTC).strftime(form)) for time in found
        ]

    @property
    def areas(self) -> list[tuple[float, float]]:
        """The left edge and the width of the area of each batch."""
        places = sorted(set(self.xs))
        edges = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(places)), float(WIDTH)]
        areas = dict(zip(places, itertools.pairwise(edges), strict=True))
        found = [areas[x] for x in self.xs]
        return [(round(left, 1), round(right - left, 1)) for left, right in found]


@dataclass(frozen=True)
class Chart:
    """A chart over time: what was drawn on it, a class and a path each."""

    name: str  # its name in the page
    title: str  # its heading
    description: str  # what it shows, for screen readers
    axis: Axis  # where each batch stands
    y: Position  # the height of a value
    y_ticks: Sequence[Text]  # the texts at the left
    legend: list[tuple[str, str]]  # the class and the text of each line
    tips: Sequence[tuple[float, float, str]] = ()  # left edge, width and text of each batch
    paths: list[tuple[str, str]] = field(default_factory=list)

    def level(self, value: float) -> None:
        """Draw a horizontal line."""
        self.paths.append(("level", f"M0 {self.y(value):g}H{WIDTH}"))

    def line(self, kind: str, values: Sequence[float | None], *, dots: bool = False) -> None:
        """Draw a line through the values of the batches; a missing one interrupts it."""
        runs = list(_runs(zip(self.axis.xs, values, strict=True)))
        heights = [[(x, self.y(value)) for x, value in run] for run in runs]
        self.paths.append((kind, "".join(_line(run) for run in heights)))
        if dots:
            path = "".join(_line([point]) for run in heights for point in run)
            self.paths.append((f"{kind} dots", path))

    def line_and_dots(self, kind: str, values: Sequence[float | None]) -> None:
        """Draw a line, with dots if there are few batches."""
        self.line(kind, values, dots=len(values) <= FEW_BATCHES)

    def band(self, values: Sequence[Range | None]) -> None:
        """Draw the area between both ends of the values; a missing one interrupts it."""
        ends = [
            None if one is None or one.low is None or one.high is None else (one.low, one.high)
            for one in values
        ]
        path = ""
        for run in _runs(zip(self.axis.xs, ends, strict=True)):
            if len(run) == 1:
                [(x, end)] = run
                run = [(x - 4, end), (x + 4, end)]
            upper = [(x, self.y(high)) for x, (_, high) in run]
            lower = [(x, self.y(low)) for x, (low, _) in reversed(run)]
            path += _line([*upper, *lower]) + "Z"
        self.paths.append(("band", path))

    def measurement(self, x: float, value: Range) -> None:
        """Draw a dot with its interval at some place."""
        low = self.y(value.low or 0.0)
        high = self.y(1.0 if value.high is None else value.high)
        self.paths.append(("measured", f"M{x:g} {low:g}V{high:g}"))
        self.paths.append(("measured dots", _line([(x, self.y(value.value))])))


def _runs(points: Iterable[tuple[float, Value | None]]) -> Iterator[list[tuple[float, Value]]]:
    """The points between those whose value is missing.

    >>> list(_runs([(0, 1.0), (2, 3.0), (3, None), (4, 5.0)]))
    [[(0, 1.0), (2, 3.0)], [(4, 5.0)]]
    """
    run: list[tuple[float, Value]] = []
    for x, value in points:
        if value is not None:
            run.append((x, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _line(points: Sequence[tuple[float, float]]) -> str:
    """A path through points; round caps make a single one a dot.

    >>> _line([(0, 1), (2, 3)]), _line([(4, 5)])
    ('M0 1L2 3', 'M4 5h0')
    """
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return path + "h0" if len(points) == 1 else path


def _fractions(low: float, high: float) -> tuple[Position, list[Text]]:
    """A linear axis of fractions, in steps of 5 or 10 points."""
    step = 0.05 if high - low <= 0.3 else 0.1
    bottom = max(0.0, math.floor(low / step) * step)
    top = min(1.0, math.ceil(high / step) * step)
    if top - bottom < step:
        bottom = max(0.0, top - step)

    def position(value: float) -> float:
        inside = min(max(value, bottom), top)
        return round(HEIGHT * (top - inside) / (top - bottom), 2)

    count = round((top - bottom) / step)
    every = math.ceil(count / 6)
    values = [bottom + i * step for i in range(0, count + 1, every)]
    return position, [Text(position(value), f"{value:.0%}") for value in values]


def _logarithms(low: float, high: float, values: Sequence[float]) -> tuple[Position, list[Text]]:
    """A logarithmic axis with ticks at given values."""

    def position(value: float) -> float:
        inside = min(max(value, low), high)
        return round(HEIGHT * math.log(high / inside) / math.log(high / low), 2)

    return position, [
        Text(position(value), f"{value:g}") for value in values if low <= value <= high
    ]


def accuracy_chart(
    state: State, batches: Sequence[BatchEvent], events: Sequence[Event], axis: Axis
) -> Chart:
    """Estimated accuracy with its band, confidence, agreement, labels and ground truth."""
    truths = {event.batch: event.accuracy for event in events if isinstance(event, TruthEvent)}
    labels = [event for event in events if isinstance(event, LabelsEvent)]
    baseline = state.baseline.accuracy
    estimates = [batch.accuracy for batch in batches]
    confidences = [batch.confidence for batch in batches]
    agreements = [batch.agreement for batch in batches]
    shown = [*confidences, *agreements, *truths.values(), value_of(baseline)]
    for known in (*estimates, *(one.accuracy for one in labels)):
        if known is not None:
            shown += [known.value, known.low, known.high]
    numbers = [value for value in shown if value is not None]
    y, ticks = _fractions(min(numbers), max(numbers))
    chart = Chart(
        name="accuracy",
        title="Accuracy",
        description=f"Estimated accuracy and confidence of {len(batches):,} batches over time.",
        axis=axis,
        y=y,
        y_ticks=ticks,
        legend=[("estimated", "estimated accuracy, 90% interval")],
        tips=[(*area, _tip(batch)) for area, batch in zip(axis.areas, batches, strict=True)],
    )
    chart.band(estimates)
    if baseline is not None:
        chart.level(baseline.value)
        chart.legend.append(("level", "accuracy of the baseline"))
    if any(agreement is not None for agreement in agreements):
        chart.line("agreement", agreements)
        chart.legend.append(("agreement", "agreement of the second model"))
    chart.line("confidence", confidences)
    chart.legend.append(("confidence", "mean calibrated confidence"))
    chart.line_and_dots("estimated", [value_of(known) for known in estimates])
    if truths:
        chart.line("true", [truths.get(batch.id) for batch in batches], dots=True)
        chart.legend.append(("true", "true accuracy (ground truth)"))
    for one in labels:
        chart.measurement((axis.of(one.first) + axis.of(one.last)) / 2, one.accuracy)
    if labels:
        chart.legend.append(("measured", "measured on labels, 95% interval"))
    return chart


def _tip(batch: BatchEvent) -> str:
    words = [f"{batch.time}: {batch.inputs:,} inputs"]
    if batch.accuracy is not None:
        words.append(f"estimated accuracy {in_percent(batch.accuracy)}")
    words.append(f"confidence {batch.confidence:.0%}")
    if batch.agreement is not None:
        words.append(f"agreement {batch.agreement:.0%}")
    return ", ".join(words)


def marks_of(events: Sequence[Event], axis: Axis) -> list[Text]:
    """Alarms, recalibrations and later baselines."""
    marks = []
    latest: str | None = None
    for event in events:
        if isinstance(event, BatchEvent):
            latest = event.time
            if event.raised:
                marks.append(Text(axis.of(latest), "alarm", "alarm"))
        elif isinstance(event, LabelsEvent):
            marks.append(Text(axis.of(event.last), "labels", "recalibrated"))
        elif isinstance(event, BaselineEvent) and latest is not None:
            marks.append(Text(axis.of(latest), "new baseline", "restart"))
    return marks


def evidence_chart(batches: Sequence[BatchEvent], axis: Axis, threshold: float) -> Chart:
    """The evidence after each batch, and the threshold of the alarm."""
    y, ticks = _logarithms(SMALLEST_E, LARGEST_E, [10.0**k for k in range(-1, 5)])
    chart = Chart(
        name="evidence",
        title="Evidence that the model got worse",
        description=f"The evidence after {len(batches):,} batches; the alarm is at {threshold:g}.",
        axis=axis,
        y=y,
        y_ticks=ticks,
        legend=[("confidence", "after the batch"), ("level", f"alarm at {threshold:g}")],
    )
    chart.level(threshold)
    chart.line_and_dots("confidence", [batch.e_value for batch in batches])
    return chart


def temperature_chart(batches: Sequence[BatchEvent], axis: Axis) -> Chart | None:
    """The temperature that fits each batch beside the one in use; None if none was fitted."""
    fitted = [batch.temperature for batch in batches]
    in_use = [batch.in_use for batch in batches]
    values = [value_of(one) for one in fitted]
    known = [value for value in values if value is not None]
    if not known:
        return None
    drawn = known + in_use
    for one in fitted:
        if one is not None:
            drawn += [min(max(end, 0.1), 20) for end in (one.low, one.high) if end is not None]
    ticks_at = [0.1, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20]
    y, ticks = _logarithms(min(*drawn, 0.9) / 1.3, 1.3 * max(*drawn, 1.1), ticks_at)
    chart = Chart(
        name="temperature",
        title="Temperature",
        description=f"The temperature fitted to each of {len(batches):,} batches, and that in use.",
        axis=axis,
        y=y,
        y_ticks=ticks,
        legend=[("estimated", "fits the batch, 95% interval"), ("confidence", "in use")],
    )
    chart.band(fitted)
    chart.line("confidence", in_use)
    chart.line_and_dots("estimated", values)
    return chart


# ------------------------------------------------------------------------------ the page


def views(state: State, events: Sequence[Event]) -> dict[str, str]:
    """The page and the numbers of a monitor, by the name of their file.

    Args:
        state: how the monitor stands.
        events: those of its history that the page shows.

    """
    return {MONITOR_PAGE: page(state, events), METRICS: metrics(state, events)}


def page(state: State, events: Sequence[Event]) -> str:
    """Draw the page of a monitor."""
    batches = [event for event in events if isinstance(event, BatchEvent)]
    alarm = Monitor.from_json(state.monitor)
    charts: list[Chart | None] = []
    times: list[Text] = []
    marks: list[Text] = []
    if batches:
        in_time = sorted(batches, key=lambda batch: parse_time(batch.time))
        axis = Axis(in_time)
        charts = [
            accuracy_chart(state, in_time, events, axis),
            evidence_chart(in_time, axis, alarm.report.threshold),
            temperature_chart(in_time, axis),
        ]
        times = axis.ticks
        marks = marks_of(events, axis)
    word, tone = headline(state)
    truths = {event.batch: event for event in events if isinstance(event, TruthEvent)}
    rows = [_row(batch, truths.get(batch.id)) for batch in reversed(batches[-LATE:])]
    return from_template(
        "monitor.html",
        state=state,
        report=alarm.report,
        word=word,
        tone=tone,
        retrain=needs_retraining(state),
        charts=charts,
        times=times,
        marks=marks,
        last=list(batch_lines(batches[-1], state)) if batches else [],
        alarm=list(alarm_lines(state)),
        labelled=[] if state.labelled is None else list(labels_lines(state.labelled)),
        header=list(rows[0]) if rows else [],
        rows=[list(row.values()) for row in rows],
        late=LATE,
        early=EARLY,
        signals=SIGNALS,
        margin=alarm.settings.margin,
        alpha=alarm.settings.alpha,
    )


def _row(batch: BatchEvent, truth: TruthEvent | None) -> dict[str, str]:
    """A row of the table of batches: the cells by the name of their column."""
    skipped = f" ({batch.skipped:,} skipped)" if batch.skipped else ""
    e_value = f"{batch.e_value:.2g}" if batch.e_value < LARGEST_E else f"above {LARGEST_E:,.0f}"
    return {
        "Batch": batch.time,
        "Inputs": f"{batch.inputs:,}{skipped}",
        "Estimated accuracy": in_percent(batch.accuracy),
        "Confidence": f"{batch.confidence:.0%}",
        "Agreement": "-" if batch.agreement is None else f"{batch.agreement:.0%}",
        "T that fits": temperature_words(batch.temperature),
        "T in use": f"{batch.in_use:.2f}",
        "Confidence - accuracy": in_points(batch.gap),
        "Evidence": f"{e_value}, alarm" if batch.alarm else e_value,
        "True accuracy": "-" if truth is None else f"{truth.accuracy:.0%}",
    }


# ------------------------------------------------------------------------------ Prometheus


def metrics(state: State, events: Sequence[Event]) -> str:
    """The last batch and the alarm in the text format of Prometheus."""
    batch = next((each for each in reversed(events) if isinstance(each, BatchEvent)), None)
    return from_template(
        "metrics.txt",
        state=state,
        report=Monitor.from_json(state.monitor).report,
        retrain=needs_retraining(state),
        model=_escaped(state.baseline.model),
        batch=batch,
        seconds=None if batch is None else parse_time(batch.time).timestamp(),
    )


def _escaped(text: str) -> str:
    r"""A value of a label of Prometheus.

    >>> print(_escaped('a"b\\c'))
    a\"b\\c
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
