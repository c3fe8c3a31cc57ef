"""The report of a model that labels every pixel: sums over images, a few of them as maps, a table of classes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.confidences import Confidences
from pseudocal.app.report.content import BINS, FORMAT, SHOWN, calibration_of, class_name, trust_of
from pseudocal.app.report.facts import facts_of
from pseudocal.app.report.measured import bins_of, plain, reliability
from pseudocal.app.report.predictions import image_columns
from pseudocal.app.report.thumbnails import thumbnail
from pseudocal.app.report.usage import usage_of
from pseudocal.arrays import Labelled, Maps
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Segmented, confidence_picture, correct_picture
from pseudocal.metrics import bootstrap as interval
from pseudocal.metrics import paired as change
from pseudocal.metrics.images import ImageRow, pixel_confidences

MAPS = 6  # images that are shown pixel by pixel
WIDE = 320  # pixels, at most, of the longer side of each


@dataclass(eq=False)
class Images:
    """What a second pass over the images adds up."""

    calibration: Calibration
    names: list[str] = field(default_factory=list)
    pictures: list[Path | None] = field(default_factory=list)
    rows: list[ImageRow] = field(default_factory=list)
    histogram: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, BINS)))
    by_class: Any = 0.0  # (3, classes): pixels, confidence before and after
    maps: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Any] = field(default_factory=lambda: [0, 0])  # `Segmented` before and after, where there are masks

    def add(self, image: Maps, name: str, picture: Path | None, mask: NDArray[Any] | None) -> None:
        """Take in the logits of one image, and its labels if there are some."""
        temperature, classes = self.calibration.temperature, len(image)
        said, *two = pixel_confidences(image, temperature)
        self._add_pixels(said, two, np.ones(len(said)), classes)
        shares = np.bincount(said, minlength=classes) / max(1, len(said))
        self.add_row(name, picture, ImageRow(shares, float(two[0].mean()), float(two[1].mean())))
        if mask is not None:
            self.seen = [
                s + Segmented.of(image, mask, temperature=t) for s, t in zip(self.seen, (1.0, temperature), strict=True)
            ]
        self.show(image, name, picture, mask)

    def add_row(self, name: str, picture: Path | None, row: ImageRow) -> None:
        """Take in what is known of one image as a whole."""
        self.names.append(name)
        self.pictures.append(picture)
        self.rows.append(row)

    def add_sample(self, pixels: Labelled) -> None:
        """Take in the logits of a sample of the pixels of all images, each with its weight."""
        weights = np.ones(len(pixels)) if pixels.weights is None else pixels.weights
        seen = Confidences.of(pixels.logits, self.calibration)
        two = (seen.before[:, 0], seen.after[:, 0])
        self._add_pixels(seen.top[:, 0], two, weights, pixels.logits.shape[1])

    def _add_pixels(self, said: NDArray[Any], two: Sequence[NDArray[Any]], weights: NDArray[Any], classes: int) -> None:
        self.histogram += np.stack([np.histogram(c, BINS, (0, 1), weights=weights)[0] for c in two])
        sums = [np.bincount(said, w, classes) for w in (weights, *(c * weights for c in two))]
        self.by_class = self.by_class + np.stack(sums)

    def show(self, image: Maps, name: str, picture: Path | None, mask: NDArray[Any] | None = None) -> None:
        """Draw one image pixel by pixel, as long as there are few."""
        temperature = self.calibration.temperature
        if len(self.maps) < MAPS:
            shown = {"before": confidence_picture(image), "after": confidence_picture(image, temperature)}
            if mask is not None:
                shown["correct"] = correct_picture(image, mask)
            drawn = {key: _drawn(value) for key, value in shown.items()}
            small = thumbnail(picture, WIDE) if picture is not None else None
            self.maps.append({"name": name, "picture": small, "correct": None} | drawn)

    def columns(self, classes: Sequence[str]) -> list[Any]:
        """The predictions, an image a row, in the order of `COLUMNS`."""
        return image_columns(self.names, self.rows, classes)

    def forget(self) -> None:
        """Keep no more images than the report can show."""
        kept = sorted({i for order in self.orders() for i in order[:SHOWN].tolist()})
        self.names, self.pictures, self.rows = ([x[i] for i in kept] for x in (self.names, self.pictures, self.rows))

    def orders(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The images whose confidence changed most first, and the least sure first."""
        before, after = (np.array(c) for c in ([r.before for r in self.rows], [r.after for r in self.rows]))
        return np.argsort(-np.abs(after - before), kind="stable"), np.argsort(after, kind="stable")


def segmented_content(
    images: Images,
    mixes: Labelled,
    *,
    model: dict[str, Any],
    data: dict[str, Any],
    classes: Sequence[str],
    timing: dict[str, Any],
) -> dict[str, Any]:
    """All that the report says, as JSON values: the same keys as for a classifier, and `segmentation` beside them."""
    calibration, labelled = images.calibration, images.seen[0] != 0
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": 1,
        "model": model | {"segments": True},
        "data": data,
        "calibration": calibration_of(calibration),
        "trust": trust_of(calibration),
        "confidence": _confidence(images),
        "classes": _shares(images, classes),
        "reliability": _reliability(images, mixes),
        "measured": _measured(*images.seen) if labelled else None,
        "examples": _examples(images, classes),
        "segmentation": {"maps": images.maps} | _by_class(images, classes),
        "usage": usage_of(model | {"segments": True}, calibration.temperature),
        "settings": calibration.settings,
        "versions": calibration.versions,
        "timing": timing,
    }
    return content | {"facts": facts_of(content)}


def _confidence(images: Images) -> dict[str, Any]:
    pixels, before, after = images.by_class.sum(axis=1).tolist()
    return {
        "edges": np.linspace(0, 1, BINS + 1).tolist(),
        "before": np.rint(images.histogram[0]).astype(int).tolist(),
        "after": np.rint(images.histogram[1]).astype(int).tolist(),
        "mean_before": before / pixels,
        "mean_after": after / pixels,
    }


def _shares(images: Images, classes: Sequence[str]) -> list[dict[str, Any]]:
    pixels = images.by_class[0]
    top = [int(i) for i in np.argsort(-pixels, kind="stable")[:10] if pixels[i]]
    return [{"name": class_name(i, classes), "share": float(pixels[i] / pixels.sum())} for i in top]


def _reliability(images: Images, mixes: Labelled) -> dict[str, Any]:
    """Reliability before and after: of labelled pixels, else of mixes, which share images: no intervals."""
    if images.seen[0] != 0:
        before, after = (bins_of(seen.reliability, seen.accuracy_interval()) for seen in images.seen)
        return {"of": "pixels", "before": before, "after": after}
    scaled = images.calibration(mixes.logits)
    return {
        "of": "mixes",
        "before": reliability(mixes.logits, mixes.labels, intervals=False),
        "after": reliability(scaled, mixes.labels, intervals=False),
    }


def _measured(before: Segmented, after: Segmented) -> list[dict[str, Any]]:
    return [
        {
            "metric": name,
            "before": plain(interval(name, before)),
            "after": plain(interval(name, after)),
            "change": plain(change(name, before, after)),
        }
        for name in ("ece", "nll", "brier", "accuracy", "miou")
    ]


def _examples(images: Images, classes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    changed, unsure = images.orders()

    def example(i: int) -> dict[str, Any]:
        picture = images.pictures[i]
        return {
            "name": images.names[i],
            "class": f"mostly {class_name(int(images.rows[i].shares.argmax()), classes)}",
            "before": images.rows[i].before,
            "after": images.rows[i].after,
            "thumbnail": thumbnail(picture) if picture is not None else None,
        }

    return {"changed": [example(i) for i in changed[:SHOWN]], "unsure": [example(i) for i in unsure[:SHOWN]]}


def _by_class(images: Images, classes: Sequence[str]) -> dict[str, Any]:
    """The table of classes: what is known without labels, and with them IoU, precision and ECE."""
    pixels, before, after = images.by_class
    header, rows = ["class", "share of pixels", "confidence before", "confidence after"], []
    tables = [seen.classes() for seen in images.seen] if images.seen[0] != 0 else None
    if tables:
        header += ["IoU", "right where predicted", "ECE before", "ECE after"]
    for c in np.flatnonzero(pixels):
        row = [class_name(int(c), classes), _percent(pixels[c] / pixels.sum())]
        row += [_percent(total[c] / pixels[c]) for total in (before, after)]
        if tables:
            old, new = tables[0][c], tables[1][c]
            row += [_percent(value) for value in (old["iou"], old["precision"], old["ece"], new["ece"])]
        rows.append(row)
    return {"header": header, "rows": rows}


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1%}"


def _drawn(pixels: NDArray[np.uint8]) -> str:
    """A picture as a data address of a PNG; a small one with each pixel as a square, so that no browser blurs it."""
    from PIL import Image

    square = max(1, WIDE // max(pixels.shape[:2]))
    image = Image.fromarray(pixels.repeat(square, axis=0).repeat(square, axis=1))
    image.thumbnail((WIDE, WIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
