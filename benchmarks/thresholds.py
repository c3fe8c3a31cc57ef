"""Thresholds of confidence on development families: how often the error limit is broken.

    python benchmarks/thresholds.py prepare --data FOLDER    train, and keep the logits (minutes)
    python benchmarks/thresholds.py table                    the tables of docs/howto/thresholds.md
    python benchmarks/thresholds.py tail --draws 2           a second parameter beside T
    python benchmarks/thresholds.py table --bank FOLDER      development families of trust_bank.py
    python benchmarks/thresholds.py held-out --bank FOLDER   its held-out families; each look is logged

A target is a model on shifted data, with a second model and the temperature that `calibrate` finds
without labels. Families: those of `trust_families.py`, and the tasks of `trust.py` as far as
`trust.py prepare` has trained their models. `--data` is a folder with usps.npz,
sentiment_4domains.npz and employment_ma.npz. Missing files are skipped and named.

Labels are drawn `--draws` times for each target: at random, as `pseudocal label` spreads them, and
as `pseudocal label --for-threshold` draws them. A limit is broken if more than the allowed
fraction of the accepted rows of the target are wrong. The oracle knows all labels and accepts as
many rows as the limit allows, in the same order.

Chosen on these families: 100 candidates (of 20, 50, 100, 400) and a pool that reaches to 1.5 times
the error limit (of 1, 1.5, 2, 3), both by the fraction of draws with a guarantee at 50, 100 and
200 labels and 5 and 10%, on 151 of the models.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit
from scipy.stats import binom

import trust_bank
from evaluation import step_of
from pseudocal import LabelSample, PseudoCal, rows_to_label
from pseudocal.calibrators import (
    Threshold,
    find_class_thresholds,
    find_threshold,
    refine,
    threshold_pool,
)
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.refinement import priors_of
from pseudocal.lab.bench import Store, Task
from pseudocal.lab.bench.store import load_arrays
from pseudocal.mixup import partners
from pseudocal.predictors import as_predictor
from trust import opened
from trust_cases import DEVELOPMENT, SEEDS, case_of_logits, stored_case
from trust_families import (
    CORRUPTIONS,
    emoji_features,
    later_years,
    small_digits,
    texts_of_others,
    tumours,
    twins,
    two_digits,
    written_digits,
)

NUMBERS = (50, 100, 200)
PROMISES = (0.01, 0.05, 0.1)
SAMPLINGS = ("random", "as label", "for the threshold")
CACHE = Path("runs/thresholds")
MOST_ROWS = 2000  # of a target, drawn at random
CHANCE = 0.1  # of a broken limit, at most


@dataclass(frozen=True, eq=False)
class Target:
    """One model on one target."""

    family: str
    task: str
    logits: np.ndarray
    second: np.ndarray  # classes that the second model predicts
    labels: np.ndarray  # for scoring, and for the drawn labels
    temperature: float  # found without labels

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted class of each row."""
        return self.logits.argmax(axis=1)

    @cached_property
    def wrong(self) -> np.ndarray:
        """Whether it is wrong."""
        return self.predicted != self.labels

    @cached_property
    def confidence(self) -> np.ndarray:
        """Its calibrated confidence."""
        return np.array(confidences(self.logits, self.temperature))

    def found(self, max_error: float, labels: LabelSample | None, second: bool) -> Threshold:
        """The threshold, ranked with the second model or without."""
        other = self.second if second else None
        return find_threshold(self.predicted, self.confidence, max_error, labels, second=other)

    def accepted(self, threshold: Threshold) -> np.ndarray:
        """Whether each row is accepted."""
        agrees = self.second == self.predicted
        return threshold.accepts(self.confidence, agrees if threshold.agreement else None)

    def spread(self, n: int, seed: int) -> np.ndarray:
        """What `pseudocal label` draws; fewer rows are the first of more."""
        if seed not in self._spread:
            most = min(max(NUMBERS), len(self.labels))
            self._spread[seed] = rows_to_label(self.logits, most, seed=seed)
        return self._spread[seed][:n]

    @cached_property
    def _spread(self) -> dict[int, np.ndarray]:
        return {}

    def oracle(self, max_error: float, second: bool) -> float:
        """The largest fraction of rows that could be accepted, in the same order."""
        agrees = self.second == self.predicted if second else np.ones(len(self.labels), dtype=bool)
        order = np.lexsort((-self.confidence, ~agrees))
        error = np.cumsum(self.wrong[order]) / np.arange(1, len(order) + 1)
        possible = np.flatnonzero(error <= max_error)
        return (possible[-1] + 1) / len(order) if len(possible) else 0.0


# ------------------------------------------------------------------------------ models


def target_of(family: str, task: str, models: list[Any], x: np.ndarray, y: np.ndarray) -> Target:
    """The first model, with the second as its second opinion."""
    first, second = (as_predictor(model) for model in models[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # T = 1 takes the place of a refused temperature
        fitted = PseudoCal(epochs=1, on_unreliable="identity").fit(first, x, second_opinion=second)
    logits = np.asarray(first(x), np.float64)
    other = np.asarray(second(x)).argmax(axis=1)
    return Target(family, task, logits, other, np.asarray(y), fitted.temperature)


def corrupted_emoji(folder: Path) -> Iterator[Target]:
    """Heads on clean emoji of two vendors, used on corrupted others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features = emoji_features(folder)
    train, labels = features["train"]
    partner = partners(len(features["none"][0]))
    for strength in (1.0, 1e-4):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength))
        models = twins(model, train, labels, n=2)
        for name in CORRUPTIONS:
            both = [[model.decision_function(x) for model in models] for x in features[name]]
            task = f"{name}, {strength:g}"
            case = case_of_logits("corrupted emoji", task, *both, partner, features["labels"][0])
            temperature = temperature_of(case)
            second = both[0][1].argmax(axis=1)
            yield Target(case.family, task, case.logits, second, case.labels, temperature)


def temperature_of(case: Any) -> float:
    """The temperature without labels, or 1 if it is refused."""
    found = case.found()
    used = "agreement" if "agreement" in found else "mixup"
    if case.trust(used).verdict == "do not apply":
        return 1.0
    return float(found[used].temperature)


def stored_targets(families: dict[str, list[Task]], store: Store) -> Iterator[Target]:
    """Models that `trust.py prepare` has trained, each with one of another seed."""
    for family, tasks in families.items():
        missing = 0
        for task in tasks:
            try:
                case = stored_case(family, task, store)
            except FileNotFoundError:
                missing += 1
                continue
            other = replace(task, seed=(task.seed + 1) % SEEDS)
            second = load_arrays(store.folder(other) / "target.npz")["logits"].argmax(axis=1)
            logits = np.asarray(case.logits, np.float64)
            name = f"{case.task}, {task.seed}"
            yield Target(family, name, logits, second, case.labels, temperature_of(case))
        if missing:
            print(f"{family}: {missing} of {len(tasks)} models were not prepared", file=sys.stderr)


def prepare(data: Path | None, bench: Path) -> None:
    """Train each family once, and keep what its models say."""
    CACHE.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Any] = {
        "scikit-learn digits": lambda: small_digits(target_of),
        "two digits": lambda: two_digits(target_of),
        "tumours": lambda: tumours(target_of),
        "stored": lambda: stored_targets(DEVELOPMENT, Store(bench)),
        "corrupted emoji": lambda: corrupted_emoji(CACHE),
    }
    files = {
        "usps.npz": written_digits,
        "sentiment_4domains.npz": texts_of_others,
        "employment_ma.npz": later_years,
    }
    for name, read in files.items():
        if data is None or not (data / name).exists():
            print(f"left out: {name}, no such file", file=sys.stderr)
            continue
        makers[name] = lambda read=read, path=data / name: read(path, target_of)
    for name, make in makers.items():
        path = CACHE / f"targets {Path(name).stem}.npz"
        if not path.exists():
            save(path, list(make()))
            print(path, flush=True)


def save(path: Path, targets: list[Target]) -> None:
    arrays: dict[str, Any] = {}
    for i, target in enumerate(targets):
        for name in (field.name for field in fields(target)):
            value = getattr(target, name)
            arrays[f"{i:03}/{name}"] = np.float32(value) if name == "logits" else value
    np.savez_compressed(path, **arrays)


def load_targets() -> list[Target]:
    found = []
    for path in sorted(CACHE.glob("targets *.npz")):
        with np.load(path, allow_pickle=False) as file:
            of_target: defaultdict[str, dict[str, Any]] = defaultdict(dict)
            for key in file:
                number, name = key.split("/")
                value = file[key]
                of_target[number][name] = value if value.ndim else value.item()
        found += [Target(**parts) for parts in of_target.values()]
    return [some_rows(target) for target in found]


def some_rows(target: Target) -> Target:
    """A target of at most 2,000 rows: the draws take less time."""
    rows = np.random.default_rng(0).permutation(len(target.labels))[:MOST_ROWS]
    return replace(
        target,
        logits=target.logits[rows].astype(np.float64),
        second=target.second[rows],
        labels=target.labels[rows].astype(np.int64),
    )


def bank_targets(bank: Path, families: Iterable[str]) -> Iterator[Target]:
    """Models of `trust_bank.py`, each with a second model and with a weak one."""
    method = PseudoCal(epochs=1, on_unreliable="identity")
    for name in families:
        for case in trust_bank.load_cases(bank / f"{name}.npz"):
            evidence = method.empty_evidence()
            evidence.add(step_of(case))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # T = 1 takes the place of a refused temperature
                temperature = method.conclude(evidence).temperature
            logits = case.logits.astype(np.float64)
            second = case.second.argmax(axis=1)
            task = f"{case.task}, {case.second_kind}, {case.smoothed}"
            yield Target(case.family, task, logits, second, case.labels, temperature)


# ------------------------------------------------------------------------------ measurements


def drawn(target: Target, n: int, sampling: str, max_error: float, second: bool, seed: int) -> Any:
    """Labels of n rows, drawn in one of three ways."""
    labels = target.labels
    if sampling == "as label":
        rows = target.spread(n, seed)
        return LabelSample(rows, labels[rows], seed=seed)
    rng = np.random.default_rng([seed, n])
    if sampling == "random":
        rows = rng.choice(len(labels), n, replace=False)
        return LabelSample(rows, labels[rows], "random")
    other = target.second if second else None
    pool = threshold_pool(target.predicted, target.confidence, max_error, second=other)
    rows = rng.permutation(pool)[:n]
    return LabelSample(rows, labels[rows], "random", pool=pool)


@dataclass
class Tally:
    """Over the draws of one target: guarantees, rows accepted, broken limits."""

    draws: int = 0
    guaranteed: int = 0
    covered: float = 0.0
    broken: int = 0

    def add(self, accepted: np.ndarray, wrong: np.ndarray, max_error: float) -> None:
        """Count one draw."""
        self.draws += 1
        if accepted.any():
            self.guaranteed += 1
            self.covered += float(accepted.mean())
            self.broken += int(wrong[accepted].mean() > max_error)


def tally(
    target: Target, n: int, sampling: str, max_error: float, second: bool, draws: int
) -> Tally:
    found = Tally()
    for seed in range(draws):
        labels = drawn(target, n, sampling, max_error, second, seed)
        threshold = target.found(max_error, labels, second)
        found.add(target.accepted(threshold), target.wrong, max_error)
    return found


def percent(values: Iterable[float]) -> str:
    return f"{100 * np.mean(list(values)):.1f}"


def suspicious(tallies: list[Tally]) -> int:
    """Targets whose limit is broken more often than 10% allows, at a level of 1%."""
    return sum(binom.sf(t.broken - 1, t.draws, CHANCE) < 0.01 for t in tallies)


def guarantee_table(targets: list[Target], draws: int, second: bool) -> Iterator[str]:
    """Guarantees, coverage and broken limits by limit, number of labels and sampling."""
    yield (
        "| error limit | labels | sampling | draws with a guarantee | accepted | oracle | broken "
        "| broken guarantees | models above 10% |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for max_error in PROMISES:
        for n in NUMBERS:
            some = [target for target in targets if len(target.labels) >= 2 * n]
            oracle = percent(target.oracle(max_error, second) for target in some)
            # 1% takes 230 labels without an error, so a few draws will do
            times = draws if max_error > 0.01 else min(draws, 5)
            for sampling in SAMPLINGS:
                found = [tally(t, n, sampling, max_error, second, times) for t in some]
                given = sum(t.guaranteed for t in found)
                broken = sum(t.broken for t in found)
                cells = (
                    f"{max_error:.0%}",
                    str(n),
                    sampling,
                    percent(t.guaranteed / t.draws for t in found),
                    percent(t.covered / t.draws for t in found),
                    oracle,
                    percent(t.broken / t.draws for t in found),
                    f"{100 * broken / given:.1f}" if given else "-",
                    f"{suspicious(found)} of {len(found)}",
                )
                yield "| " + " | ".join(cells) + " |"


def family_table(targets: list[Target], draws: int) -> Iterator[str]:
    """By family: 100 labels, 5%, with agreement."""
    yield (
        "| family | models | random: guarantee | accepted | for the threshold: guarantee "
        "| accepted | broken | oracle |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    families = dict.fromkeys(target.family for target in targets)
    for family in families:
        some = [t for t in targets if t.family == family and len(t.labels) >= 200]
        random = [tally(t, 100, "random", 0.05, True, draws) for t in some]
        pool = [tally(t, 100, "for the threshold", 0.05, True, draws) for t in some]
        cells = [
            family,
            str(len(some)),
            *(
                percent(t.guaranteed / t.draws for t in random),
                percent(t.covered / t.draws for t in random),
            ),
            *(
                percent(t.guaranteed / t.draws for t in pool),
                percent(t.covered / t.draws for t in pool),
            ),
            percent(t.broken / t.draws for t in pool),
            percent(t.oracle(0.05, True) for t in some),
        ]
        yield "| " + " | ".join(cells) + " |"


def estimate_table(targets: list[Target]) -> Iterator[str]:
    """Without labels: how often the estimate is broken, of the models for which there is one.

    With a margin, the expected error is at most a quarter of the limit.
    """
    yield (
        "| error limit | ranking | models with an estimate | accepted | oracle | broken | broken estimates "
        "| error over twice the limit, of estimates |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    rankings = {
        "confidence": (False, 1),
        "agreement, confidence": (True, 1),
        "agreement, confidence; margin": (True, 4),
    }
    for max_error in PROMISES:
        for name, (second, margin) in rankings.items():
            found = Tally()
            twice = 0
            for target in targets:
                accepted = target.accepted(target.found(max_error / margin, None, second))
                found.add(accepted, target.wrong, max_error)
                twice += bool(accepted.any() and target.wrong[accepted].mean() > 2 * max_error)
            cells = (
                f"{max_error:.0%}",
                name,
                f"{100 * found.guaranteed / found.draws:.1f}",
                f"{100 * found.covered / found.draws:.1f}",
                percent(t.oracle(max_error, second) for t in targets),
                f"{100 * found.broken / found.draws:.1f}",
                f"{100 * found.broken / found.guaranteed:.1f}",
                f"{100 * twice / found.guaranteed:.1f}",
            )
            yield "| " + " | ".join(cells) + " |"


def refined_table(targets: list[Target], draws: int) -> Iterator[str]:
    """Ranking at a temperature fitted to the same labels: the guarantee is not exact there."""
    yield "| error limit | labels | draws with a guarantee | accepted | broken | broken guarantees | models above 10% |"
    yield "|---|---|---|---|---|---|---|"
    for n in (50, 100):
        some = [target for target in targets if len(target.labels) >= 2 * n]
        found: dict[float, list[Tally]] = {max_error: [] for max_error in PROMISES[1:]}
        for target in some:
            priors = priors_of({"mixup": target.temperature}, target.logits)
            tallies = {max_error: Tally() for max_error in found}
            for seed in range(draws):
                rows = target.spread(n, seed)
                labels = LabelSample(rows, target.labels[rows], seed=seed)
                scaling, _ = refine(target.logits, labels, priors=priors)
                refined = replace(target, temperature=scaling.temperature)
                for max_error, one in tallies.items():
                    threshold = refined.found(max_error, labels, True)
                    one.add(refined.accepted(threshold), target.wrong, max_error)
            for max_error, one in tallies.items():
                found[max_error].append(one)
        for max_error, of_limit in found.items():
            given = sum(t.guaranteed for t in of_limit)
            broken = sum(t.broken for t in of_limit)
            cells = (
                f"{max_error:.0%}",
                str(n),
                percent(t.guaranteed / t.draws for t in of_limit),
                percent(t.covered / t.draws for t in of_limit),
                percent(t.broken / t.draws for t in of_limit),
                f"{100 * broken / given:.1f}",
                f"{suspicious(of_limit)} of {len(of_limit)}",
            )
            yield "| " + " | ".join(cells) + " |"


def class_table(targets: list[Target], draws: int) -> Iterator[str]:
    """By class, 200 labels for a limit of 10%: how often each light is broken."""
    yield "| light | classes | accepted | broken |"
    yield "|---|---|---|---|"
    lights: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for target in targets:
        if len(target.labels) < 400:
            continue
        for seed in range(draws):
            labels = drawn(target, 200, "as label", 0.1, True, seed)
            for found in find_class_thresholds(
                target.predicted, target.confidence, 0.1, labels, second=target.second
            ):
                of_class = target.predicted == found.number
                accepted = target.accepted(found.threshold) & of_class
                covered = accepted.sum() / of_class.sum()
                broken = bool(accepted.any() and target.wrong[accepted].mean() > 0.1)
                lights[found.light].append((covered, broken))
    total = sum(map(len, lights.values()))
    for light, cases in lights.items():
        covered, broken = np.mean(cases, axis=0)
        yield f"| {light} | {100 * len(cases) / total:.1f}% | {100 * covered:.1f} | {100 * broken:.1f} |"


def recommended_table(targets: list[Target], draws: int) -> Iterator[str]:
    """How often as many labels as recommended give a guarantee."""
    yield "| error limit | models with a recommendation | median labels | guaranteed with as many |"
    yield "|---|---|---|---|"
    for max_error in PROMISES[1:]:
        needed = [target.found(max_error, None, True).labels_needed for target in targets]
        pairs = [(t, n) for t, n in zip(targets, needed, strict=True) if n is not None]
        found = [tally(t, n, "for the threshold", max_error, True, draws) for t, n in pairs]
        cells = (
            f"{max_error:.0%}",
            f"{len(pairs)} of {len(targets)}",
            f"{np.median([n for _, n in pairs]):.0f}",
            percent(t.guaranteed / t.draws for t in found),
        )
        yield "| " + " | ".join(cells) + " |"


def tail_table(targets: list[Target], draws: int) -> Iterator[str]:
    """A second parameter beside T, fitted to labels: the most confident fifth, and the others.

    The probability of being right is sigmoid(a + b logit c), c the confidence at the refined T. a
    and b have normal priors around 0 and 1. Scored on the rows without a label. "Worse" is a draw
    whose ECE is more than a point above that with T alone.
    """
    priors = {"T alone": None, "a, b: 0.5, 0.25": (0.5, 0.25), "a, b: 1, 0.5": (1.0, 0.5)}
    yield (
        "| labels | fitted | ECE | distance in the top fifth | confidence minus accuracy there "
        "| distance in the lowest fifth | better | worse |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for n in NUMBERS:
        scores: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
        for target in targets:
            if len(target.labels) < 2 * n:
                continue
            right = ~target.wrong
            for seed in range(draws):
                rows = target.spread(n, seed)
                labels = LabelSample(rows, target.labels[rows], seed=seed)
                prior = priors_of({"mixup": target.temperature}, target.logits)
                scaling, _ = refine(target.logits, labels, priors=prior)
                c = np.array(confidences(target.logits, scaling.temperature))
                rest = np.setdiff1d(np.arange(len(c)), rows)
                top = rest[c[rest] >= np.quantile(c, 0.8)]
                lowest = rest[c[rest] <= np.quantile(c, 0.2)]
                alone = binned_error(c[rest], right[rest])
                for name, widths in priors.items():
                    q = c if widths is None else two_parameters(c, right, rows, widths)
                    error = binned_error(q[rest], right[rest])
                    off = float(q[top].mean() - right[top].mean())
                    low = float(q[lowest].mean() - right[lowest].mean())
                    better = error < alone - 0.01
                    worse = error > alone + 0.01
                    scores[name].append((error, abs(off), off, abs(low), better, worse))
        for name, found in scores.items():
            means = 100 * np.mean(found, axis=0)
            cells = [f"{value:.2f}" for value in means[:4]] + [
                f"{value:.0f}%" for value in means[4:]
            ]
            yield f"| {n} | {name} | {' | '.join(cells)} |"


def two_parameters(
    c: np.ndarray, right: np.ndarray, rows: np.ndarray, widths: tuple[float, float]
) -> np.ndarray:
    """Confidences by sigmoid(a + b logit c), a and b fitted to labelled rows by Newton's method."""
    x = np.stack([np.ones(len(c)), logit(np.clip(c, 1e-6, 1 - 1e-6))], axis=1)
    precision = np.diag(1 / np.square(widths))
    centre = np.array([0.0, 1.0])
    found = centre.copy()
    for _ in range(30):
        p = expit(x[rows] @ found)
        gradient = x[rows].T @ (p - right[rows]) + precision @ (found - centre)
        curvature = x[rows].T @ (x[rows] * (p * (1 - p))[:, None]) + precision
        found -= np.linalg.solve(curvature, gradient)
    return expit(x @ found)


def binned_error(c: np.ndarray, right: np.ndarray) -> float:
    """The ECE with 15 bins."""
    bins = np.clip(np.ceil(c * 15).astype(int) - 1, 0, 14)
    return float(np.abs(np.bincount(bins, weights=c - right)).sum() / len(c))


def report(targets: list[Target], draws: int) -> Iterator[str]:
    """All tables, a line at a time."""
    yield f"{len(targets)} models, {draws} draws each"
    yield from ("", "Without labels", "", *estimate_table(targets))
    yield from ("", "With labels, agreement first", "")
    yield from guarantee_table(targets, draws, second=True)
    yield from ("", "By family, 100 labels, 5%", "", *family_table(targets, draws))
    few = max(1, draws // 5)
    yield from ("", "With labels, one model", "")
    yield from guarantee_table(targets, few, second=False)
    yield from ("", "Labels recommended", "", *recommended_table(targets, few))
    yield from ("", "By class, 200 labels, 10%", "", *class_table(targets, few))
    yield from ("", "Temperature fitted to the same labels", "", *refined_table(targets, few))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "table", "tail", "held-out"])
    parser.add_argument("--data", type=Path, help="folder with files that are no part of pseudocal")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="models of trust.py")
    parser.add_argument("--bank", type=Path, help="models of trust_bank.py")
    parser.add_argument("--draws", type=int, default=50, help="of labels, for each model")
    args = parser.parse_args()
    if args.what == "prepare":
        prepare(args.data, args.out)
        return
    if args.what == "held-out" and args.bank is None:
        parser.error("expected --bank FOLDER, the models of trust_bank.py")
    if args.what == "held-out":
        opened("bank: thresholds, broken promises and coverage")
        targets = list(bank_targets(args.bank, trust_bank.HELD_OUT))
    elif args.bank is not None:
        targets = list(bank_targets(args.bank, trust_bank.DEVELOPMENT))
    else:
        targets = load_targets()
    if not targets:
        parser.error("expected prepared models, got none: see prepare")
    of = tail_table if args.what == "tail" else report
    for line in of(targets, args.draws):
        print(line, flush=True)


if __name__ == "__main__":
    main()
