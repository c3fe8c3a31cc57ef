"""Calibrators: each returns a `Calibration`, or logits if it changes the predictions themselves."""

from pseudocal.calibrators.answers import CANNOT_TELL, NONE_OF_THESE, Answers
from pseudocal.calibrators.baselines.accuracy import atc, atc_accuracy, doc, doc_accuracy
from pseudocal.calibrators.baselines.ensembles import (
    Ensemble,
    ensemble,
    mc_dropout,
    pseudo_ensemble,
)
from pseudocal.calibrators.baselines.importance import cpcs, density_ratio, transcal
from pseudocal.calibrators.baselines.oracle import oracle
from pseudocal.calibrators.baselines.scaling import matrixscal, tempscal, uncalibrated, vectorscal
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.evidence import Evidence, Step
from pseudocal.calibrators.labelled_pixels import pixel_rows
from pseudocal.calibrators.material import PARTS, Material, Part
from pseudocal.calibrators.measurement import Measured
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.refinement import measure_temperature, refine
from pseudocal.calibrators.survey import PixelPool, ask, pixel_pool
from pseudocal.calibrators.table import (
    CALIBRATORS,
    Corrected,
    Entry,
    calibrate_by_name,
    comparison_table,
    needs_table,
)

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
    "Evidence",
    "Material",
    "Measured",
    "Part",
    "PixelPool",
    "Prior",
    "PseudoCal",
    "Step",
    "ask",
    "atc",
    "atc_accuracy",
    "calibrate_by_name",
    "comparison_table",
    "cpcs",
    "density_ratio",
    "doc",
    "doc_accuracy",
    "ensemble",
    "match_confidence",
    "matrixscal",
    "mc_dropout",
    "measure_temperature",
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
