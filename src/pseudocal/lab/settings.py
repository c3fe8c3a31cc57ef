"""Names of settings, without torch: lists of suites need none."""

from __future__ import annotations

from typing import Literal

Precision = Literal["single", "mixed", "float16"]
# Presets that are the default on a data set, by method.
DATA_PRESETS = {
    "mcd": ("office-31", "visda-2017", "domainnet-126"),
    "safn": ("visda-2017", "domainnet-126"),
}


def preset_for(method: str, data: str) -> str:
    """Return the name of a method's preset for a data set: its own if it has one, or "paper".

    >>> preset_for("mcd", "visda-2017"), preset_for("mcd", "office-home")
    ('visda-2017', 'paper')

    Args:
        method: the name of the method.
        data: the name of the data set.

    """
    return data if data in DATA_PRESETS.get(method, ()) else "paper"
