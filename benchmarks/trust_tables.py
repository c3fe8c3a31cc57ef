"""Tables for `benchmarks/trust.py`: calibration errors, verdicts and estimates by family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.stats import wilcoxon
from sklearn.metrics import roc_auc_score

from pseudocal import fit_temperature
from pseudocal.calibrators.baselines.accuracy import atc_accuracy, doc_accuracy
from pseudocal.calibrators.confidence import confidences, match_confidence
from pseudocal.calibrators.trust import Trust
from trust_cases import Case

Cases = dict[str, list[Case]]


def by_estimator(name: str, opinions: int = 1) -> Callable[[Case], float]:
    """The temperature of an estimator, or of mixup samples where it has none."""
    return lambda case: case.found(opinions).get(name, case.mixing).temperature


CANDIDATES: dict[str, Callable[[Case], float]] = {
    "none": lambda case: 1.0,
    "PseudoCal": by_estimator("mixup"),
    "raw agreement": lambda case: (
        match_confidence(case.logits, case.agreements[0].rate).temperature
    ),
    "agreement": by_estimator("agreement"),
    "agreement, two opinions": by_estimator("agreement", 2),
    "oracle": lambda case: fit_temperature(case.logits, case.labels).temperature,
}


def table(header: str, rows: list[str]) -> str:
    """Markdown."""
    return "\n".join([header, "|---" * (header.count("|") - 1) + "|", *rows])


class Judged(NamedTuple):
    """A case with the verdict on the temperature of an estimator, and the ECE before and after it."""

    case: Case
    trust: Trust
    before: float
    after: float


class Measured(NamedTuple):
    """What is known of a family.

    Rows of the table of calibration errors, and the verdicts by estimator.
    """

    errors: list[str]
    judged: dict[str, list[Judged]]


def measured(family: str, group: list[Case]) -> Measured:
    """Everything about a family."""
    judged = {}
    for used in ("agreement", "mixup"):
        temperature = by_estimator(used)
        judged[used] = [
            Judged(case, case.trust(used), case.ece(1.0), case.ece(temperature(case)))
            for case in group
        ]
    return Measured(calibration_errors(family, group), judged)


def tables(found: dict[str, Measured]) -> Iterator[str]:
    """Calibration errors, verdicts and estimates."""
    header = "| family | candidate | ECE | worst | better than PseudoCal | p |"
    yield table(header, [row for family in found.values() for row in family.errors])
    for used in ("agreement", "mixup"):
        yield f"The verdict on the temperature from {used}:"
        yield verdicts(with_all({family: its.judged[used] for family, its in found.items()}))
    yield estimated_accuracies(
        with_all({family: its.judged["agreement"] for family, its in found.items()})
    )


def with_all(found: dict[str, list[Judged]]) -> dict[str, list[Judged]]:
    """The families, and all of them together."""
    return {**found, "all": [one for group in found.values() for one in group]}


def calibration_errors(family: str, group: list[Case]) -> list[str]:
    """Mean ECE of each candidate, and a paired test over tasks (means over seeds) against PseudoCal."""
    rows = []
    scores = {
        name: [case.ece(temperature(case)) for case in group]
        for name, temperature in CANDIDATES.items()
    }
    reference = by_task(group, scores["PseudoCal"])
    for name, values in scores.items():
        own = by_task(group, values)
        same = np.allclose(own, reference)
        p = "" if same else f"{wilcoxon(own, reference).pvalue:.1g}"
        better = "" if same else f"{np.mean(own < reference):.0%} of {len(own)} tasks"
        rows.append(
            f"| {family} | {name} | {np.mean(values):.1f} | {np.max(values):.1f} | {better} | {p} |"
        )
    return rows


def by_task(cases: list[Case], values: list[float]) -> np.ndarray:
    """Means over the seeds of a task."""
    groups: dict[str, list[float]] = defaultdict(list)
    for case, value in zip(cases, values, strict=True):
        groups[case.task].append(value)
    return np.array([np.mean(group) for group in groups.values()])


def verdicts(found: dict[str, list[Judged]]) -> str:
    """How often the verdict is right."""
    rows = []
    for family, group in found.items():
        before, after = (
            np.array([getattr(one, name) for one in group]) for name in ("before", "after")
        )
        worse, helps = after > before + 1, after < before
        apply, refused = (
            np.array([one.trust.verdict == v for one in group]) for v in ("apply", "do not apply")
        )
        score = np.array([np.nan if one.trust.score is None else one.trust.score for one in group])
        rows.append(
            f"| {family} | {len(group)} | {apply.sum()} | {fraction(~worse[apply])} | {fraction(apply[helps])} "
            f"| {refused.sum()} | {fraction(worse[refused])} | {auroc(worse | (after > 10), score)} |"
        )
    header = "| family | cases | apply | of these no worse | of the helpful: apply | do not apply | of these worse "
    return table(f"{header}| AUROC (95%) |", rows)


def fraction(which: np.ndarray) -> str:
    """How many, in percent."""
    return f"{np.mean(which):.0%}" if len(which) else "-"


def auroc(bad: np.ndarray, score: np.ndarray) -> str:
    """With its interval from resampled cases.

    `bad` is made worse by over a point, or an ECE above ten.
    """
    bad, score = bad[~np.isnan(score)], score[~np.isnan(score)]
    if bad.all() or not bad.any():
        return "-"
    rng, drawn = np.random.default_rng(0), []
    for _ in range(1000):
        rows = rng.integers(len(bad), size=len(bad))
        if 0 < bad[rows].sum() < len(bad):
            drawn.append(roc_auc_score(bad[rows], score[rows]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{roc_auc_score(bad, score):.2f} ({low:.2f} to {high:.2f})"


def estimated_accuracies(found: dict[str, list[Judged]]) -> str:
    """Coverage and width of the 90% interval, and the mean absolute error beside those of others, in points."""
    rows = []
    for family, group in found.items():
        errors: dict[str, list[float]] = defaultdict(list)
        covered, widths = [], []
        for case, trust, *_ in group:
            covered.append(
                trust.estimated_accuracy.low <= case.accuracy <= trust.estimated_accuracy.high
            )
            widths.append(100 * (trust.estimated_accuracy.high - trust.estimated_accuracy.low))
            for name, value in predicted(case, trust).items():
                errors[name].append(100 * abs(value - case.accuracy))
        means = " | ".join(
            f"{np.mean(errors[name]):.1f}" if errors[name] else "-" for name in ESTIMATES
        )
        rows.append(f"| {family} | {np.mean(covered):.0%} | {np.median(widths):.0f} | {means} |")
    return table(f"| family | covered | median width | {' | '.join(ESTIMATES)} |", rows)


ESTIMATES = (
    "estimated_accuracy",
    "raw agreement",
    "PseudoCal's confidence",
    "plain confidence",
    "ATC",
    "DoC",
)


def predicted(case: Case, trust: Trust) -> dict[str, float]:
    """Estimated accuracy."""
    found = {
        "estimated_accuracy": trust.estimated_accuracy.value,
        "raw agreement": case.agreements[0].rate,
        "PseudoCal's confidence": float(confidences(case.logits, case.mixing.temperature).mean()),
        "plain confidence": float(confidences(case.logits).mean()),
    }
    if case.source is not None:
        found |= {
            "ATC": atc_accuracy(case.source, case.logits),
            "DoC": doc_accuracy(case.source, case.logits),
        }
    return found


def examples(cases: list[Case]) -> str:
    """The verdict on each case, and what it could not know."""
    rows = []
    for case in cases:
        trust = case.trust()
        temperature = trust.effects[
            "agreement" if "agreement" in trust.effects else "mixup"
        ].temperature
        rows.append(
            f"{case.family}, {case.task}: {trust.verdict}. {' '.join(map(str, trust.reasons))} "
            f"Accuracy {case.accuracy:.1%}, "
            f"ECE {case.ece(1.0):.1f} before and {case.ece(temperature):.1f} after."
        )
    return "\n\n".join(rows)
