"""Calibrators: each returns a `Calibration`, or logits if it changes the predictions themselves."""

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
from pseudocal.calibrators.labels import (
    CANNOT_TELL,
    NONE_OF_THESE,
    LabelSample,
    PixelPool,
    pixel_pool,
    rows_to_label,
)
from pseudocal.calibrators.material import PARTS, Material, Part
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.refinement import measure_temperature, refine
from pseudocal.calibrators.table import (
    CALIBRATORS,
    Corrected,
    Entry,
    calibrate_by_name,
    comparison_table,
    needs_table,
)
from pseudocal.calibrators.thresholds import (
    Candidate,
    ClassThreshold,
    Threshold,
    find_class_thresholds,
    find_threshold,
    threshold_pool,
)
from pseudocal.calibrators.wording import Reason, ReasonCode

__all__ = [
    "CALIBRATORS",
    "CANNOT_TELL",
    "NONE_OF_THESE",
    "PARTS",
    "Calibration",
    "Candidate",
    "ClassThreshold",
    "Corrected",
    "Ensemble",
    "Entry",
    "Evidence",
    "LabelSample",
    "Material",
    "Measured",
    "Part",
    "PixelPool",
    "Prior",
    "PseudoCal",
    "Reason",
    "ReasonCode",
    "Step",
    "Threshold",
    "atc",
    "atc_accuracy",
    "calibrate_by_name",
    "comparison_table",
    "cpcs",
    "density_ratio",
    "doc",
    "doc_accuracy",
    "ensemble",
    "find_class_thresholds",
    "find_threshold",
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
    "rows_to_label",
    "tempscal",
    "threshold_pool",
    "transcal",
    "uncalibrated",
    "vectorscal",
]
