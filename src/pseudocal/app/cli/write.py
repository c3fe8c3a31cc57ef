"""The work of `report`: draw the page again."""

from __future__ import annotations

import os
from pathlib import Path

from pseudocal.app.jobs.staging import OutputError
from pseudocal.app.report import load_content, page
from pseudocal.arrays import InputError


def rewrite_report(folder: Path) -> str:
    """Draw `report.html` from `report.json` and return its path."""
    content = load_content(folder / "report.json")
    try:
        html = page(content)
    except Exception as error:  # a file that was written by hand can lack anything
        if type(error).__name__ not in ("KeyError", "TypeError", "UndefinedError", "ZeroDivisionError"):
            raise
        raise InputError(f"expected a whole report file, got {folder / 'report.json'} without {error}") from error
    aside = folder / f".report.html.{os.getpid()}"
    try:
        aside.write_text(html, encoding="utf-8")
        os.replace(aside, folder / "report.html")
    except OSError as error:
        raise OutputError(f"expected a folder that can be written, got {folder}: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)
    return str(folder / "report.html")
