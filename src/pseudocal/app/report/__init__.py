"""The results of a calibration: a table of predictions, a typed report, and one HTML page.

For a classifier, a job makes them from logits `(n, classes)`, which may be a memory map,

    summary = RowSummary(calibration, classes)
    parts = (summary.add(logits[rows], names[rows], labels=labels[rows]) for rows in
    row_chunks(logits))

and for a segmenter, whose logits are not stored, from one image after another:

    summary = ImageSummary(calibration, classes)
    parts = (summary.add(image, name, image=path, mask=mask) for image, name, path, mask in images)

`add` returns the rows of the table for its inputs. The rest is the same for both:

    write_predictions(folder, parts, kind="parquet")
    report = report_of(summary, mixup samples, model=AboutModel(...), data=AboutData(...),
    timing=timing_since(started)) write_report(report, folder)                       # report.json
    and report.html

A job that writes its own table calls `add` and ignores the result. One that never sees all pixels
gives an `ImageSummary` a sample of them (`add_sample`), rows of images (`add_row`) and a few images
to draw (`show`). `Report.load(path)` reads report.json and refuses damaged files and other
versions; `write_page` draws it again.
"""

from pseudocal.app.report.content import measure, report_of, timing_since
from pseudocal.app.report.page import page, write_page, write_report
from pseudocal.app.report.predictions import (
    PredictionTable,
    image_table,
    row_chunks,
    write_predictions,
)
from pseudocal.app.report.record import Report
from pseudocal.app.report.summaries import ImageSummary, RowSummary, Summary
from pseudocal.app.run import AboutData, AboutModel, Timing

__all__ = [
    "AboutData",
    "AboutModel",
    "ImageSummary",
    "PredictionTable",
    "Report",
    "RowSummary",
    "Summary",
    "Timing",
    "image_table",
    "measure",
    "page",
    "report_of",
    "row_chunks",
    "timing_since",
    "write_page",
    "write_predictions",
    "write_report",
]
