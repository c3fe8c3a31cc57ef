"""Figures of docs/understand and of docs/evaluation/index.md, and the numbers beside them.

    python benchmarks/pictures_understand.py

writes docs/images/*.svg and docs/images/digits.json. The example is built in: two small networks
trained on scikit-learn's digits and used on noisy ones. The curve of labels is drawn from
docs/evaluation/results/held_out-ece-by-labels.csv (`benchmarks/labels_curve.py`).
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from pseudocal import PseudoCal, fit_temperature, softmax
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes, ece

DOCS = Path(__file__).parents[1] / "docs"
CURVE = DOCS / "evaluation" / "results" / "held_out-ece-by-labels.csv"
NOISE = 0.4
LAM = 0.65
WIDTH = 390
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 13px; }
.bold { font-weight: 600; }
.axis { stroke: #6e7781; stroke-width: 1; fill: none; }
.grid { stroke: #6e7781; stroke-width: 1; stroke-dasharray: 4 4; fill: none; }
.blue { fill: #2f81f7; } .blue-line { stroke: #2f81f7; }
.red { fill: #d1485f; } .red-line { stroke: #d1485f; }
.green { fill: #2da44e; } .green-line { stroke: #2da44e; }
.orange { fill: #c77700; } .orange-line { stroke: #c77700; }
.pale { opacity: 0.3; } .half { opacity: 0.6; }
.line { fill: none; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) { text { fill: #d8dee4; } .axis, .grid { stroke: #8b949e; } }
"""


# ------------------------------------------------------------------------------ the example


@dataclass(frozen=True)
class Example:
    """Two networks on noisy digits."""

    clean: np.ndarray  # (n, 64), before noise was added
    inputs: np.ndarray  # noisy
    labels: np.ndarray
    first: np.ndarray  # logits
    second: np.ndarray
    networks: tuple[MLPClassifier, MLPClassifier]
    calibration: Calibration


def logits_of(network: MLPClassifier, x: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities."""
    return np.log(np.clip(network.predict_proba(x), 1e-12, 1.0))


def noisy_digits() -> Example:
    """Train on clean digits, each network on two thirds of them; calibrate on noisy ones."""
    x, y = load_digits(return_X_y=True)
    x = x / 16
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    source, target = order[:900], order[900:]
    inputs = x[target] + NOISE * rng.normal(size=(len(target), x.shape[1]))
    networks = []
    for seed, part in enumerate((source[:600], source[300:])):
        network = MLPClassifier((32,), max_iter=1000, alpha=1e-5, random_state=seed)
        networks.append(network.fit(x[part], y[part]))
    first, second = networks
    calibration = PseudoCal().fit(
        lambda batch: logits_of(first, batch),
        inputs,
        second_opinion=lambda batch: logits_of(second, batch),
    )
    return Example(
        x[target],
        inputs,
        y[target],
        logits_of(first, inputs),
        logits_of(second, inputs),
        (first, second),
        calibration,
    )


def numbers_of(example: Example) -> dict[str, float | str]:
    """What the pages say about the example; fractions, and ECE in percent."""
    trust = example.calibration.trust
    assert trust is not None
    first = example.first.argmax(axis=1)
    second = example.second.argmax(axis=1)
    wrong = first != example.labels
    second_wrong = second != example.labels
    same = first == second
    oracle = fit_temperature(example.first, example.labels).temperature
    applied = example.calibration.temperature
    top = softmax(example.first).max(axis=1) > 0.9

    def error(temperature: float) -> float:
        return 100 * ece(Outcomes.from_logits(example.first / temperature, example.labels))

    return {
        "inputs": len(example.labels),
        "accuracy": float((~wrong).mean()),
        "confidence": trust.evidence["confidence before"],
        "top_confidence": float(softmax(example.first).max(axis=1)[top].mean()),
        "top_accuracy": float((~wrong)[top].mean()),
        "agreement": float(same.mean()),
        "both_right": float((~wrong & ~second_wrong).mean()),
        "one_wrong": float((wrong != second_wrong).mean()),
        "both_wrong_same": float((wrong & same).mean()),
        "both_wrong_different": float((wrong & second_wrong & ~same).mean()),
        "shared": float((wrong & same).sum() / wrong.sum()),
        "shared_on_mixup_samples": trust.evidence["shared mistakes"],
        "mixup_samples": int(trust.evidence["mixup_samples"]),
        "estimate": trust.estimated_accuracy.value,
        "low": trust.estimated_accuracy.low,
        "high": trust.estimated_accuracy.high,
        "temperature": applied,
        "mixup_temperature": trust.temperatures["mixup"],
        "oracle_temperature": oracle,
        "verdict": trust.verdict,
        "ece": error(1.0),
        "ece_calibrated": error(applied),
        "ece_oracle": error(oracle),
    }


# ------------------------------------------------------------------------------ drawing


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{content}</text>'


def line(points: list[tuple[float, float]], kind: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" class="{kind}"/>'


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"/>'
    )


def save(name: str, height: int, title: str, parts: list[str]) -> None:
    path = DOCS / "images" / name
    path.parent.mkdir(exist_ok=True)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="480" '
        f'role="img" aria-label="{title}">\n<style>{STYLE}</style>'
    )
    path.write_text("\n".join([head, *parts, "</svg>"]) + "\n", encoding="utf-8")
    print(path.relative_to(DOCS.parent))


def digit(values: np.ndarray, x: float, y: float, size: float) -> str:
    """An image of 8 x 8 pixels, ink on paper in any theme."""
    cell = size / 8
    parts = [f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="#fff" stroke="#6e7781"/>']
    for row, column in np.ndindex(8, 8):
        grey = round(255 * (1 - float(np.clip(values.reshape(8, 8)[row, column], 0, 1))))
        parts.append(
            f'<rect x="{x + column * cell:.2f}" y="{y + row * cell:.2f}" width="{cell:.2f}" '
            f'height="{cell:.2f}" fill="rgb({grey},{grey},{grey})"/>'
        )
    return "".join(parts)


def find_pairs(example: Example) -> list[tuple[int, int]]:
    """A pair whose mixup sample gets its label, and one whose gets a class of neither input."""
    logits = logits_of(example.networks[0], example.clean)
    classes = logits.argmax(axis=1)
    rows = np.flatnonzero((classes == example.labels) & (softmax(logits).max(axis=1) > 0.95))
    found: dict[str, tuple[int, int]] = {}
    for i, j in combinations(rows[:60], 2):
        mixed = LAM * example.clean[i] + (1 - LAM) * example.clean[j]
        predicted = logits_of(example.networks[0], mixed[None]).argmax()
        if classes[i] == classes[j]:
            continue
        if predicted == classes[i]:
            found.setdefault("its label", (i, j))
        elif predicted != classes[j]:
            found.setdefault("neither", (i, j))
    return [found["its label"], found["neither"]]


def draw_mixup(example: Example) -> None:
    """Two pairs of clean digits, so that a reader sees what is mixed."""
    size = 68
    lefts = (52, 188, 306)
    parts = []
    for number, (i, j) in enumerate(find_pairs(example)):
        top = 28 + 180 * number
        mixed = LAM * example.clean[i] + (1 - LAM) * example.clean[j]
        images = (example.clean[i], example.clean[j], mixed)
        outputs = softmax(logits_of(example.networks[0], np.stack(images)))
        label, other, predicted = outputs.argmax(axis=1)
        below = (f"“{label}”", f"“{other}”", f"label “{label}”")
        above = ("predicted", "predicted", "mixed")
        before = ("0.65 ×", "+ 0.35 ×", "=")
        for k, left in enumerate(lefts):
            middle = left + size / 2
            parts.append(digit(images[k], left, top, size))
            parts.append(text(left - 5, top + size / 2 + 5, before[k], anchor="end"))
            parts.append(text(middle, top - 8, above[k], anchor="middle", kind="small"))
            parts.append(text(middle, top + size + 19, below[k], anchor="middle", kind="bold"))
        said = f"The model predicts “{predicted}” with {outputs[2].max():.0%} confidence:"
        parts.append(text(195, top + size + 46, said, anchor="middle"))
        outcome = "counts as an error"
        colour = "bold red"
        if predicted == label:
            outcome = "counts as correct"
            colour = "bold green"
        parts.append(text(195, top + size + 66, outcome, anchor="middle", kind=colour))
    save("mixup-pair.svg", 350, "Two mixup samples with their labels", parts)


def draw_reliability(example: Example) -> None:
    """A reliability diagram with notes; the strip below shows how many inputs a bin has."""
    confidence = softmax(example.first).max(axis=1)
    right = example.first.argmax(axis=1) == example.labels
    left, top, size = 52, 18, 300
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    parts = [
        rectangle(left, top, size, size, "axis"),
        line([(left, top + size), (left + size, top)], "grid"),
    ]
    for k in range(10):
        inside = bins == k
        if not inside.any():
            continue
        x = left + size * k / 10
        accuracy = float(right[inside].mean())
        mean = float(confidence[inside].mean())
        height = size * accuracy
        parts.append(rectangle(x + 2, top + size - height, size / 10 - 4, height, "blue half"))
        gap = size * abs(mean - accuracy)
        highest = top + size * (1 - max(mean, accuracy))
        parts.append(rectangle(x + 2, highest, size / 10 - 4, gap, "red pale"))
        fraction = float(inside.mean())
        strip = 60 * fraction / 0.6
        parts.append(rectangle(x + 2, top + size + 98 - strip, size / 10 - 4, strip, "orange half"))
    for value in (0, 50, 100):
        at = size * value / 100
        parts.append(text(left + at, top + size + 17, f"{value}%", anchor="middle", kind="small"))
        parts.append(text(left - 6, top + size - at + 5, f"{value}%", anchor="end", kind="small"))
    parts += [
        text(left + 10, top + 24, "accuracy of each bin", kind="bold blue"),
        text(left + 10, top + 44, "gap to its mean confidence", kind="bold red"),
        text(left + 10, top + 64, "dashed: perfect calibration"),
        text(left + size / 2, top + size + 34, "confidence", anchor="middle"),
        rectangle(left, top + size + 98, size, 0.5, "axis"),
        text(left, top + size + 116, "how many predictions a bin has", kind="bold orange"),
    ]
    save("reliability-explained.svg", top + size + 124, "How to read a reliability diagram", parts)


def draw_venn(numbers: dict[str, float | str]) -> None:
    """The errors of two models as two circles; agreement is outside of both, and a part of the lens."""

    def percent(name: str) -> str:
        return f"{float(numbers[name]):.0%}"

    parts = [
        '<rect x="4" y="4" width="382" height="262" rx="10" class="green pale"/>',
        '<rect x="4" y="4" width="382" height="262" rx="10" class="axis"/>',
        '<circle cx="140" cy="152" r="96" class="blue pale"/>',
        '<circle cx="250" cy="152" r="96" class="orange pale"/>',
        '<circle cx="140" cy="152" r="96" class="line blue-line"/>',
        '<circle cx="250" cy="152" r="96" class="line orange-line"/>',
        '<ellipse cx="195" cy="176" rx="33" ry="38" class="red half"/>',
        text(195, 30, f"both right: {percent('both_right')} (they agree)", anchor="middle"),
        text(96, 146, "only first", anchor="middle", kind="small"),
        text(96, 163, "wrong", anchor="middle", kind="small"),
        text(294, 146, "only second", anchor="middle", kind="small"),
        text(294, 163, "wrong", anchor="middle", kind="small"),
        text(195, 112, "both wrong,", anchor="middle", kind="small"),
        text(195, 128, "differently", anchor="middle", kind="small"),
        text(195, 168, "same", anchor="middle", kind="small bold"),
        text(195, 184, "mistake", anchor="middle", kind="small bold"),
        text(195, 201, percent("both_wrong_same"), anchor="middle", kind="bold"),
        text(195, 290, f"agreement = both right {percent('both_right')}", anchor="middle"),
        text(
            195,
            310,
            f"+ same mistake {percent('both_wrong_same')} = {percent('agreement')}",
            anchor="middle",
        ),
    ]
    save("agreement.svg", 320, "Agreement and shared mistakes of two models", parts)


def draw_curve(path: Path) -> None:
    """ECE against the number of labels."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    left, top, width, height = 40, 16, 330, 220
    most = 5 * np.ceil(max(float(row["none"]) for row in rows) / 5)
    places = np.linspace(left + 12, left + width - 12, len(rows))

    def at(value: str) -> float:
        return float(top + height * (1 - float(value) / most))

    parts = [rectangle(left, top, width, height, "axis")]
    parts += [
        text(left - 6, at(str(value)) + 5, str(value), anchor="end", kind="small")
        for value in range(0, int(most) + 1, 5)
    ]
    for x, row in zip(places, rows, strict=True):
        parts.append(text(x, top + height + 18, row["labels"], anchor="middle", kind="small"))
    lines = {
        "none": ("no calibration", "line red-line", "red", -8),
        "one model": ("one model", "line orange-line", "orange", -6),
        "two models": ("two models", "line blue-line", "blue", 60),
        "oracle": ("oracle", "line green-line", "green", 18),
    }
    for column, (name, kind, colour, shift) in lines.items():
        points = [(float(x), at(row[column])) for x, row in zip(places, rows, strict=True)]
        parts.append(line(points, kind))
        place = {"one model": 1, "two models": 0, "oracle": 4, "none": 4}[column]
        x, y = points[place]
        anchor = "start" if place < 2 else "middle"
        parts.append(text(x + 4, y + shift, name, anchor=anchor, kind=f"bold {colour}"))
    middle = left + width / 2
    parts.append(text(middle, top + height + 38, "number of labels", anchor="middle"))
    parts.append(text(left + 4, top - 3, "ECE, percent", kind="small"))
    save("labels-curve.svg", top + height + 46, "ECE against the number of labels", parts)


def main() -> None:
    example = noisy_digits()
    numbers = numbers_of(example)
    (DOCS / "images").mkdir(exist_ok=True)
    stored = {k: round(v, 4) if isinstance(v, float) else v for k, v in numbers.items()}
    path = DOCS / "images" / "digits.json"
    path.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(stored, indent=2))
    draw_mixup(example)
    draw_reliability(example)
    draw_venn(numbers)
    if CURVE.exists():
        draw_curve(CURVE)


if __name__ == "__main__":
    main()
