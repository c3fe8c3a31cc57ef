"""Intervals and verdicts of `benchmarks/labels.py` from single draws of labels, compared with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labels_grid import GRID, NUMBERS, Draws, Posteriors
from pseudocal.calibrators.anytime import LabelHistory
from pseudocal.calibrators.labelled_accuracy import (
    LEVEL,
    CheckedRows,
    accuracy_interval,
    interval_of_alike,
)
from pseudocal.calibrators.measured import MeasuredEvidence, judge_temperature
from pseudocal.calibrators.posterior import Prior


@dataclass(frozen=True)
class Look:
    """What one draw of answers says, and what is true."""

    temperature: bool  # whether the interval holds the truth
    accuracy: bool
    extreme: bool  # all answers right, or all wrong
    width: float
    verdict: str
    change: float  # of the ECE, in points
    gain: float  # of the oracle


def looks(draws: Draws, priors: list[Prior]) -> list[Look]:
    """Every draw."""
    fitted = draws.posterior(priors)
    t = draws.tables
    truth, oracle = float(t.right.mean()), t.target.oracle
    low, high = intervals(draws, draws.wide(priors))
    others = fitted.without()
    confidence = draws.confidence_at(others)
    plain = float(np.interp(0.0, GRID, t.mean))
    before, fit, best = (draws.ece(g) for g in (0.0, fitted.median, oracle))
    found = []
    for k, right in enumerate(draws.right):
        mean, noise = (
            float(np.interp(others[k].mean(), GRID, column)) for column in (t.mean, t.noise)
        )
        sample = CheckedRows(
            right, confidence[k], mean, noise, len(t.right), np.arange(len(right)), draws.spread
        )
        accuracy = accuracy_interval(sample)
        history = LabelHistory.empty(len(t.right), 1.0, priors)
        history = history.extended(t.likelihood[draws.labelled[k]].astype(float))
        at_low, at_high = np.interp([history.low, history.high], GRID, t.mean)
        evidence = MeasuredEvidence(
            history.low,
            history.high,
            change=max(at_low - plain, plain - at_high),
            gap_before=plain - accuracy.value,
            labels=len(right),
            outside=max(accuracy.low - plain, plain - accuracy.high, 0.0),
        )
        verdict, _ = judge_temperature(
            min(max(fitted.median[k], history.low), history.high), evidence
        )
        found.append(
            Look(
                temperature=bool(low[k] <= oracle <= high[k]),
                accuracy=accuracy.low <= truth <= accuracy.high,
                extreme=bool(right.all() or not right.any()),
                width=100 * (accuracy.high - accuracy.low),
                verdict=verdict,
                change=float(fit[k] - before[k]),
                gain=float(before[k] - best[k]),
            )
        )
    return found


def intervals(draws: Draws, fitted: Posteriors) -> tuple[np.ndarray, np.ndarray]:
    """The 90% intervals of log T, as `refine` has them."""
    low, high = (fitted.quantile(fraction) for fraction in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    for k in np.flatnonzero(draws.right.all(axis=1) | ~draws.right.any(axis=1)):
        confidence, right = (
            draws.tables.confidence[draws.rows[k]].astype(float),
            bool(draws.right[k, 0]),
        )
        log_chance = fitted.weight * np.log(
            np.maximum(confidence if right else 1 - confidence, 1e-30)
        ).sum(axis=0)
        low[k], high[k] = interval_of_alike((low[k], high[k]), GRID, log_chance, right=right)
    return low, high


def coverage_table(found: dict[tuple[str, int], list[Look]]) -> str:
    """How often the 90% intervals hold the truth; the gap's is that of the accuracy."""
    lines = [
        "| family | n | T | accuracy, gap | width in points | all answers alike | T | accuracy, gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (family, n), some in found.items():
        alike = [one for one in some if one.extreme]
        (t, a), (t_alike, a_alike) = (
            [
                fraction([getattr(one, name) for one in which])
                for name in ("temperature", "accuracy")
            ]
            for which in (some, alike)
        )
        width = f"{np.mean([one.width for one in some]):.0f}"
        lines.append(
            f"| {family} | {n} | {t} | {a} | {width} | {len(alike)} draws | {t_alike} | {a_alike} |"
        )
    return "\n".join(lines)


def verdict_table(found: dict[tuple[str, int], list[Look]]) -> str:
    """How often the verdict is right."""
    lines = [
        "| family | n | apply | of these no harm | of those that gain over 2 points: apply | already calibrated "
        "| of these off by under 2 points |",
        "|---|---|---|---|---|---|---|",
    ]
    pooled = {
        ("all", n): [one for (_, m), some in found.items() if m == n for one in some]
        for n in NUMBERS
    }
    for (family, n), some in {**found, **pooled}.items():
        apply = [one for one in some if one.verdict == "apply"]
        done = [one for one in some if one.verdict == "already calibrated"]
        harmless = fraction([one.change <= 1 for one in apply])
        reached = fraction([one.verdict == "apply" for one in some if one.gain > 2])
        rest = fraction([one.gain < 2 for one in done])
        cells = f"{len(apply) / len(some):.0%} | {harmless} | {reached} | {len(done) / len(some):.0%} | {rest}"
        lines.append(f"| {family} | {n} | {cells} |")
    return "\n".join(lines)


def fraction(which: list[bool]) -> str:
    return f"{100 * np.mean(which):.1f}%" if which else "-"
