"""Small pictures that travel inside the page."""

from __future__ import annotations

import base64
import io
from pathlib import Path

SIDE = 112


def thumbnail(path: Path, side: int = SIDE) -> str | None:
    """A picture as a data address of a small JPEG, None if it cannot be read any more."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.draft("RGB", (side, side))  # a JPEG need not be decoded whole to be shown small
            small = image.convert("RGB")
            small.thumbnail((side, side))
    except Exception:  # decoders raise whatever they like; a page without one picture is still a page
        return None
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
