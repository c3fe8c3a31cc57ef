"""One page on which a person labels some inputs.

What it saves, `labels.csv`, can be read back exactly.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pseudocal.app.inputs.tables import AT_START, WITHIN
from pseudocal.app.report.images import image_within, marked_within
from pseudocal.app.report.page import templates
from pseudocal.arrays import InputError
from pseudocal.files import replacing
from pseudocal.metrics.images import RgbImage

NOT_A_CLASS = ("cannot tell", "none of these")  # labels that are no class
IMAGES_ROOM = 9_000_000  # characters that up to 200 images may take together
MANY_IMAGES = 200  # with more, each still gets this fraction of the room, and the page grows


@dataclass(frozen=True)
class ToLabel:
    """An input for a person to label.

    An image, a pixel of it, a row of a table, or nothing but its name.

    Attributes:
        name: the input, as predictions name it.
        image_file: its file, which is shown large; or its pixels `(height, width, 3)`, if a pixel
            is to be labelled.
        pixel: the line and the column of the pixel to label; None for the whole.
        cells: of a row of a table: column and value.

    """

    name: str
    image_file: Path | RgbImage | None = None
    pixel: tuple[int, int] | None = None
    cells: tuple[tuple[str, str], ...] = ()


def write_labelling_page(
    path: Path, chosen: Sequence[ToLabel], classes: Sequence[str], *, sampling: str = ""
) -> None:
    """Write a page that shows one input after another and saves the labels as `labels.csv`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "label.html"
    ...     write_labelling_page(path, [ToLabel("a.png"), ToLabel("b.png")], ["cat", "dog"])
    ...     "Label 2 inputs" in path.read_text(encoding="utf-8")
    True

    Args:
        path: the file.
        chosen: what to label, in this order.
        classes: the names of the classes, in the model's order.
        sampling: how the inputs were drawn, if `labels.csv` has to say so.

    """
    counts = Counter((one.name, one.pixel) for one in chosen)
    twice = [name for (name, _), count in counts.items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]!r} is to be labelled twice")
    if len({one.pixel is None for one in chosen}) > 1:
        raise InputError("whole inputs and pixels cannot be labelled on one page")
    if not chosen or not classes:
        raise InputError("a labelling page needs inputs and classes")
    with replacing(path) as aside:
        aside.write_text(_labelling_page(chosen, classes, sampling), encoding="utf-8")


def label_texts(classes: Sequence[str]) -> list[str]:
    """What `labels.csv` says for each class.

    Its name, or its number where the name could mean something else.

    That is where two classes have the same name, and where a name is empty or one of
    `NOT_A_CLASS`.

    >>> label_texts(["crane", "heron", "crane", "none of these"])
    ['0', 'heron', '2', '3']
    """
    names = [_unicode(name) for name in classes]
    known = Counter((*names, *NOT_A_CLASS, ""))
    labels = [name if known[name] == 1 else str(i) for i, name in enumerate(names)]
    for label, count in Counter(labels).items():
        if count > 1:
            raise InputError(
                f"two classes would have the label {label!r}: give them different names"
            )
    return labels


def _labelling_page(chosen: Sequence[ToLabel], classes: Sequence[str], sampling: str) -> str:
    labels = label_texts(classes)
    room = IMAGES_ROOM // min(max(len(chosen), 1), MANY_IMAGES)
    files = templates()
    style = files["page.css"].render() + "\n" + files["label.css"].render()
    script = files["label.js"].render()
    html: str = files["label.html"].render(
        unit=_unit(chosen),
        data={
            "unit": _unit(chosen),
            "chosen": [_shown(one, labels, room) for one in chosen],
            "classes": _told_apart([_unicode(name) for name in classes]),
            "labels": labels,
            "others": NOT_A_CLASS,
            "sampling": sampling,
            "guards": {"start": AT_START, "within": WITHIN},
        },
        style=style,
        script=script,
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
    )
    return html


def _unit(chosen: Sequence[ToLabel]) -> str:
    """What is labelled, for the heading."""
    if chosen[0].pixel is not None:
        return "pixels"
    return "images" if chosen[0].image_file is not None else "inputs"


def _shown(one: ToLabel, labels: Sequence[str], room: int) -> dict[str, Any]:
    """What the page knows of an input; its `key` is where the browser keeps the label."""
    shown = {
        "name": _unicode(one.name),
        "pixel": one.pixel,
        "cells": [[_unicode(column), _unicode(value)] for column, value in one.cells],
    }
    image_file, crop = _drawn(one, room)
    digest = hashlib.sha256(json.dumps([labels, shown], sort_keys=True).encode())
    # the image itself: how small it is drawn depends on the others
    if one.image_file is not None and image_file is not None:
        whole = one.image_file
        digest.update(whole.read_bytes() if isinstance(whole, Path) else whole.tobytes())
    return shown | {
        "image": image_file,
        "crop": crop,
        "unreadable": one.image_file is not None and image_file is None,
        "key": f"pseudocal label {digest.hexdigest()[:32]}",
    }


def _drawn(one: ToLabel, room: int) -> tuple[str | None, str | None]:
    """The image and, for a pixel, what is around it."""
    if one.image_file is None:
        return None, None
    if one.pixel is not None:
        return marked_within(one.image_file, one.pixel, room) or (None, None)
    if not isinstance(one.image_file, Path):
        raise InputError(f"{one.name!r} has neither an image file nor a pixel to label")
    return image_within(one.image_file, room), None


def _told_apart(names: list[str]) -> list[str]:
    """Names to show; a name of two classes and an empty one get the number of the class.

    >>> _told_apart(["crane", "heron", "crane", ""])
    ['crane (class 0)', 'heron', 'crane (class 2)', '(class 3)']
    """
    known = Counter((*names, *NOT_A_CLASS, ""))
    return [
        name if known[name] == 1 else f"{name} (class {i})".lstrip() for i, name in enumerate(names)
    ]


def _unicode(text: str) -> str:
    """Text that can be written to a file, as the predictions have it.

    Names of files need not be Unicode.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _content_hash(text: str) -> str:
    """How a content policy names the one script, or style, that it lets run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
