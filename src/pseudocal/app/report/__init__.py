"""The report of a run: a typed record, and one HTML page drawn from it.

    summary = RowSummary(calibration, classes)           # or ImageSummary, for segmentation
    summary.add(logits, confidences, names)              # chunk by chunk
    report = report_of(summary, fitted_on, model=..., data=..., timing=...)
    write_report(report, folder)                         # report.json and report.html

`Report.load(path)` reads report.json and refuses damaged files and other versions. `write_page`
draws it again.
"""

from pseudocal.app.report.content import measure, report_of
from pseudocal.app.report.page import page, write_page, write_report
from pseudocal.app.report.record import Report
from pseudocal.app.report.summaries import ImageSummary, RowSummary, Summary

__all__ = [
    "ImageSummary",
    "Report",
    "RowSummary",
    "Summary",
    "measure",
    "page",
    "report_of",
    "write_page",
    "write_report",
]
