"""What a calibration did, as tables and as one HTML page."""

from pseudocal.app.report.confidences import Confidences
from pseudocal.app.report.content import Run, content_of
from pseudocal.app.report.measured import measure
from pseudocal.app.report.page import load_content, page, save_content
from pseudocal.app.report.predictions import write_predictions

__all__ = [
    "Confidences",
    "Run",
    "content_of",
    "load_content",
    "measure",
    "page",
    "save_content",
    "write_predictions",
]
