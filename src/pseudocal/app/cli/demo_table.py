"""The results of the demo: one table, what to learn from it, and reliability diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pseudocal import LabelSample, rows_to_label
from pseudocal.app.cli.demo import AGREEMENT, NONE, Demo, Say, Shown, run_demo
from pseudocal.app.jobs.answers import ask_about
from pseudocal.calibrators import Calibration
from pseudocal.lab.bench.figures import pyplot
from pseudocal.metrics import Outcomes, Reliability, accuracy, ece, paired
from pseudocal.metrics.intervals import Interval

ANSWERS = (20, 50)  # how many questions are answered
HEAD = f"  {'':24}{'T':>6}{'ECE':>8}   {'ECE after minus before':40}verdict"


@dataclass(frozen=True)
class Line:
    """The result of one calibrator on one model."""

    name: str
    calibration: Calibration
    ece: float
    change: Interval | None  # the paired change of the ECE; None for no calibration

    @property
    def word(self) -> str:
        """Whether it helped, by the interval of the change."""
        if self.change is None:
            return ""
        return (
            "better"
            if self.change.high < 0
            else "WORSE"
            if self.change.low > 0
            else "no clear change"
        )

    def __str__(self) -> str:
        change = "" if self.change is None else f"{self.change:.1%} {self.word}"
        verdict = "" if self.calibration.trust is None else self.calibration.trust.verdict
        return f"  {self.name:24}{self.calibration.temperature:6.2f}{self.ece:8.1%}   {change:40}{verdict}".rstrip()


def demo_lines(out: Path, quiet: bool, say: Say) -> list[str]:
    """Run the demo and return the lines to print."""
    return lines_of(demo := Demo(out, quiet=quiet), run_demo(demo, say))


def lines_of(demo: Demo, shown: Sequence[Shown]) -> list[str]:
    """Draw the diagrams, and return the table, what to learn from it, and where the files are."""
    adapted = shown[-1]
    diagrams = demo.out / "reliability.svg"
    draw_reliability(adapted, f"{adapted.method}, {demo.source} to {demo.target}", diagrams)
    compared = {each.method: compare(each) for each in shown}
    return [
        f"trained on {demo.source}, used on {demo.target}: {len(adapted.labels):,} images, "
        "whose labels are used for the comparison only",
        "",
        *(line for each in shown for line in (*table_lines(each, compared[each.method]), "")),
        *lesson_lines(compared),
        "",
        *answered_lines(adapted),
        "",
        *(f"report on {each.method}: {each.folder / 'report.html'}" for each in shown),
        f"reliability diagrams of {adapted.method}: {diagrams}",
    ]


def compare(each: Shown) -> list[Line]:
    """Compare every calibrator with no calibration, on the labels."""
    before = outcomes(each, NONE)
    lines = []
    for name, calibration in each.calibrations.items():
        after = outcomes(each, name)
        lines.append(
            Line(
                name, calibration, ece(after), None if name == NONE else paired(ece, before, after)
            )
        )
    return lines


def table_lines(each: Shown, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the accuracy of a model and its estimate, then a line for each calibrator."""
    estimated_accuracy = next(
        line.calibration.trust for line in lines if line.calibration.trust is not None
    ).estimated_accuracy
    yield (
        f"{each.method}: accuracy {accuracy(outcomes(each, NONE)):.1%}, estimate {estimated_accuracy.value:.0%} "
        f"({estimated_accuracy.low:.0%} to {estimated_accuracy.high:.0%})"
    )
    yield HEAD
    yield from map(str, lines)


def lesson_lines(compared: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """Say where a calibrator made the ECE worse, and what the verdict was without labels."""
    for method, lines in compared.items():
        before = next(line.ece for line in lines if line.name == NONE)
        for line in lines:
            if line.word == "WORSE":
                yield f"{method}: {line.name} made it worse, from an ECE of {before:.1%} to {line.ece:.1%}."
                if (trust := line.calibration.trust) is not None:
                    why = " ".join(str(reason) for reason in trust.reasons)
                    yield f"  Its verdict, made without labels: {trust.verdict}. {why}"


def answered_lines(each: Shown) -> Iterator[str]:
    """What a few answers do, which come from the known labels here, and a page to give one's own."""
    rows = rows_to_label(each.logits, max(ANSWERS))
    others = np.setdiff1d(np.arange(len(each.labels)), rows)
    label_free = each.calibrations[AGREEMENT]
    yield f"{each.method}: questions of `pseudocal ask`, answered here from the known labels as a person would:"
    for n in (0, *ANSWERS):
        found = (
            label_free.refined(each.logits, LabelSample(rows[:n], each.labels[rows[:n]]))
            if n
            else label_free
        )
        error = ece(Outcomes.from_logits(found(each.logits[others]), each.labels[others]))
        known = f", accuracy {found.measured.accuracy:.0%}" if found.measured else ""
        yield f"  {n:2} answers: T = {found.temperature:.2f}, ECE {error:.1%}, verdict: {found.verdict}{known}"
    yield f"  (ECE on the {len(others):,} images that were not asked about.)"
    yield f"  answer yourself: open {ask_about(each.folder, min(ANSWERS))}, save answers.csv, then"
    yield f"  pseudocal refine {each.folder} answers.csv"


def outcomes(each: Shown, name: str) -> Outcomes:
    """Return the outcomes of a calibrated model on the labels."""
    return Outcomes.from_logits(each.calibrations[name](each.logits), each.labels)


def draw_reliability(each: Shown, title: str, path: Path) -> None:
    """Draw reliability diagrams side by side.

    Accuracy against confidence, and the fraction of predictions per bin.
    """
    found = {name: Reliability.of(outcomes(each, name)) for name in each.calibrations}
    plt = pyplot()
    figure, axes = plt.subplots(
        2,
        len(found),
        figsize=(3.2 * len(found), 4.4),
        sharex=True,
        height_ratios=[4, 1],
        squeeze=False,
    )
    for (name, r), (top, bottom) in zip(found.items(), axes.T, strict=True):
        low, high = r.accuracy_interval()
        some = r.count > 0
        bars = [(r.accuracy - low)[some], (high - r.accuracy)[some]]
        top.plot([0, 1], [0, 1], color="0.6", lw=1)
        top.errorbar(r.confidence[some], r.accuracy[some], bars, fmt="o", ms=4, capsize=2)
        top.set(title=f"{name}\nECE {r.ece:.1%}", ylim=(0, 1.02), xlim=(0, 1.02))
        bottom.bar(
            r.edges[:-1],
            r.count / r.count.sum(),
            width=np.diff(r.edges),
            align="edge",
            edgecolor="white",
        )
        bottom.set(xlabel="confidence")
    axes[0, 0].set(ylabel="accuracy")
    axes[1, 0].set(ylabel="fraction")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
