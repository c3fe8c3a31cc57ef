"""The adaptation methods by name, each with its presets.

`paper` holds the settings PseudoCal's models were trained with (the ATDOC code base: label
smoothing, a linear ramp, T = 1 for MCC, its own scale for BNM), `official` those of each method's
own code. A preset named after a data set has what was published for it, and is the default there.
"""

from __future__ import annotations

from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.methods.atdoc import ATDOC_NC_PRESETS, ATDOC_PRESETS
from pseudocal.lab.adapt.methods.bnm import BNM_PRESETS
from pseudocal.lab.adapt.methods.cdan import CDAN_E_PRESETS, CDAN_PRESETS
from pseudocal.lab.adapt.methods.dine import DINE_PRESETS
from pseudocal.lab.adapt.methods.mcc import MCC_PRESETS
from pseudocal.lab.adapt.methods.mcd import MCD_PRESETS
from pseudocal.lab.adapt.methods.pada import PADA_PRESETS
from pseudocal.lab.adapt.methods.safn import SAFN_PRESETS
from pseudocal.lab.adapt.methods.shot import SHOT_PRESETS
from pseudocal.lab.adapt.methods.source_only import SOURCE_ONLY_PRESETS

METHODS: dict[str, dict[str, Preset]] = {
    "source-only": SOURCE_ONLY_PRESETS,
    "atdoc": ATDOC_PRESETS,
    "atdoc-nc": ATDOC_NC_PRESETS,
    "bnm": BNM_PRESETS,
    "mcc": MCC_PRESETS,
    "cdan": CDAN_PRESETS,
    "cdan+e": CDAN_E_PRESETS,
    "safn": SAFN_PRESETS,
    "mcd": MCD_PRESETS,
    "pada": PADA_PRESETS,
    "shot": SHOT_PRESETS,
    "dine": DINE_PRESETS,
}

__all__ = ["METHODS"]
