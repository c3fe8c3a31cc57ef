"""Tables of surrogates beside PseudoCal and a second seed, for `benchmarks/trust.py surrogates`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from scipy.stats import wilcoxon

from pseudocal import LabelSample, Outcomes, fit_temperature, rows_to_label
from pseudocal.calibrators import Prior, refine, trust
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.refinement import agreement_width, priors_of
from pseudocal.calibrators.trust import consensus_from
from pseudocal.metrics import ece
from trust_cases import Case
from trust_tables import Cases, by_estimator, by_task, fraction, table

BINS = (0.0, 0.4, 0.6, 0.75, 1.0)  # of the true accuracy
SURROGATE_ERRORS = (0.05, 0.08, 0.12)  # of the accuracy, for the width of a surrogate's prior
ERRORS = ("none", "PseudoCal", "surrogate", "second seed", "oracle")


def usable(cases: Cases) -> Cases:
    """The families with more than two classes.

    With two, no mixup sample shows a mistake, and a surrogate says nothing.
    """
    return {family: group for family, group in cases.items() if group[0].logits.shape[1] > 2}


def errors(case: Case) -> dict[str, float]:
    """The ECE of each temperature, in points."""
    found = {
        "none": 1.0,
        "PseudoCal": case.mixing.temperature,
        "surrogate": surrogate_temperature(case),
        "second seed": by_estimator("agreement")(case),
        "oracle": fit_temperature(case.logits, case.labels).temperature,
    }
    return {name: case.ece(temperature) for name, temperature in found.items()}


def surrogate_temperature(case: Case) -> float:
    """From a surrogate; from mixup samples if it is no opinion of its own."""
    consensus = consensus_from(case.surrogates, case.real)
    return (
        case.mixing.temperature
        if consensus is None
        else match_confidence(case.logits, consensus.accuracy).temperature
    )


def off(case: Case, *, surrogate: bool) -> float:
    """The estimate minus the accuracy, of a surrogate or of the second seed."""
    return (case.surrogates if surrogate else case.agreements)[0].accuracy - case.accuracy


def chosen(cases: Cases) -> tuple[float, float]:
    """What part of estimate - chance the truth is below it, and how far above, in 95% of cases, families alike."""
    weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in cases.values()])
    every = [case for group in cases.values() for case in group]
    gaps = np.array([off(case, surrogate=True) for case in every])
    above_chance = np.array(
        [case.surrogates[0].accuracy - 1 / case.logits.shape[1] for case in every]
    )
    below, above = (
        round(max(0.0, _quantile(values, weights)), 2) for values in (gaps / above_chance, -gaps)
    )
    return below, above


def _quantile(values: np.ndarray, weights: np.ndarray) -> float:
    """What 95% of the weight reaches at most."""
    order = np.argsort(values)
    return float(values[order[np.searchsorted(np.cumsum(weights[order]), 0.95 * weights.sum())]])


def surrogate_tables(cases: Cases, *, choose: bool = True) -> Iterator[str]:
    """Calibration errors, estimates and verdicts by family, and the split by true accuracy.

    Args:
        cases: The cases by family.
        choose: Whether each family gets the interval that the others choose, and not the one that
            ships.

    """
    cases = usable(cases)
    widths = dict.fromkeys(cases, trust.SURROGATE_BELOW_AND_ABOVE)
    if choose:
        widths = {name: chosen({n: g for n, g in cases.items() if n != name}) for name in cases}
        yield (
            "\n".join(f"{name} left out: {width}" for name, width in widths.items())
            + f"\nof all: {chosen(cases)}"
        )
    yield calibration_table(cases)
    yield estimate_table(cases, widths)
    yield verdict_table(cases, widths)
    yield accuracy_table([case for group in cases.values() for case in group])
    if choose:
        yield answers_table(cases)


def calibration_table(cases: Cases) -> str:
    rows = []
    for family, group in {**cases, "all": [case for g in cases.values() for case in g]}.items():
        found = [errors(case) for case in group]
        means = " | ".join(f"{np.mean([each[name] for each in found]):.1f}" for name in ERRORS)
        worse = " | ".join(
            f"{np.mean([each[name] > each['none'] + 1 for each in found]):.0%}"
            for name in ("PseudoCal", "surrogate")
        )
        own, reference = (
            by_task(group, [each[name] for each in found]) for name in ("surrogate", "PseudoCal")
        )
        better = f"{np.mean(own < reference):.0%} of {len(own)} tasks | {wilcoxon(own, reference).pvalue:.1g}"
        rows.append(f"| {family} | {len(group)} | {means} | {better} | {worse} |")
    heads = f"| family | cases | {' | '.join(ERRORS)} | surrogate below PseudoCal | p "
    return table(f"{heads}| worse than none: PseudoCal | surrogate |", rows)


def estimate_table(cases: Cases, widths: dict[str, tuple[float, float]]) -> str:
    rows = []
    for family, group in cases.items():
        gaps = {
            one: 100 * np.array([off(case, surrogate=one == "surrogate") for case in group])
            for one in ("surrogate", "2")
        }
        with patch.object(trust, "SURROGATE_BELOW_AND_ABOVE", widths[family]):
            said = [trust_in(case).estimated_accuracy for case in group]
        covered = [f.low <= case.accuracy <= f.high for f, case in zip(said, group, strict=True)]
        width = np.median([100 * (f.high - f.low) for f in said])
        both = " | ".join(f"{np.abs(gap).mean():.1f} | {gap.mean():+.1f}" for gap in gaps.values())
        rows.append(f"| {family} | {np.mean(covered):.0%} | {width:.0f} | {both} |")
    heads = (
        "| family | covered | median width | surrogate: error | bias | second seed: error | bias |"
    )
    return table(heads, rows)


def trust_in(case: Case, used: str = "surrogate") -> trust.Trust:
    """The verdict if the surrogate is the only second opinion."""
    found, consensus = {"mixup": case.mixing}, consensus_from(case.surrogates, case.real)
    if consensus is not None:
        found["surrogate"] = match_confidence(case.logits, consensus.accuracy, consensus.error)
    used = used if used in found else "mixup"
    return trust.judge(
        case.real,
        found,
        used,
        mixup_samples=len(case.mixup_samples),
        agreements=case.surrogates,
        consensus=consensus,
    )


def verdict_table(cases: Cases, widths: dict[str, tuple[float, float]]) -> str:
    rows = []
    for used in ("surrogate", "mixup"):
        for family, group in cases.items():
            with patch.object(trust, "SURROGATE_BELOW_AND_ABOVE", widths[family]):
                verdicts = np.array([trust_in(case, used).verdict for case in group])
            found = [errors(case) for case in group]
            name = "surrogate" if used == "surrogate" else "PseudoCal"
            worse = np.array([each[name] > each["none"] + 1 for each in found])
            refused = verdicts == "do not apply"
            counts = " | ".join(str((verdicts == verdict).sum()) for verdict in trust.VERDICTS)
            rows.append(
                f"| {used} | {family} | {counts} | {fraction(worse[refused])} | {fraction(worse[~refused])} |"
            )
    heads = "| temperature from | family | apply | caution | do not apply | of the refused: worse | of the others |"
    return table(heads, rows)


def accuracy_table(cases: list[Case]) -> str:
    """By what is not known: how often the model is right."""
    rows = []
    for low, high in pairwise(BINS):
        group = [case for case in cases if low <= case.accuracy < high]
        if group:
            found = [errors(case) for case in group]
            means = " | ".join(f"{np.mean([each[name] for each in found]):.1f}" for name in ERRORS)
            gaps = [
                100 * np.array([off(case, surrogate=s) for case in group]) for s in (True, False)
            ]
            both = " | ".join(f"{np.abs(gap).mean():.1f} | {gap.mean():+.1f}" for gap in gaps)
            rows.append(f"| {low:.0%} to {high:.0%} | {len(group)} | {means} | {both} |")
    heads = f"| true accuracy | cases | {' | '.join(ERRORS)} | surrogate: error | bias | second seed: error | bias |"
    return table(heads, rows)


def answers_table(cases: Cases) -> str:
    """The ECE on the rest after a few chosen answers, by what the priors are.

    One seed of each task.
    """
    rows = []
    for family, group in cases.items():
        scores: dict[tuple[int, str], list[float]] = defaultdict(list)
        for case in {case.task: case for case in reversed(group)}.values():
            for n in (10, 20):
                at = rows_to_label(case.logits, n)
                rest = np.setdiff1d(np.arange(len(case.labels)), at)
                for name, priors in priors_by_name(case).items():
                    scaling, _ = refine(
                        case.logits, LabelSample(at, case.labels[at]), priors=priors
                    )
                    outcomes = Outcomes.from_logits(
                        case.logits[rest] / scaling.temperature, case.labels[rest]
                    )
                    scores[n, name].append(100 * ece(outcomes))
        rows += [
            f"| {family} | {n} | {name} | {np.mean(values):.2f} |"
            for (n, name), values in scores.items()
        ]
    return table("| family | answers | priors | ECE |", rows)


def priors_by_name(case: Case) -> dict[str, list[Prior]]:
    """Mixup samples alone, with a second seed, and with a surrogate of several widths."""
    mixup_samples, temperature = {"mixup": case.mixing.temperature}, surrogate_temperature(case)
    alone = priors_of(mixup_samples, case.logits)
    agreement = by_estimator("agreement")(case)
    second = Prior("agreement", agreement, agreement_width(case.logits, agreement, 0.05))
    found = {"mixup": alone, "and a second seed": [*alone, second]}
    for error in SURROGATE_ERRORS:
        width = agreement_width(case.logits, temperature, error)
        found[f"and a surrogate, {error}"] = [*alone, Prior("surrogate", temperature, width)]
    return found
