"""What the demo says at the end: one table, what to make of it, and reliability diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import MissingExtraError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.trust import Trust
from pseudocal.cli.demo import NONE, Demo, Shown, run_demo
from pseudocal.cli.run import Say
from pseudocal.metrics import Outcomes, Reliability, accuracy, ece, paired

HEAD = f"  {'':24}{'T':>6}{'ECE':>8}   {'ECE after minus before':34}verdict"


def demo_lines(out: Path, quiet: bool, say: Say) -> list[str]:
    """Run the demo and say what came out."""
    return lines_of(demo := Demo(out, quiet=quiet), run_demo(demo, say))


def lines_of(demo: Demo, shown: Sequence[Shown]) -> list[str]:
    """Draw the diagrams; the table, what it teaches, and where everything lies."""
    adapted = shown[-1]
    diagrams = demo.out / "reliability.svg"
    draw_reliability(adapted, f"{adapted.method}, {demo.source} to {demo.target}", diagrams)
    return [
        *table_lines(demo, shown),
        "",
        *lesson_lines(shown),
        "",
        *(f"report on {each.method}: {each.folder / 'report.html'}" for each in shown),
        f"reliability diagrams of {adapted.method}: {diagrams}",
    ]


def table_lines(demo: Demo, shown: Sequence[Shown]) -> Iterator[str]:
    """One table for all models: accuracy and its forecast, then a line for each calibrator."""
    n = len(shown[0].labels)
    yield f"trained on {demo.source}, used on {demo.target}: {n:,} pictures, whose labels serve this table alone"
    for each in shown:
        trust = trust_of(each)
        before = outcomes(each, NONE)
        yield ""
        yield (
            f"{each.method}: accuracy {accuracy(before):.1%}, forecast {trust.forecast.accuracy:.0%} "
            f"({trust.forecast.low:.0%} to {trust.forecast.high:.0%})"
        )
        yield HEAD
        for name, calibration in each.calibrations.items():
            line = f"  {name:24}{calibration.temperature:6.2f}{ece(outcomes(each, name)):8.1%}"
            change = "" if name == NONE else change_of(each, name)
            verdict = "" if calibration.trust is None else calibration.trust.verdict
            yield f"{line}   {change:34}{verdict}".rstrip()


def lesson_lines(shown: Sequence[Shown]) -> Iterator[str]:
    """Where a calibrator made things worse, and what the verdict had said without a label."""
    for each in shown:
        for name, calibration in each.calibrations.items():
            if name == NONE or not change_of(each, name).endswith("WORSE"):
                continue
            yield f"{each.method}: {name} made it worse, from {_points(each, NONE)} to {_points(each, name)}."
            if (trust := calibration.trust) is not None:
                yield f"  Its verdict, which saw no label, is: {trust.verdict}. {trust.reasons[0]}"


def change_of(each: Shown, name: str) -> str:
    """The paired change of the ECE with its 95% interval, in words as well."""
    change = paired(ece, outcomes(each, NONE), outcomes(each, name))
    word = "better" if change.high < 0 else "WORSE" if change.low > 0 else "no clear change"
    return f"{change:.1%} {word}"


def trust_of(each: Shown) -> Trust:
    """The judgement of the paper's PseudoCal."""
    return next(c.trust for c in each.calibrations.values() if c.trust is not None)


def outcomes(each: Shown, name: str) -> Outcomes:
    """How the calibrated model does on the labels."""
    calibration: Calibration = each.calibrations[name]
    return Outcomes.from_logits(calibration(each.logits), each.labels)


def _points(each: Shown, name: str) -> str:
    return f"{ece(outcomes(each, name)):.1%}"


def draw_reliability(each: Shown, title: str, path: Path) -> None:
    """Reliability diagrams side by side: confidence against accuracy, and how many predictions a bin holds."""
    found = {name: Reliability.of(outcomes(each, name)) for name in each.calibrations}
    plt = _pyplot()
    figure, axes = plt.subplots(
        2, len(found), figsize=(3.2 * len(found), 4.4), sharex=True, height_ratios=[4, 1], squeeze=False
    )
    for (name, r), (top, bottom) in zip(found.items(), axes.T, strict=True):
        low, high = r.accuracy_interval()
        some = r.count > 0
        bars = [(r.accuracy - low)[some], (high - r.accuracy)[some]]
        top.plot([0, 1], [0, 1], color="0.6", lw=1)
        top.errorbar(r.confidence[some], r.accuracy[some], bars, fmt="o", ms=4, capsize=2)
        top.set(title=f"{name}\nECE {r.ece:.1%}", ylim=(0, 1.02), xlim=(0, 1.02))
        bottom.bar(r.edges[:-1], r.count / r.count.sum(), width=np.diff(r.edges), align="edge", edgecolor="white")
        bottom.set(xlabel="confidence")
    axes[0, 0].set(ylabel="accuracy")
    axes[1, 0].set(ylabel="share")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("matplotlib", "demo") from error
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pseudocal"  # so that the same numbers give the same file
    import matplotlib.pyplot as plt

    return plt
