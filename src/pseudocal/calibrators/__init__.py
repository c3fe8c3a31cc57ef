"""One file per method; each gives back a `Calibration`, or logits where other predictions are the answer."""

from pseudocal.calibrators.answers import CANNOT_TELL, NONE_OF_THESE, Answers
from pseudocal.calibrators.atc import atc, atc_accuracy
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.cpcs import cpcs
from pseudocal.calibrators.doc import doc, doc_accuracy
from pseudocal.calibrators.ensemble import Ensemble, ensemble
from pseudocal.calibrators.labelled_pixels import pixel_rows
from pseudocal.calibrators.material import PARTS, Material, Part
from pseudocal.calibrators.matrixscal import matrixscal
from pseudocal.calibrators.mc_dropout import mc_dropout
from pseudocal.calibrators.measurement import Measurement
from pseudocal.calibrators.oracle import oracle
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.pseudo_ensemble import pseudo_ensemble
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.refinement import measure, refine
from pseudocal.calibrators.survey import PixelPool, ask, pixel_pool
from pseudocal.calibrators.table import CALIBRATORS, Corrected, Entry, calibrate, comparison_table, needs_table
from pseudocal.calibrators.tempscal import tempscal
from pseudocal.calibrators.transcal import transcal
from pseudocal.calibrators.uncalibrated import uncalibrated
from pseudocal.calibrators.vectorscal import vectorscal

__all__ = [
    "CALIBRATORS",
    "CANNOT_TELL",
    "NONE_OF_THESE",
    "PARTS",
    "Answers",
    "Calibration",
    "Corrected",
    "Ensemble",
    "Entry",
    "Material",
    "Measurement",
    "Part",
    "PixelPool",
    "Prior",
    "PseudoCal",
    "ask",
    "atc",
    "atc_accuracy",
    "calibrate",
    "comparison_table",
    "cpcs",
    "doc",
    "doc_accuracy",
    "ensemble",
    "match_confidence",
    "matrixscal",
    "mc_dropout",
    "measure",
    "needs_table",
    "oracle",
    "pixel_pool",
    "pixel_rows",
    "pseudo_ensemble",
    "refine",
    "tempscal",
    "transcal",
    "uncalibrated",
    "vectorscal",
]
