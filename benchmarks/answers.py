"""What a few answers are worth: temperature, intervals and verdict, on the development tasks.

    python benchmarks/trust.py prepare --development --out runs/bench     train what is missing
    python benchmarks/answers.py widths --data FOLDER                     the widths of the priors, a family left out
    python benchmarks/answers.py table --data FOLDER                      all tables of docs/answers.md

Answers are the labels of the rows that `ask` draws; calibration errors are of the rows that were not asked. Each task
gets `--draws` draws for each n, shared by its seeds. Likelihoods and confidences of all rows are computed once on a
grid of temperatures.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from answers_grid import GRID, NUMBERS, Tables
from answers_targets import targets
from pseudocal.calibrators.measures import LEVEL, AnsweredRows, accuracy_interval
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.refinement import ANYTHING, NARROW, WIDTHS, Asked, judge_temperature, priors_of
from pseudocal.lab.bench import Store

CHOICES = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)  # of widths


def estimates(t: Tables, widths: dict[str, float] | None = None) -> dict[str, list[Prior]]:
    """The priors that are compared."""
    found, classes = t.target.estimates, t.target.logits.shape[1]
    one = {name: {name: value} for name, value in found.items()}
    return {
        "no estimate": [ANYTHING],
        **{name: priors_of(only, classes, widths) for name, only in one.items()},
        "both": priors_of(found, classes, widths),
    }


def errors(all_tables: list[Tables], draws: int) -> dict[tuple[str, str, int], list[tuple[float, float]]]:
    """ECE and error of log T, by family, method and n."""
    found = defaultdict(list)
    for t, seeds in with_seeds(all_tables, draws):
        for n, seed in product(NUMBERS, seeds):
            for method, log_t, rows in fits(t, n, seed):
                found[t.target.family, method, n].append((t.ece(log_t, rows), log_t - t.oracle))
    return found


def fits(t: Tables, n: int, seed: int) -> Iterator[tuple[str, float, np.ndarray]]:
    """Each method with its log T, and the rows that were asked."""
    chosen, random = t.draw(n, seed, chosen=True), t.draw(n, seed, chosen=False)
    yield "no calibration", 0.0, chosen
    for name, temperature in t.target.estimates.items():
        yield f"{name}, no answer", math.log(temperature), chosen
    yield "random labels alone", t.alone(random), random
    yield "chosen labels alone", t.alone(chosen), chosen
    for name, prior in estimates(t).items():
        yield f"chosen labels, {name}", t.posterior(chosen, prior).mean, chosen
    wrong = Prior("mixes", math.exp(t.oracle + (1 if seed % 2 else -1)), WIDTHS["mixes"])
    yield "chosen labels, a prior off by e", t.posterior(chosen, [wrong]).mean, chosen
    yield "oracle", t.oracle, chosen


def with_seeds(all_tables: list[Tables], draws: int) -> Iterator[tuple[Tables, range]]:
    """Each target with the seeds of its draws: as many for each task, however many models it has."""
    models = Counter((t.target.family, t.target.task) for t in all_tables)
    met: Counter[tuple[str, str]] = Counter()
    for t in all_tables:
        key = (t.target.family, t.target.task)
        each = math.ceil(draws / models[key])
        yield t, range(met[key] * each, min((met[key] + 1) * each, draws))
        met[key] += 1


def error_table(found: dict[tuple[str, str, int], list[tuple[float, float]]]) -> str:
    """Mean ECE and root mean square error of log T."""
    lines = ["| family | | " + " | ".join(f"n = {n}" for n in NUMBERS) + " |", "|---" * (2 + len(NUMBERS)) + "|"]
    for family, method in dict.fromkeys((family, method) for family, method, _ in found):
        cells = [np.array(found[family, method, n]) for n in NUMBERS]
        text = " | ".join(f"{c[:, 0].mean():.2f} ({np.sqrt((c[:, 1] ** 2).mean()):.2f})" for c in cells)
        lines.append(f"| {family} | {method} | {text} |")
    return "\n".join(lines)


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


def looks(all_tables: list[Tables], draws: int, which: str) -> dict[tuple[str, int], list[Look]]:
    """Intervals and verdicts, by family and n."""
    found = defaultdict(list)
    for t, seeds in with_seeds(all_tables, draws):
        for n, seed in product(NUMBERS, seeds):
            found[t.target.family, n].append(look(t, t.draw(n, seed, chosen=True), estimates(t)[which]))
    return found


def look(t: Tables, rows: np.ndarray, priors: list[Prior]) -> Look:
    fitted, alone = t.posterior(rows, priors), np.arange(len(rows))
    low, high = (fitted.quantile(share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    others = fitted.without(alone)
    mean, noise, at_low, at_high = (
        float(np.interp(g, GRID, column))
        for g, column in ((others.mean(), t.mean), (others.mean(), t.noise), (low, t.mean), (high, t.mean))
    )
    right = t.right[rows]
    sample = AnsweredRows(right, t.confidence_at(rows, others), mean, noise, len(t.right), alone, spread=True)
    accuracy, truth = accuracy_interval(sample), float(t.right.mean())
    narrow = NARROW * (high - low) / (at_low - at_high) if at_low > at_high else math.inf
    after, plain = (float(np.interp(g, GRID, t.mean)) for g in (fitted.mean, 0.0))
    asked = Asked(low, high, narrow, plain - accuracy.value, after - accuracy.value, len(rows))
    verdict, _, _ = judge_temperature(fitted.mean, asked)
    before = t.ece(0.0, rows)
    return Look(
        temperature=low <= t.oracle <= high,
        accuracy=accuracy.low <= truth <= accuracy.high,
        extreme=bool(right.all() or not right.any()),
        width=100 * (accuracy.high - accuracy.low),
        verdict=verdict,
        change=t.ece(fitted.mean, rows) - before,
        gain=before - t.ece(t.oracle, rows),
    )


def coverage_table(found: dict[tuple[str, int], list[Look]]) -> str:
    """How often the 90% intervals hold the truth; the gap's is that of the accuracy."""
    lines = [
        "| family | n | T | accuracy, gap | width in points | all answers alike: accuracy |",
        "|---|---|---|---|---|---|",
    ]
    for (family, n), all_looks in found.items():
        alike = [one.accuracy for one in all_looks if one.extreme]
        cell = f"{share(alike)} of {len(alike)}" if alike else "-"
        t, a = (share([getattr(one, name) for one in all_looks]) for name in ("temperature", "accuracy"))
        lines.append(f"| {family} | {n} | {t} | {a} | {np.mean([one.width for one in all_looks]):.0f} | {cell} |")
    return "\n".join(lines)


def verdict_table(found: dict[tuple[str, int], list[Look]]) -> str:
    """How often the verdict is right."""
    lines = [
        "| family | n | apply | of these no harm | of those that gain over 2 points: apply | already calibrated "
        "| of these off by under 2 points |",
        "|---|---|---|---|---|---|---|",
    ]
    pooled = {("all", n): [one for (_, m), some in found.items() if m == n for one in some] for n in NUMBERS}
    for (family, n), some in {**found, **pooled}.items():
        apply = [one for one in some if one.verdict == "apply"]
        done = [one for one in some if one.verdict == "already calibrated"]
        harmless = share([one.change <= 1 for one in apply])
        reached = share([one.verdict == "apply" for one in some if one.gain > 2])
        rest = share([one.gain < 2 for one in done])
        cells = f"{len(apply) / len(some):.0%} | {harmless} | {reached} | {len(done) / len(some):.0%} | {rest}"
        lines.append(f"| {family} | {n} | {cells} |")
    return "\n".join(lines)


def share(which: list[bool]) -> str:
    return f"{100 * np.mean(which):.1f}%" if which else "-"


def widths_table(all_tables: list[Tables], draws: int, name: str) -> str:
    """The mean ECE, over n up to 100, by the width of one prior; last, what the other families would choose."""
    which, scores = ("both" if name == "agreement" else name), defaultdict(list)
    for t, seeds in with_seeds(all_tables, draws):
        priors = {width: estimates(t, {name: width})[which] for width in CHOICES}
        for n, seed in product(NUMBERS[:4], seeds):
            rows = t.draw(n, seed, chosen=True)
            for width, prior in priors.items():
                scores[t.target.family, width].append(t.ece(t.posterior(rows, prior).mean, rows))
    families = list(dict.fromkeys(family for family, _ in scores))
    means = np.array([[np.mean(scores[family, width]) for width in CHOICES] for family in families])
    lines = [
        f"| {name} | " + " | ".join(map(str, CHOICES)) + " | chosen by the others |",
        "|---" * (2 + len(CHOICES)) + "|",
    ]
    for k, family in enumerate(families):
        others = np.delete(means, k, axis=0).mean(axis=0)
        cells = " | ".join(f"{value:.2f}" for value in means[k])
        lines.append(f"| {family} | {cells} | {CHOICES[int(others.argmin())]} |")
    lines.append("| mean | " + " | ".join(f"{value:.2f}" for value in means.mean(axis=0)) + " | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["widths", "table"])
    parser.add_argument("--data", type=Path, help="folder with sentiment_4domains.npz and employment_ma.npz")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="where trust.py keeps its models")
    parser.add_argument("--draws", type=int, default=200, help="for each task")
    args = parser.parse_args()
    all_tables = [Tables(target) for target in targets(Store(args.out), args.data)]
    if args.what == "widths":
        for name in WIDTHS:
            print(widths_table(all_tables, args.draws, name), end="\n\n", flush=True)
        return
    print(error_table(errors(all_tables, args.draws)), flush=True)
    for which in ("mixes", "both"):
        found = looks(all_tables, args.draws, which)
        print(f"\nPrior: {which}\n", coverage_table(found), verdict_table(found), sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
