"""One page on which a person says what some inputs are.

What it saves, `answers.csv`, can be read back exactly.
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

OTHER_ANSWERS = ("cannot tell", "none of these")  # labels that are no class
IMAGES_ROOM = 9_000_000  # characters that up to 200 images may take together
MANY_IMAGES = (
    200  # with more than that each still gets its fraction of that room, and the page grows
)


@dataclass(frozen=True)
class Question:
    """An input that a person is asked about.

    An image, a pixel of it, a row of a table, or nothing but its name.

    Attributes:
        name: the input, as predictions name it.
        image_file: its file, which is shown large; or its pixels `(height, width, 3)`, if a pixel
            is asked about.
        pixel: the line and the column of the pixel to ask about; None for the whole.
        cells: of a row of a table: column and value.

    """

    name: str
    image_file: Path | RgbImage | None = None
    pixel: tuple[int, int] | None = None
    cells: tuple[tuple[str, str], ...] = ()


def write_labelling_page(
    folder: Path, questions: Sequence[Question], classes: Sequence[str]
) -> Path:
    """Write `label.html`, which asks one question after another and saves the answers as `answers.csv`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = write_labelling_page(Path(folder), [Question("a.png"), Question("b.png")], ["cat", "dog"])
    ...     path.name, "What is this?" in path.read_text(encoding="utf-8")
    ('label.html', True)

    Args:
        folder: where to write it.
        questions: what to ask, in this order.
        classes: the names of the classes, in the model's order.

    """
    asked = Counter((question.name, question.pixel) for question in questions)
    twice = [name for (name, _), count in asked.items() if count > 1]
    if twice:
        raise InputError(f"expected one question for each input, got two for {twice[0]!r}")
    if len({question.pixel is None for question in questions}) > 1:
        raise InputError("expected questions about inputs or about pixels, got both")
    for what, given in (("question", questions), ("class", classes)):
        if not given:
            raise InputError(f"expected a {what} or more, got none")
    path = folder / "label.html"
    with replacing(path) as aside:
        aside.write_text(_labelling_page(questions, classes), encoding="utf-8")
    return path


def answer_labels(classes: Sequence[str]) -> list[str]:
    """What `answers.csv` says for each class.

    Its name, or its number where the name could mean something else.

    That is where two classes have the same name, and where a name is empty or one of
    `OTHER_ANSWERS`.

    >>> answer_labels(["crane", "heron", "crane", "none of these"])
    ['0', 'heron', '2', '3']
    """
    names = [_unicode(name) for name in classes]
    known = Counter((*names, *OTHER_ANSWERS, ""))
    labels = [name if known[name] == 1 else str(i) for i, name in enumerate(names)]
    for label, count in Counter(labels).items():
        if count > 1:
            raise InputError(
                f"expected classes that their names or numbers tell apart, got {label!r} for two of them"
            )
    return labels


def _labelling_page(questions: Sequence[Question], classes: Sequence[str]) -> str:
    labels = answer_labels(classes)
    room = IMAGES_ROOM // min(max(len(questions), 1), MANY_IMAGES)
    files = templates()
    style = files["page.css"].render() + "\n" + files["label.css"].render()
    script = files["label.js"].render()
    html: str = files["label.html"].render(
        data={
            "questions": [_asked(question, labels, room) for question in questions],
            "classes": _told_apart([_unicode(name) for name in classes]),
            "labels": labels,
            "others": OTHER_ANSWERS,
            "guards": {"start": AT_START, "within": WITHIN},
        },
        style=style,
        script=script,
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
    )
    return html


def _asked(question: Question, labels: Sequence[str], room: int) -> dict[str, Any]:
    """What the page knows of a question; its `key` is where the browser keeps the answer."""
    shown = {
        "name": _unicode(question.name),
        "pixel": question.pixel,
        "cells": [[_unicode(column), _unicode(value)] for column, value in question.cells],
    }
    image_file, crop = _drawn_question(question, room)
    digest = hashlib.sha256(json.dumps([labels, shown], sort_keys=True).encode())
    if (
        question.image_file is not None and image_file is not None
    ):  # itself: how small it is drawn depends on the others
        whole = question.image_file
        digest.update(whole.read_bytes() if isinstance(whole, Path) else whole.tobytes())
    return shown | {
        "image": image_file,
        "crop": crop,
        "unreadable": question.image_file is not None and image_file is None,
        "key": f"pseudocal answer {digest.hexdigest()[:32]}",
    }


def _drawn_question(question: Question, room: int) -> tuple[str | None, str | None]:
    """The image of a question and, if it is about a pixel, what is around that."""
    if question.image_file is None:
        return None, None
    if question.pixel is not None:
        return marked_within(question.image_file, question.pixel, room) or (None, None)
    if not isinstance(question.image_file, Path):
        raise InputError(
            f"expected the file of an image, or a pixel of it to ask about, got {question.name!r} without"
        )
    return image_within(question.image_file, room), None


def _told_apart(names: list[str]) -> list[str]:
    """Names to show: those that two classes share, and an empty one, with the number of the class.

    >>> _told_apart(["crane", "heron", "crane", ""])
    ['crane (class 0)', 'heron', 'crane (class 2)', '(class 3)']
    """
    known = Counter((*names, *OTHER_ANSWERS, ""))
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
