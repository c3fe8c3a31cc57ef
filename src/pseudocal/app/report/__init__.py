"""The report of a run: a typed record, and one HTML page drawn from it.

    summary = Summary(calibration, classes)
    summary.add_rows(logits, confidences, names)         # chunk by chunk
    report = report_of(summary, fitted_on, model=..., data=..., timing=...)
    write_report(report, folder)                         # report.json and report.html

`Report.load(path)` reads report.json and refuses damaged files and other versions. `write_page`
draws it again.

| module | subject |
|---|---|
| `record.py` | the record, and how it is read and written |
| `content.py` | running sums over the predictions, and the record made from them |
| `findings.py` | what to say: codes and numbers |
| `wording.py` | how to say it: every sentence that is not in a template |
| `figures.py` | what to draw where |
| `page.py`, `templates/` | the page, a page that compares several reports, and a model card |
| `predictions.py`, `images.py` | the table of predictions, embedded images |
"""

from pseudocal.app.report.content import Summary, measure, report_of
from pseudocal.app.report.page import page, write_page, write_report
from pseudocal.app.report.record import Report

__all__ = [
    "Report",
    "Summary",
    "measure",
    "page",
    "report_of",
    "write_page",
    "write_report",
]
