"""Draw the images of the first pages as SVG.

    python benchmarks/start_images.py              # hero.svg and choose.svg
    python benchmarks/start_images.py record       # run `pseudocal demo`, keep what it prints, draw demo.svg
    python benchmarks/start_images.py demo         # draw demo.svg from what was kept

They are readable at 390 pixels and follow the light or dark setting of the reader.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import textwrap
import time
from html import escape
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from pseudocal import LabelSample, Outcomes, PseudoCal, Reliability, rows_to_label
from pseudocal.metrics import ece

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
RECORDING = IMAGES / "demo.json"
RESULTS = DOCS / "evaluation" / "results"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
STYLE = """
svg { color: #1f2328; --soft: #656d76; --line: #c3c9d0; --blue: #2f6fde; --gap: #e5534b; --box: #eef2f7; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6e8eb; --soft: #9aa4af; --line: #4b535d; --blue: #6ea8ff; --gap: #ff7b72; --box: #2b313a; }
}
text { fill: currentColor; }
.soft { fill: var(--soft); }
.line { stroke: var(--line); fill: none; stroke-width: 2; }
.box { fill: var(--box); stroke: var(--line); stroke-width: 1.5; }
.good { fill: var(--box); stroke: var(--blue); stroke-width: 3; }
.bar { fill: var(--blue); }
.gap { fill: var(--gap); fill-opacity: 0.55; }
"""


def svg(
    width: int, height: int, title: str, body: list[str], *, scale: float = 1, extra: str = ""
) -> str:
    """An SVG image with our colours; `scale` is its size on a large screen."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{scale * width:.0f}" height="{scale * height:.0f}" role="img" font-family="{FONT}">'
    )
    lines = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}{extra}</style>", *body]
    return "\n".join([*lines, "</svg>"]) + "\n"


def text(
    x: float, y: float, words: str, size: int, *, kind: str = "", anchor: str = "start"
) -> str:
    """A line of text; `*` at its start makes it bold."""
    weight = ' font-weight="600"' if words.startswith("*") else ""
    shown = escape(words.removeprefix("*"))
    mark = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}{mark}>'
        f"{shown}</text>"
    )


# ------------------------------------------------------------------------------ before and after


def readme_case() -> dict[str, Outcomes]:
    """The models of the README: without calibration, without labels, with 50 labels."""
    x, y = load_digits(return_X_y=True)
    first, second = (
        MLPClassifier((50,), random_state=seed).fit(x[:900], y[:900]) for seed in (0, 1)
    )
    new = x[900:] + np.random.default_rng(0).normal(0, 4, (897, 64))
    truth = y[900:]
    calibration = PseudoCal().fit(first, new, second_opinion=second)
    logits = first.predict_log_proba(new)
    rows = rows_to_label(logits, 50)
    labelled = calibration.refined(logits, LabelSample(rows, truth[rows]))
    return {
        "before": Outcomes.from_logits(logits, truth),
        "no labels": Outcomes.from_logits(calibration(logits), truth),
        "50 labels": Outcomes.from_logits(labelled(logits), truth),
    }


def hero() -> str:
    """Two reliability diagrams: before calibration, and after 50 labels."""
    case = readme_case()
    body = []
    for name, left in [("before", 0), ("50 labels", 380)]:
        heading = "*Before" if name == "before" else "*After 50 labels"
        body += diagram(case[name], heading, left)
    return svg(760, 500, "Reliability diagrams before and after calibration", body, scale=0.75)


def diagram(outcomes: Outcomes, heading: str, left: int, *, size: int = 300) -> list[str]:
    """A bar for each range of confidence: blue is the accuracy, red its distance from confidence."""
    x0, y0 = left + 50, 90 + size
    found = Reliability.of(outcomes, bins=10)
    body = [text(x0, 36, heading, 28)]
    error = f"error (ECE) {ece(outcomes):.1%}"
    body.append(text(x0, 70, error, 24, kind="soft"))
    for low, high, right, n in zip(
        found.edges[:-1], found.edges[1:], found.accuracy, found.count, strict=True
    ):
        if n < 5:  # too few predictions to show
            continue
        middle = (low + high) / 2
        x, width = x0 + low * size + 2, (high - low) * size - 4
        below, above = sorted([right, middle])
        body.append(rectangle(x, y0 - right * size, width, right * size, "bar"))
        body.append(rectangle(x, y0 - above * size, width, (above - below) * size, "gap"))
    body.append(f'<path class="line" d="M{x0} {y0 - size}V{y0}H{x0 + size}"/>')
    body.append(
        f'<path class="line" stroke-dasharray="7 6" d="M{x0} {y0}L{x0 + size} {y0 - size}"/>'
    )
    for value in (0, 0.5, 1):
        body.append(
            text(x0 + value * size, y0 + 28, f"{value:.0%}", 21, kind="soft", anchor="middle")
        )
        if value:
            body.append(
                text(
                    x0 - 8,
                    y0 - value * size + 8,
                    f"{100 * value:.0f}",
                    21,
                    kind="soft",
                    anchor="end",
                )
            )
    middle = y0 - size / 4
    body.append(
        f'<text class="soft" font-size="21" text-anchor="middle" '
        f'transform="translate({x0 - 12} {middle:g}) rotate(-90)">accuracy</text>'
    )
    said = f"says {outcomes.confidence.mean():.0%}, right {outcomes.correct.mean():.0%}"
    body.append(text(x0 + size / 2, y0 + 62, "confidence", 22, kind="soft", anchor="middle"))
    body.append(text(x0 + size / 2, y0 + 98, f"*{said}", 26, anchor="middle"))
    return body


def rectangle(
    x: float, y: float, width: float, height: float, kind: str, *, round_: int = 0
) -> str:
    corner = f' rx="{round_}"' if round_ else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f"{corner}/>"
    )


# ------------------------------------------------------------------------------ which setup


def stored(file: str, first: str, column: str) -> str:
    """A figure of the evaluation: the file, the first cell of the row, the column."""
    with (RESULTS / file).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if next(iter(row.values())) == first:
                return row[column]
    raise KeyError(first)


def choose() -> str:
    """Questions on the left; "yes" leads to the right, "no" further down."""
    exported = stored("held_out-ratio-by-labels.csv", "0", "two models")
    fifty = stored("held_out-ratio-by-labels.csv", "50", "two models")
    steps = [
        (
            ["*Labels of the", "*new data?", "some hundreds"],
            ["*fit_temperature", "the best T for", "these labels"],
            "good",
        ),
        (
            ["*Can a person", "*label 50 inputs?"],
            ["*label, then refine", "a measurement:", f"ECE {fifty} x the best"],
            "good",
        ),
        (
            ["*Texts, or only", "*two classes?"],
            ["*Label 50 later", "until then T = 1:", "nothing changes"],
            "box",
        ),
        (
            ["*A second model of", "*the same classes?"],
            ["*--second-opinion", "estimate, verdict,", f"ECE {exported} x the best"],
            "good",
        ),
        (
            ["*A pretrained", "*encoder?"],
            ["*--second-opinion", "*surrogate", "caution at best"],
            "box",
        ),
    ]
    body = []
    top, height, gap = 16, 104, 44
    for question, outcome, kind in steps:
        body += boxed(10, top, 250, height, question, "box")
        body += boxed(350, top, 250, height, outcome, kind)
        middle = top + height / 2
        body.append(f'<path class="line" d="M260 {middle}H344m-10 -7l10 7l-10 7"/>')
        body.append(text(298, middle - 10, "yes", 21, kind="soft", anchor="middle"))
        below = top + height
        body.append(f'<path class="line" d="M135 {below}V{below + gap - 6}m-7 -10l7 10l7 -10"/>')
        body.append(text(150, below + 29, "no", 21, kind="soft"))
        top += height + gap
    last = ["*One model alone", "T from mixup samples; caution at best"]
    body += boxed(10, top, 590, 84, last, "box", size=21)
    return svg(610, top + 100, "Which setup fits what you have", body, scale=0.8)


def boxed(
    x: float, y: float, width: float, height: float, lines: list[str], kind: str, size: int = 23
) -> list[str]:
    """A box with centred lines."""
    step = size * 1.28
    first = y + height / 2 - step * (len(lines) - 1) / 2 + size * 0.35
    words = [
        text(x + width / 2, first + i * step, line, size, anchor="middle")
        for i, line in enumerate(lines)
    ]
    return [rectangle(x, y, width, height, kind, round_=10), *words]


# ------------------------------------------------------------------------------ the demo

COLUMNS = 58
SECONDS = 8.0  # the length of the animation


def record() -> None:
    """Run the demo in an empty cache of results, and keep its lines with their times."""
    command = [sys.executable, "-u", "-m", "pseudocal", "demo"]
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )
    lines = [
        {"seconds": round(time.monotonic() - start, 1), "line": line.rstrip("\n")}
        for line in process.stdout
    ]
    if process.wait():
        raise RuntimeError("the demo failed")
    RECORDING.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")


def demo() -> str:
    """What the demo prints, line by line, in a narrow terminal; tables are cut at its edge."""
    kept = json.loads(RECORDING.read_text(encoding="utf-8"))
    last = kept[-1]["seconds"]
    rows: list[tuple[float, str]] = [(0.0, "$ pseudocal demo")]
    for entry in kept:
        at = 0.6 + (SECONDS - 1) * entry["seconds"] / last
        rows += [(at, line) for line in in_terminal(entry["line"])]
    char, step, size = 9.65, 22, 16
    width, height = int(COLUMNS * char + 36), len(rows) * step + 62
    body = [
        f'<rect width="{width}" height="{height}" rx="10" fill="#161b22"/>',
        *(f'<circle cx="{20 + 20 * i}" cy="20" r="6" fill="#57606a"/>' for i in range(3)),
    ]
    for i, (at, line) in enumerate(rows):
        if not line:
            continue
        delay = at + 0.03 * i
        colour = "#7ee787" if line.startswith("$") else "#e6edf3"
        body.append(
            f'<text class="row" x="18" y="{52 + i * step}" font-size="{size}" xml:space="preserve" '
            f'style="fill:{colour};animation-delay:{delay:.2f}s" font-family="{MONO}">'
            f"{escape(line)}</text>"
        )
    extra = (
        "@media (prefers-reduced-motion: no-preference) {"
        " .row { animation: show 0.01s linear backwards; } }\n"
        "@keyframes show { from { visibility: hidden; } to { visibility: visible; } }\n"
    )
    return svg(width, height, "A recording of pseudocal demo", body, extra=extra)


def in_terminal(line: str) -> list[str]:
    """A line in a terminal of 58 columns: prose is wrapped, of a table the columns that fit stay.

    >>> in_terminal("  no calibration            1.00   15.1%   -8.0% [-9.9%, -6.4%] better")
    ['  no calibration            1.00   15.1%   …']
    """
    if len(line) <= COLUMNS:
        return [line]
    if "   " in line.strip():
        fitting, gap, _ = line[: COLUMNS - 1].rpartition("   ")
        return [fitting + gap + "…"]
    return textwrap.wrap(line, COLUMNS, subsequent_indent="  ")


def main(arguments: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    if "record" in arguments:
        record()
    if arguments:
        (IMAGES / "demo.svg").write_text(demo(), encoding="utf-8")
        return
    (IMAGES / "hero.svg").write_text(hero(), encoding="utf-8")
    (IMAGES / "choose.svg").write_text(choose(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
