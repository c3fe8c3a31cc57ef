"""The adaptation methods by name, each with its presets.

`paper` holds the settings PseudoCal's models were trained with (the ATDOC code base: label smoothing, a linear ramp,
T = 1 for MCC, its own scale for BNM), `official` those of each method's own code.
"""

from __future__ import annotations

from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.methods import atdoc, bnm, cdan, dine, mcc, mcd, pada, safn, shot, source_only

METHODS: dict[str, dict[str, Preset]] = {
    "source-only": source_only.PRESETS,
    "atdoc": atdoc.PRESETS,
    "atdoc-nc": atdoc.PRESETS_NC,
    "bnm": bnm.PRESETS,
    "mcc": mcc.PRESETS,
    "cdan": cdan.PRESETS,
    "cdan+e": cdan.PRESETS_E,
    "safn": safn.PRESETS,
    "mcd": mcd.PRESETS,
    "pada": pada.PRESETS,
    "shot": shot.PRESETS,
    "dine": dine.PRESETS,
}

__all__ = ["METHODS"]
