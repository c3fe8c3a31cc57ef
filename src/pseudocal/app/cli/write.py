"""The work of `report`: draw the page again."""

from __future__ import annotations

from pathlib import Path

from pseudocal.app.jobs.staging import OutputError
from pseudocal.app.report import Report, write_page


def rewrite_report(folder: Path) -> str:
    """Draw `report.html` from `report.json` and return its path."""
    report = Report.load(folder / "report.json")
    try:
        write_page(report, folder)
    except OSError as error:
        raise OutputError(f"expected a folder that can be written, got {folder}: {error.strerror}") from error
    return str(folder / "report.html")
