"""Several reports on one page, one line each."""

from __future__ import annotations

from html import unescape

import pytest

from pseudocal import InputError
from pseudocal.app.outputs import compare_reports, redraw
from pseudocal.app.report import write_report


@pytest.fixture
def folders(tmp_path, made):
    reports = {
        "monday": made.make_report(labelled=True),
        "tues day": made.make_report(verdict="do not apply"),
        "<b>wednesday": made.make_refined(),
    }
    for name, report in reports.items():
        (tmp_path / name).mkdir()
        write_report(report, tmp_path / name)
    return reports, [tmp_path / name for name in reports]


def test_there_is_a_line_for_each(folders, tmp_path):
    reports, paths = folders
    monday, tuesday, wednesday = compare_reports(paths, tmp_path / "pages.html")
    report = reports["monday"]
    ece = report.metrics[0]
    assert (monday.verdict, monday.temperature, monday.inputs) == ("apply", "2.900", "600")
    assert (
        monday.confidence
        == f"{report.confidence.mean_before:.1%} → {report.confidence.mean_after:.1%}"
    )
    assert monday.ece == f"{ece.before.value:.1%} → {ece.after.value:.1%}"
    assert monday.accuracy.endswith("% (ground truth)")
    assert (
        monday.recommendation
        == "Deploy the calibrated model.onnx instead of the original: out/model.onnx"
    )
    assert "pseudocal label out -n 50" in tuesday.recommendation
    assert (tuesday.temperature, tuesday.ece, tuesday.tone) == ("1 (2.900 rejected)", "-", "bad")
    assert tuesday.accuracy == "58%, 46% to 70% (estimated from agreement)"
    assert wednesday.accuracy.endswith("(labels)")
    html = (tmp_path / "pages.html").read_text()
    assert html.count("<tr>") == 4
    assert "<b>wednesday" not in html
    assert "<b>wednesday" in unescape(html)
    assert 'href="tues%20day/report.html"' in html
    assert "<script" not in html


def test_a_folder_without_a_report_is_named_and_nothing_is_written(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no report\.json"):
        compare_reports([folders[1][0], tmp_path / "empty"], tmp_path / "pages.html")
    assert not (tmp_path / "pages.html").exists()


def test_a_page_is_drawn_again(folders, tmp_path):
    page = tmp_path / "monday" / "report.html"
    first = page.read_text()
    page.unlink()
    assert redraw(tmp_path / "monday") == page
    assert page.read_text() == first
