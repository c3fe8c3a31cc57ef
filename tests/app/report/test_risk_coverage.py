"""Accept only confident predictions: estimate, measurement and guarantee in one chart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling
from pseudocal.app.report import Report, Summary
from pseudocal.app.report.content import selection_of
from pseudocal.app.report.figures import risk_coverage
from pseudocal.app.report.page import page
from pseudocal.app.report.predictions import Confidences
from pseudocal.app.thresholds import ClassLine, RunThreshold
from pseudocal.calibrators import Candidate


def guarantee() -> RunThreshold:
    return RunThreshold(
        0.05,
        "guaranteed",
        0.8765,
        None,
        False,
        0.4,
        0.02,
        labels=77,
        errors=1,
        candidates=(
            Candidate(0.3, 60, 0, 0.038),
            Candidate(0.4, 77, 1, 0.0497),
            Candidate(0.45, 80, 3, 0.082),
        ),
        given=100,
        classes=(ClassLine(0, "a <b> class", "not enough labels", 0.9, None, 0.5, 3),),
        promise="At most 5% of the accepted predictions are wrong.",
    )


def test_estimate_measurement_and_guarantee_stand_together(made):
    report = replace(made.make_report(labelled=True), threshold=guarantee())
    figure = risk_coverage(report)
    lines = dict(figure.lines)
    assert set(lines) == {"after", "measured", "guaranteed"}
    assert lines["guaranteed"] == [(0.3, 0.038), (0.4, 0.0497)]  # the last one failed
    html = page(report)
    assert "At most 5% of the accepted predictions are wrong." in html
    assert "40.0% of the inputs are accepted" in html
    assert "87.65%" in html
    assert "the 90% upper confidence bound of the error, from 100 labels" in html
    assert "not enough labels" in html
    assert "a <b> class" not in html


def test_without_a_guarantee_none_is_drawn(made):
    report = made.make_report(labelled=True)
    nothing = RunThreshold(
        0.05, "none", None, None, False, 0.0, None, promise="Nothing is accepted."
    )
    figure = risk_coverage(replace(report, threshold=nothing))
    assert set(dict(figure.lines)) == {"after", "measured"}
    html = page(replace(report, threshold=nothing))
    assert "Nothing is accepted." in html
    assert "inputs are accepted" not in html


def test_a_report_with_a_threshold_is_saved_and_loaded(made, tmp_path):
    report = replace(made.make_report(), threshold=guarantee())
    report.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json").threshold == report.threshold


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.45), (0.05, 0.2), (0.97, 0.999)])
def test_the_curve_works_at_any_confidence(made, low, high):
    """Many classes have low confidences, two classes at least 50%."""
    summary = Summary(Calibration("none", TemperatureScaling(1.0)))
    confidence = np.linspace(low, high, 200)[:, None]
    seen = Confidences(np.zeros((200, 1), dtype=np.int64), confidence, confidence)
    summary.add_predictions(seen, 2, right=np.arange(200) >= 50)
    report = replace(made.make_report(labelled=True), selection=selection_of(summary))
    figure = risk_coverage(report)
    assert figure is not None
    (coverage, error), *_ = dict(figure.lines)["measured"]
    assert (coverage, error) == (1.0, 0.25)
    assert len(figure.rows) >= 4
    coverages = [x for x, _ in dict(figure.lines)["measured"]]
    assert coverages == sorted(set(coverages), reverse=True)
    shown = page(report)
    assert shown.count(figure.rows[-1][0]) >= 2  # the last row is in the short table as well
