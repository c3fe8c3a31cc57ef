"""What a calibration did, as tables and as one HTML page."""

from pseudocal.report.confidences import Confidences
from pseudocal.report.content import Run, content_of
from pseudocal.report.measured import measure
from pseudocal.report.page import load_content, page, save_content
from pseudocal.report.predictions import write_predictions

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
