"""Formulas from agreement to accuracy, compared on the development families.

    python benchmarks/trust.py formulas --data FOLDER

The rule was written down before the table was first printed. The loss of a formula is the mean
absolute error of its estimate, in points, with one second opinion. Families with more than two
classes have equal weight. The formula with the lowest loss replaces the current one if

- its loss is at least 0.2 points lower,
- the error of its estimate is on no family more than 1 point higher, and
- the ECE with the temperature from agreement, averaged over families, is at most 0.2 points higher.

Of the formulas that pass and are within 0.1 points of the best, the one with the fewest constants
is taken.

The second table compares surrogates by the same rule, also written down before. A surrogate learns
the model's mistakes, so it shares more of them on real inputs than on mixup samples: r + unseen
(1 - r) instead of r, or kappa minus a part of kappa (1 - kappa). Of the constants within 0.1 points
of the best, the smallest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pseudocal.calibrators.agreement import Agreement
from pseudocal.calibrators.confidence import match_confidence
from trust_cases import Case
from trust_tables import Cases, table

Share = Callable[[Agreement], float]  # the fraction of mistakes that are shared, or the accuracy


class Formula(NamedTuple):
    """A way from agreement to accuracy, and how many constants were chosen for it."""

    accuracy: Share
    constants: int
    by_class: bool = True  # whether the shared mistakes are weighted by class


def kappa(a: float, r: float) -> float:
    """The accuracy if the second model is right wherever the first is."""
    return (a - r) / (1 - r)


def upper(a: float, r: float) -> float:
    """The accuracy if the second model is as accurate as the first, and right independently of it."""
    return (r + math.sqrt(max(0.0, r * r + 4 * (a - r)))) / 2


def between(independence: float, a: float, s: float) -> float:
    """The root of a = p q + (1 - p) s with q = 1 - independence (1 - p)."""
    if a <= s:
        return 0.0
    k = min(independence, 1 - s)
    half = (1 - k - s) / (2 * k)
    return math.sqrt(half * half + (a - s) / k) - half


def to_raw(lean: Share | float) -> Share:
    """From kappa some way to the raw agreement."""

    def found(seen: Agreement) -> float:
        low, way = kappa(seen.rate, seen.shared), lean if isinstance(lean, float) else lean(seen)
        return low + way * (seen.rate - low)

    return found


def to_upper(lean: Share | float) -> Share:
    """From kappa some way to the upper end."""

    def found(seen: Agreement) -> float:
        low, way = kappa(seen.rate, seen.shared), lean if isinstance(lean, float) else lean(seen)
        return low + way * max(0.0, upper(seen.rate, seen.shared) - low)

    return found


def with_unseen(independence: float, unseen: Share) -> Share:
    """Some of the mistakes that mixes show as unshared are shared on real inputs."""
    return lambda seen: between(
        independence, seen.rate, seen.shared + unseen(seen) * (1 - seen.shared)
    )


def fixed(fraction: float) -> Share:
    """The same for all."""
    return lambda seen: fraction


def by_classes(fraction: float) -> Share:
    """Divided by the number of classes."""
    return lambda seen: fraction / seen.classes


def formulas() -> dict[str, Formula]:
    """All that are compared."""
    found = {"kappa": Formula(lambda seen: kappa(seen.rate, seen.shared), 0)}
    found["before: to raw 1/3, one share for all"] = Formula(to_raw(1 / 3), 1, by_class=False)
    for n in (5, 4, 3, 2):
        found[f"to raw 1/{n}"] = Formula(to_raw(1 / n), 1)
    for n in (5, 4, 3):
        found[f"to upper 1/{n}"] = Formula(to_upper(1 / n), 1)
    for name, lean in (("raw", to_raw), ("upper", to_upper)):
        found[f"to {name} 1/sqrt(classes)"] = Formula(lean(lambda seen: seen.classes**-0.5), 0)
    for independence in (0.1, 0.25, 0.4):
        for unseen in (0.0, 0.05, 0.1):
            name = f"q with {independence}, unseen {unseen}"
            found[name] = Formula(with_unseen(independence, fixed(unseen)), 1 + (unseen > 0))
        for part in (0.25, 0.5, 1.0):
            name = f"q with {independence}, unseen {part} / classes"
            found[name] = Formula(with_unseen(independence, by_classes(part)), 2)
    return found


def surrogate_formulas() -> dict[str, Formula]:
    """All that are compared for surrogates."""
    found = {"kappa": Formula(lambda seen: kappa(seen.rate, seen.shared), 0)}
    for percent in (5, 10, 15, 20, 25, 30):
        found[f"unseen {percent}%"] = Formula(learned(percent / 100), 1)
        found[f"less {percent}% of kappa (1 - kappa)"] = Formula(lowered(percent / 100), 1)
    return found


def learned(unseen: float) -> Share:
    """Kappa, if a surrogate learned some of the mistakes that mixes show as unshared."""
    return lambda seen: kappa(seen.rate, seen.shared + unseen * (1 - seen.shared))


def lowered(part: float) -> Share:
    """Kappa, lowered most where it is far from both zero and one."""

    def found(seen: Agreement) -> float:
        high = max(0.0, kappa(seen.rate, seen.shared))
        return high - part * high * (1 - high)

    return found


def estimated_accuracy(case: Case, formula: Formula, seen: Agreement) -> float:
    """The accuracy that a formula expects of a case.

    Never at chance nor at one, as in `Agreement.accuracy`.
    """
    if not formula.by_class:
        opinion = case.opinions[0]
        mistakes, shared = float(opinion.mistakes.sum()), float(opinion.shared.sum())
        seen = replace(seen, shared=(shared + 1) / (mistakes + 2))
    room = min(seen.rate_error, (1 - 1 / seen.classes) / 2)
    return float(np.clip(formula.accuracy(seen), 1 / seen.classes + room, 1 - room))


def compared(cases: Cases) -> Iterator[str]:
    """The tables: error of the estimate and ECE by family, and the means."""
    usable = {name: group for name, group in cases.items() if group[0].logits.shape[1] > 2}
    yield formula_table(usable, formulas(), lambda case: case.agreements[0])
    of_surrogates = {
        name: group for name, group in usable.items() if all(case.surrogates for case in group)
    }
    if of_surrogates:
        yield formula_table(of_surrogates, surrogate_formulas(), lambda case: case.surrogates[0])


def formula_table(
    cases: Cases, found: dict[str, Formula], opinion: Callable[[Case], Agreement]
) -> str:
    """A row for each formula, for one opinion of each case."""
    rows = []
    for name, formula in found.items():
        errors, scores = [], []
        for group in cases.values():
            guesses = [estimated_accuracy(case, formula, opinion(case)) for case in group]
            errors.append(
                np.mean(
                    [100 * abs(p - case.accuracy) for p, case in zip(guesses, group, strict=True)]
                )
            )
            fitted = [
                match_confidence(case.logits, p).temperature
                for p, case in zip(guesses, group, strict=True)
            ]
            scores.append(np.mean([case.ece(t) for t, case in zip(fitted, group, strict=True)]))
        each = " | ".join(f"{e:.1f}, {s:.1f}" for e, s in zip(errors, scores, strict=True))
        rows.append(
            f"| {name} | {formula.constants} | {each} | {np.mean(errors):.2f}, {np.mean(scores):.2f} |"
        )
    return table(f"| formula | constants | {' | '.join(cases)} | mean |", rows)
