"""The tables of docs/evaluation/index.md, by one command.

    python benchmarks/trust_bank.py --data FOLDER --out runs/bank             train the models once
    python benchmarks/evaluation.py --data FOLDER --bank runs/bank      development families
    python benchmarks/evaluation.py --held-out ...                      families for claims; each look
                                                                        is logged

Choices are made on the development families. A look at the held-out families is a line in
`trust_openings.jsonl`.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from labels_grid import GRID, NUMBERS, Draws, Tables
from labels_targets import Target, later_years, texts_of_others, two_classes
from pseudocal import LabelSample, PseudoCal, Surrogate, fit_temperature, rows_to_label
from pseudocal.arrays import Labelled
from pseudocal.batches import Batch
from pseudocal.calibrators import Calibration, refinement
from pseudocal.calibrators.agreement import DIFFERENT, Suspects, certain_errors
from pseudocal.calibrators.anytime import LabelHistory
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.evidence import Step, count_opinions
from pseudocal.calibrators.measured import NARROW
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.refinement import (
    GAP_NOISE,
    as_applied,
    priors_of,
    priors_of_t_and_interval,
    refine,
)
from pseudocal.calibrators.surrogate import SurrogateCollector
from pseudocal.calibrators.trust import Trust
from pseudocal.metrics import Outcomes, ece
from pseudocal.mixup.pairs import Pairs, with_different_classes
from pseudocal.randomness import Streams
from trust import opened
from trust_bank import DEVELOPMENT, HELD_OUT, LAM, BankCase, load_cases
from trust_families import twins
from trust_tables import table

DRAWS = 6  # of labels, for each model
LABELS = (20, 50)


def error(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """ECE in percent."""
    return 100 * ece(Outcomes.from_logits(logits / temperature, labels))


class Refined(NamedTuple):
    """One draw of labels: what they lead to on the rows without a label."""

    before: float
    after: float
    verdict: str
    covered: bool
    gap_grows: bool


def refined(
    logits: np.ndarray, labels: np.ndarray, n: int, seed: int, priors: list[Prior]
) -> Refined:
    rows = rows_to_label(logits, n, seed=seed)
    rest = np.setdiff1d(np.arange(len(labels)), rows)
    sample = LabelSample(rows, labels[rows], seed=seed)
    scaling, measured = as_applied(*refine(logits, sample, priors=priors))
    truth = fit_temperature(logits, labels).temperature
    return Refined(
        error(logits[rest], labels[rest], 1.0),
        error(logits[rest], labels[rest], scaling.temperature),
        measured.verdict,
        measured.temperature.low <= truth <= measured.temperature.high,
        abs(measured.gap_after.value) > abs(measured.gap_before.value),
    )


def percent(values: list[bool]) -> str:
    return f"{np.mean(values):.0%}" if values else "-"


# ------------------------------------------------------------------------------ two classes


def pairs_of_gases(path: Path) -> Iterator[Target]:
    """One gas or another: trained on the first two batches, used on all later ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with np.load(path, allow_pickle=False) as file:
        x, y, batch, names = file["x"], file["y"], file["batch"], file["classes"]
    for pair in combinations(range(len(names)), 2):
        kept = np.isin(y, pair)
        early = kept & (batch <= 2)
        late = kept & (batch > 2)
        labels = (y == pair[1]).astype(np.int64)
        if len(np.unique(labels[early])) < 2:
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        some = np.flatnonzero(late)[:: max(1, late.sum() // 1000)]
        models = twins(model, x[early], labels[early], n=2)
        task = f"{names[pair[0]]} or {names[pair[1]]}"
        yield two_classes("gas drift, two gases", task, models, x[some], labels[some])


def two_class_targets(data: Path, *, held_out: bool) -> list[Target]:
    if held_out:
        return [*pairs_of_gases(data / "gas_drift.npz")]
    texts = texts_of_others(data / "sentiment_4domains.npz")
    return [*texts, *later_years(data / "employment_ma.npz")]


def two_class_table(targets: list[Target]) -> str:
    """No labels, and labels with the prior before and now."""
    without = defaultdict(list)
    found: dict[tuple[str, int, str], list[Refined]] = defaultdict(list)
    for target in targets:
        mixup = target.estimates.get("mixup", 1.0)
        truth = fit_temperature(target.logits, target.labels).temperature
        temperatures = (1.0, mixup, truth)
        without[target.family].append(
            [error(target.logits, target.labels, t) for t in temperatures]
        )
        priors = {
            "around mixup's T, width 0.7": [Prior("mixup", mixup, 0.7)],
            "around T = 1, width 0.4": priors_of(target.estimates, target.logits),
        }
        for seed in range(DRAWS):
            for n in LABELS:
                for name, given in priors.items():
                    one = refined(target.logits, target.labels, n, seed, given)
                    found[target.family, n, name].append(one)
    rows = []
    for family, errors in without.items():
        means = np.mean(errors, axis=0)
        for name, value in zip(("T = 1 (default)", "mixup's T", "oracle"), means, strict=True):
            rows.append(f"| {family} | 0 | {name} | {value:.1f} | | | |")
    for (family, n, name), draws in found.items():
        applied = [draw for draw in draws if draw.verdict == "apply"]
        rows.append(
            f"| {family} | {n} | {name} | {np.mean([d.after for d in draws]):.1f} "
            f"| {len(applied)} of {len(draws)} "
            f"| {percent([d.after <= d.before + 1 for d in applied])} "
            f"| {percent([d.covered for d in draws])} |"
        )
    head = "| family | labels | temperature or prior | ECE | apply | of these no worse | covered |"
    return table(head, rows)


# ------------------------------------------------------------------------------ the bank


class Judged(NamedTuple):
    """A case of the bank: what is estimated and exported without labels, and what is true."""

    case: BankCase
    calibration: Calibration
    fitted: float  # the temperature from agreement, whether it is applied or not
    agreement: float  # the estimated accuracy before the surrogate and the confidence counted
    none: float
    exported: float
    oracle: float
    would: float  # the ECE with the temperature from agreement
    before: float  # the ECE with the rule that was replaced: always the agreement's

    @property
    def accuracy(self) -> float:
        """The true one."""
        return float((self.case.logits.argmax(axis=1) == self.case.labels).mean())

    @property
    def trust(self) -> Trust:
        """The verdict and the estimate."""
        assert self.calibration.trust is not None
        return self.calibration.trust


def judged(case: BankCase) -> Judged:
    """Calibrate a case without labels, from stored logits, as `PseudoCal().fit` does."""
    evidence = PseudoCal(epochs=1).empty_evidence()
    evidence.add(step_of(case))
    calibration = PseudoCal(epochs=1).conclude(evidence)
    logits = case.logits.astype(np.float64)
    assert calibration.trust is not None
    fitted = calibration.trust.temperatures.get("agreement", 1.0)
    first = evidence.agreements[0]
    before = match_confidence(logits, first.accuracy).temperature if first.usable else 1.0
    truth = fit_temperature(logits, case.labels).temperature
    temperatures = (1.0, calibration.temperature, truth, fitted, before)
    none, exported, oracle, would, replaced = (
        error(logits, case.labels, temperature) for temperature in temperatures
    )
    return Judged(
        case, calibration, fitted, first.accuracy, none, exported, oracle, would, replaced
    )


def step_of(case: BankCase, *, penultimate: bool = False) -> Step:
    """The whole target as one step.

    Args:
        case: the case.
        penultimate: whether the surrogate uses the penultimate layer of the second model, not its
            logits.

    """
    n = len(case.logits)
    logits = case.logits.astype(np.float64)
    second = case.second.astype(np.float64)
    rows = np.arange(n)
    pairs = Pairs(
        rows[:, None].astype(np.float64),
        logits,
        rows,
        case.partner,
        ids=rows,
        opinions=second.argmax(axis=1)[:, None],
    )
    kept = with_different_classes(pairs)
    mixup_samples = Labelled(
        case.mixed[kept.first].astype(np.float64), logits.argmax(axis=1)[kept.first]
    )
    suspects = Suspects.of(pairs, mixup_samples, LAM)
    said = case.second_mixed[suspects.pairs.first].astype(np.float64)
    given = (second, said)
    if penultimate:
        mixed = case.mixed_features[suspects.pairs.first].astype(np.float64)
        given = (case.features.astype(np.float64), mixed)
    real = Labelled(logits, logits.argmax(axis=1))
    batch = Batch(0, rows, rows[:, None])
    collector = SurrogateCollector(Surrogate(), Streams(0))
    return Step(
        rows=rows,
        shape=(1,),
        real=real,
        pairs=n,
        mixup_samples=mixup_samples,
        opinions=count_opinions([second], real, suspects, [said]),
        passes=2 * n,
        surrogate_samples=[collector.batch_sample(batch, real, suspects, given=given)],
    )


def by_formula(case: BankCase, agreement: float, shared: float) -> float:
    """The accuracy p that solves (1 - p) (1 - r + s p) = 1 - a.

    `a` is the agreement, `r` the fraction of shared mistakes, and `s` how often the second model
    names the larger input's class on mixup samples where the first is certainly wrong.
    """
    own = case.logits.argmax(axis=1)
    second = case.second.argmax(axis=1)
    predicted = case.mixed.argmax(axis=1)
    inputs = [own, own[case.partner], second, second[case.partner]]
    wrong = (own != own[case.partner]) & certain_errors(predicted, inputs)
    s = float((case.second_mixed.argmax(axis=1) == own)[wrong].mean()) if wrong.any() else 0.5
    p = np.linspace(0, 1, 2001)
    above = np.flatnonzero((1 - p) * (1 - shared + s * p) >= 1 - agreement)
    least = 1 / case.logits.shape[1] + 0.01
    return float(np.clip(p[above[-1]] if len(above) else 0.0, least, 0.99))


def estimate_table(found: dict[str, list[Judged]]) -> str:
    """Errors and intervals of the estimated accuracy."""
    rows = []
    for family, group in found.items():
        errors = [100 * (one.trust.estimated_accuracy.value - one.accuracy) for one in group]
        plain = [100 * (one.agreement - one.accuracy) for one in group]
        intervals = [one.trust.estimated_accuracy for one in group]
        covered = [i.low <= o.accuracy <= i.high for i, o in zip(intervals, group, strict=True)]
        width = np.median([100 * (each.high - each.low) for each in intervals])
        rows.append(
            f"| {family} | {len(group)} | {np.mean([one.accuracy for one in group]):.0%} "
            f"| {np.abs(plain).mean():.1f} ({np.mean(plain):+.1f}) "
            f"| {np.abs(errors).mean():.1f} ({np.mean(errors):+.1f}) "
            f"| {percent(covered)} | {width:.0f} |"
        )
    head = "| family | models | accuracy | agreement alone: error (bias) | estimate: error (bias) "
    return table(head + "| covered | median width |", rows)


def summary(group: list[Judged]) -> list[float]:
    """Mean ECE of none, before, now and the oracle, their ratio, and how often it got worse."""
    none, before, now, oracle = (
        np.array([getattr(one, name) for one in group])
        for name in ("none", "before", "exported", "oracle")
    )
    means = [float(each.mean()) for each in (none, before, now, oracle)]
    worse = [float((each > none + 1).mean()) for each in (before, now)]
    return [*means, means[2] / means[3], *worse]


def estimators_of(one: Judged) -> dict[str, float]:
    """The accuracy that single estimators find, by letter."""
    evidence = PseudoCal(epochs=1).empty_evidence()
    evidence.add(step_of(one.case, penultimate=True))
    model, surrogate = evidence.agreements
    return {
        "a": one.agreement,
        "b": one.trust.evidence.get("surrogate accuracy", one.agreement),
        "c": surrogate.accuracy,
        "d": by_formula(one.case, model.rate, model.shared),
    }


def mean_if_different(one: float, other: float) -> float:
    return (one + other) / 2 if abs(one - other) > DIFFERENT else one


def estimator_table(found: dict[str, list[Judged]]) -> str:
    """Error and ECE of several estimators of the accuracy, and of ways to combine them."""
    rules: dict[str, Callable[[dict[str, float]], float]] = {
        "a: agreement": lambda e: e["a"],
        "b: surrogate on the second model's logits": lambda e: e["b"],
        "c: surrogate on its penultimate layer": lambda e: e["c"],
        "d: agreement, the formula with s": lambda e: e["d"],
        "(a + b) / 2": lambda e: (e["a"] + e["b"]) / 2,
        "(a + c) / 2": lambda e: (e["a"] + e["c"]) / 2,
        "(d + b) / 2": lambda e: (e["d"] + e["b"]) / 2,
        "(d + c) / 2": lambda e: (e["d"] + e["c"]) / 2,
        "a, or (a + b) / 2 where they differ by more than 0.2 (used)": lambda e: mean_if_different(
            e["a"], e["b"]
        ),
        "a, or (a + c) / 2 where they differ by more than 0.2": lambda e: mean_if_different(
            e["a"], e["c"]
        ),
    }
    scores: dict[str, list[np.ndarray]] = {name: [] for name in rules}
    for group in found.values():
        of_group = defaultdict(list)
        for one in group:
            logits = one.case.logits.astype(np.float64)
            estimates = estimators_of(one)
            for name, rule in rules.items():
                accuracy = rule(estimates)
                temperature = match_confidence(logits, accuracy).temperature
                off = 100 * abs(accuracy - one.accuracy)
                of_group[name].append((off, error(logits, one.case.labels, temperature)))
        for name, each in of_group.items():
            scores[name].append(np.mean(each, axis=0))
    rows = []
    for name, means in scores.items():
        cells = " | ".join(f"{off:.1f}, {ece_of:.1f}" for off, ece_of in means)
        off, ece_of = np.mean(means, axis=0)
        rows.append(f"| {name} | {cells} | {off:.1f}, {ece_of:.1f} |")
    return table(f"| estimate | {' | '.join(found)} | mean |", rows)


def exported_table(found: dict[str, list[Judged]]) -> str:
    """The ECE of what a user ends up with."""
    rows = []
    everything = {**found, "label-smoothed": [], "accuracy above 75%": []}
    for group in found.values():
        everything["label-smoothed"] += [one for one in group if one.case.smoothed]
        everything["accuracy above 75%"] += [one for one in group if one.accuracy > 0.75]
    for family, group in everything.items():
        if not group:
            continue
        none, before, now, oracle, ratio, worse_before, worse = summary(group)
        rows.append(
            f"| {family} | {len(group)} | {none:.1f} | {before:.1f} | {now:.1f} "
            f"| {oracle:.1f} | {ratio:.2f} | {worse_before:.0%} | {worse:.0%} |"
        )
    means = np.mean([summary(group) for group in found.values()], axis=0)
    none, before, now, oracle, ratio, worse_before, worse = means
    rows.append(
        f"| mean of families | | {none:.1f} | {before:.1f} | {now:.1f} "
        f"| {oracle:.1f} | {ratio:.2f} | {worse_before:.0%} | {worse:.0%} |"
    )
    head = "| family | models | none | T always applied | pseudocal | oracle "
    return table(head + "| ratio | worse if always applied | worse |", rows)


def verdict_table(found: dict[str, list[Judged]]) -> str:
    """How often each verdict is given, and what its temperature does."""
    rows = []
    for family, group in {**found, "all": [one for g in found.values() for one in g]}.items():
        helpful = [one for one in group if one.would < one.none - 1]
        left = [one for one in group if one.calibration.temperature == 1]
        applied = [one for one in group if one.trust.verdict == "apply"]
        uncertain = [one for one in group if one not in left and one not in applied]
        rows.append(
            f"| {family} | {len(applied)} | {percent([o.exported <= o.none + 1 for o in applied])} "
            f"| {percent([o.exported < o.none for o in applied])} "
            f"| {percent([o.trust.verdict == 'apply' for o in helpful])} "
            f"| {len(uncertain)} | {percent([o.exported < o.none for o in uncertain])} "
            f"| {len(left)} | {percent([o.would > o.none + 1 for o in left])} "
            f"| {percent([o.would < o.none - 1 for o in left])} |"
        )
    head = (
        "| family | apply | of these no worse | ECE fell | of the helpful: apply "
        "| caution, T applied | ECE fell | left at T = 1 | T would have harmed | would have helped |"
    )
    return table(head, rows)


# ------------------------------------------------------------------------------ labels

METHODS = (
    "none",
    "no labels",
    "one model",
    "two models",
    "not held back",
    "held back to no growth",
    "oracle",
)


def held_back(
    tables: Tables, rows: np.ndarray, log_t: np.ndarray, noise: float = GAP_NOISE
) -> np.ndarray:
    """The temperatures, held back where the measured gap would grow, as in `refine`."""
    accuracy = tables.right[rows].mean(axis=1)
    gap = np.abs(np.interp(0.0, GRID, tables.mean) - accuracy) + noise / math.sqrt(rows.shape[1])
    after = np.interp(log_t, GRID, tables.mean)
    stopped = np.clip(after, accuracy - gap, accuracy + gap)
    found = np.interp(-stopped, -tables.mean, GRID)
    return np.where(np.abs(after - accuracy) > gap, found, log_t)


class LabelVerdict(NamedTuple):
    """The verdict after labels, and the ECE without calibration and with T."""

    apply: bool
    apply_by_one_n: bool  # by the 90% interval for this number of labels
    before: float
    after: float


class LabelledModels(NamedTuple):
    """What draws of labels lead to on the models of a bank."""

    errors: dict[tuple[str, int, str], list[float]]  # by family, labels and method
    covered: dict[tuple[str, int], list[bool]]  # whether the interval covers T
    verdicts: dict[tuple[str, int], list[LabelVerdict]]


def labelled_models(found: dict[str, list[Judged]]) -> LabelledModels:
    """Every other model, several draws of labels for each."""
    results = LabelledModels(defaultdict(list), defaultdict(list), defaultdict(list))
    for family, group in found.items():
        for one in group[::2]:
            logits = one.case.logits.astype(np.float64)
            estimates = one.calibration.estimates
            target = Target(family, one.case.task, logits, one.case.labels, estimates)
            if len(logits) <= max(NUMBERS):
                continue
            tables = Tables(target)
            rows = tables.chosen(range(DRAWS))
            for n in LABELS:
                draws = Draws(tables, rows[:, :n], spread=True)
                mixup = {"mixup": estimates["mixup"]}
                alone = draws.posterior(priors_of(mixup, logits))
                priors = priors_of(estimates, logits, accuracy=one.trust.estimated_accuracy)
                both = draws.posterior(priors)
                used = held_back(tables, rows[:, :n], both.median)
                values = (
                    0.0,
                    math.log(one.calibration.temperature),
                    held_back(tables, rows[:, :n], alone.median),
                    used,
                    both.median,
                    held_back(tables, rows[:, :n], both.median, noise=0.0),
                    target.oracle,
                )
                for name, log_t in zip(METHODS, values, strict=True):
                    results.errors[family, n, name] += draws.ece(log_t).tolist()
                wide = draws.wide(priors)
                low = np.minimum(wide.quantile(0.05), both.median)
                high = np.maximum(wide.quantile(0.95), both.median)
                inside = (low <= target.oracle) & (target.oracle <= high)
                results.covered[family, n] += inside.tolist()
                results.verdicts[family, n] += label_verdicts(draws, priors, (low, high), used)
    return results


def label_verdicts(
    draws: Draws, priors: list[Prior], one_n: tuple[np.ndarray, np.ndarray], log_t: np.ndarray
) -> list[LabelVerdict]:
    """Of each draw."""
    tables = draws.tables
    plain = float(np.interp(0.0, GRID, tables.mean))
    before = draws.ece(0.0)
    after = draws.ece(log_t)
    found = []
    for k, rows in enumerate(draws.labelled):
        history = LabelHistory.empty(len(tables.right), 1.0, priors_of_t_and_interval(priors)[0])
        history = history.extended(tables.likelihood[rows].astype(np.float64))
        at_low, at_high = np.interp([history.low, history.high], GRID, tables.mean)
        idle = max(at_low - plain, plain - at_high) <= NARROW
        now = not idle and not history.low <= 0 <= history.high
        by_one_n = not one_n[0][k] <= 0 <= one_n[1][k]
        found.append(LabelVerdict(now, by_one_n, float(before[k]), float(after[k])))
    return found


def labels_table(results: LabelledModels) -> str:
    """ECE of the rows without a label, with one model and with two, and coverage of T."""
    errors = results.errors
    lines = []
    for n in LABELS:
        ratios = []
        for family in dict.fromkeys(family for family, _, _ in errors):
            means = [np.mean(errors[family, n, name]) for name in METHODS]
            ratios.append([mean / means[-1] for mean in means])
            cells = " | ".join(f"{mean:.1f}" for mean in means)
            lines.append(f"| {family} | {n} | {cells} | {percent(results.covered[family, n])} |")
        cells = " | ".join(f"{ratio:.2f}x" for ratio in np.mean(ratios, axis=0))
        lines.append(f"| mean ratio | {n} | {cells} | |")
    return table(f"| family | labels | {' | '.join(METHODS)} | covered |", lines)


def label_verdict_table(results: LabelledModels) -> str:
    """How often `apply` is given after labels, and how often it did no harm."""
    everything = dict(results.verdicts)
    for n in LABELS:
        groups = [draws for (_, number), draws in results.verdicts.items() if number == n]
        everything["all", n] = [draw for group in groups for draw in group]
    lines = []
    for (family, n), draws in everything.items():
        harmless = np.array([draw.after <= draw.before + 1 for draw in draws])
        helpful = np.array([draw.after < draw.before - 1 for draw in draws])
        cells = []
        for which in ("apply", "apply_by_one_n"):
            applied = np.array([getattr(draw, which) for draw in draws])
            shown = (applied, harmless[applied], applied[helpful])
            cells += [percent(each.tolist()) for each in shown]
        lines.append(f"| {family} | {n} | {' | '.join(cells)} |")
    head = "| family | labels | apply | of these no worse | of the helpful "
    return table(head + "| one n: apply | of these no worse | of the helpful |", lines)


def sequence_table(found: dict[str, list[Judged]]) -> str:
    """Verdicts as labels are added one by one, two models of each family."""
    lines = []
    for family, group in found.items():
        for one in (group[0], group[len(group) // 2]):
            logits = one.case.logits.astype(np.float64)
            accuracy = one.trust.estimated_accuracy
            priors = priors_of(one.calibration.estimates, logits, accuracy=accuracy)
            rows = rows_to_label(logits, min(200, len(logits)))
            verdicts = []
            more = []
            for n in range(10, len(rows) + 1):
                sample = LabelSample(rows[:n], one.case.labels[rows[:n]])
                with patch.object(refinement, "calibration_error", return_value=None):  # slow
                    measured = refine(logits, sample, priors=priors)[1]
                verdicts.append(measured.verdict)
                more.append(measured.more_labels)
            changes = sum(a != b for a, b in pairwise(verdicts))
            least = min((each for each in more if each is not None), default=0)
            lines.append(
                f"| {family} | {one.case.task} | {verdicts[0]} | {verdicts[-1]} | {changes} | {least} |"
            )
    head = "| family | model | at 10 labels | at 200 | changes | fewest further labels asked for |"
    return table(head, lines)


def demo_table(run: Path) -> str:
    """The demo's adapted model: no labels, and five draws of 20, 50 and 100."""
    from pseudocal.app.run import Run

    stored = Run.open(run)
    logits = np.array(stored.logits, dtype=np.float64)
    truth = (run.parent / "ground_truth.csv").read_text().splitlines()[1:]
    labels = np.array([int(line.rpartition(",")[2]) for line in truth])
    calibration = stored.calibration()
    lines = [
        f"| 0 | {error(logits, labels, calibration.temperature):.1f} | {calibration.verdict} |"
    ]
    for n in (20, 50, 100):
        errors = []
        verdicts = []
        for seed in range(5):
            rows = rows_to_label(logits, n, seed=seed)
            rest = np.setdiff1d(np.arange(len(labels)), rows)
            given = LabelSample(rows, labels[rows], seed=seed)
            refined_one = calibration.refined(logits, given)
            errors.append(error(logits[rest], labels[rest], refined_one.temperature))
            verdicts.append(str(refined_one.verdict))
        each = ", ".join(f"{value:.1f}" for value in errors)
        lines.append(f"| {n} | {np.mean(errors):.1f} ({each}) | {', '.join(verdicts)} |")
    return table("| labels | ECE | verdicts |", lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder of data files")
    parser.add_argument("--bank", type=Path, help="a folder that trust_bank.py filled")
    parser.add_argument("--sequences", action="store_true", help="add labels one by one")
    parser.add_argument("--demo", type=Path, help="a run of the demo, such as demo-output/mcc")
    parser.add_argument("--skip-two-classes", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="look at the held-out families")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # verdicts are counted here
    if args.bank is not None:
        if args.held_out:
            opened("bank: estimate, exported temperatures and verdicts")
        found: dict[str, list[Judged]] = defaultdict(list)
        for name in HELD_OUT if args.held_out else DEVELOPMENT:
            for case in load_cases(args.bank / f"{name}.npz"):
                found[case.family].append(judged(case))
        for title, each in (
            ("The estimate", estimate_table),
            ("What is exported without labels", exported_table),
            ("Verdicts without labels", verdict_table),
        ):
            print(f"## {title}", each(found), sep="\n\n", end="\n\n", flush=True)
        results = labelled_models(found)
        print("## With labels", labels_table(results), sep="\n\n", end="\n\n", flush=True)
        verdicts = label_verdict_table(results)
        print("## Verdicts with labels", verdicts, sep="\n\n", end="\n\n", flush=True)
        if not args.held_out:  # which estimator to use is a choice
            print("## Estimators", estimator_table(found), sep="\n\n", end="\n\n", flush=True)
        if args.sequences:
            print("## Labels one by one", sequence_table(found), sep="\n\n", end="\n\n", flush=True)
    if args.demo is not None:
        print("## The demo", demo_table(args.demo), sep="\n\n", end="\n\n", flush=True)
    if not args.skip_two_classes:
        if args.held_out:
            opened("two classes: gas drift")
        targets = two_class_targets(args.data, held_out=args.held_out)
        print("## Two classes", two_class_table(targets), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
