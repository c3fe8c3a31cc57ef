"""Several reports on one page, one line each."""

from __future__ import annotations

from html import unescape

import pytest
from typer.testing import CliRunner

from pseudocal import InputError
from pseudocal.app.cli import app
from pseudocal.app.outputs import compare_reports
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
    ece = report.measured[0]
    assert (monday.verdict, monday.temperature, monday.inputs) == ("apply", "2.900", "600")
    assert (
        monday.confidence
        == f"{report.confidence.mean_before:.1%} → {report.confidence.mean_after:.1%}"
    )
    assert monday.ece == f"{ece.before.value:.1%} → {ece.after.value:.1%}"
    assert monday.accuracy.endswith("% (labels)")
    assert (tuesday.temperature, tuesday.ece, tuesday.kind) == ("1 (2.900 refused)", "-", "refuse")
    assert tuesday.accuracy == "58%, 46% to 70% (estimate from agreement)"
    assert wednesday.accuracy.endswith("(answers)")
    html = (tmp_path / "pages.html").read_text()
    assert html.count("<tr>") == 4
    assert "<b>wednesday" not in html
    assert "<b>wednesday" in unescape(html)
    assert 'href="tues%20day/report.html"' in html
    assert "<script" not in html


def test_a_folder_without_a_report_is_named_and_nothing_is_written(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputError, match=r"expected the folder of a calibration, with report\.json, got .*empty"
    ):
        compare_reports([folders[1][0], tmp_path / "empty"], tmp_path / "pages.html")
    assert not (tmp_path / "pages.html").exists()


def test_the_command_draws_one_again_and_compares_several(folders, tmp_path):
    monday, tuesday, _ = map(str, folders[1])
    (tmp_path / "monday" / "report.html").unlink()
    run = CliRunner().invoke
    assert run(app, ["report", monday]).stdout.split() == [f"{monday}/report.html"]
    assert (tmp_path / "monday" / "report.html").exists()
    out = tmp_path / "pages.html"
    printed = run(app, ["report", monday, tuesday, "-o", str(out)]).stdout.splitlines()
    assert printed[0].startswith(f"{monday}: apply, T = 2.900, confidence ")
    assert printed[-1] == str(out)
    assert out.exists()
    alone = run(app, ["report", monday, "-o", str(out)]).exception
    assert str(alone) == f"expected two or more folders with --out, got {monday} alone"
