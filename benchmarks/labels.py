"""Temperature, intervals and verdict from a few labels.

    python benchmarks/trust.py prepare --development --out runs/bench    train missing models
    python benchmarks/labels.py widths --data FOLDER    widths of the priors, one family left out
    python benchmarks/labels.py table --data FOLDER     tables on development tasks
    python benchmarks/labels.py held-out                the same on held-out tasks; logged

Labelled rows are those that `label` draws. Calibration errors are measured on the other rows. Each
task gets `--draws` draws for each n, shared by its seeds.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import trust
from labels_grid import GRID, NUMBERS, Draws, Tables
from labels_looks import Look, coverage_table, looks, verdict_table
from labels_targets import Target, targets
from pseudocal import LabelSample
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.refinement import (
    ANYTHING,
    MIXUP_WIDTH,
    agreement_width,
    priors_of,
    refine,
)
from pseudocal.lab.bench import Store

MIXUP_WIDTHS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # in log T
AGREEMENT_ERROR = 0.05  # of the accuracy: these targets have no interval
AGREEMENT_ERRORS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15)  # of the accuracy
CHUNK = 50  # draws at a time

Errors = dict[
    tuple[str, str, int], list[tuple[float, float]]
]  # ECE and error of log T, by family, method and n


def estimates(target: Target) -> dict[str, list[Prior]]:
    """The priors that are compared."""
    found = target.estimates
    widths = {}
    if "agreement" in found:
        widths["agreement"] = agreement_width(target.logits, found["agreement"], AGREEMENT_ERROR)
    both = priors_of(found, target.logits, widths)
    return {"no estimate": [ANYTHING], **{each.estimator: [each] for each in both}, "both": both}


def with_seeds(all_targets: list[Target], draws: int) -> Iterator[tuple[Tables, range]]:
    """Each target with the seeds of its draws, a few at a time.

    As many for each task, however many models it has.
    """
    models = Counter((target.family, target.task) for target in all_targets)
    met: Counter[tuple[str, str]] = Counter()
    for target in all_targets:
        key, tables = (target.family, target.task), Tables(target)
        each = math.ceil(draws / models[key])
        seeds = range(met[key] * each, min((met[key] + 1) * each, draws))
        yield from ((tables, seeds[at : at + CHUNK]) for at in range(0, len(seeds), CHUNK))
        met[key] += 1


def told(all_targets: list[Target]) -> dict[str, np.ndarray]:
    """For each family the normal log density of its own oracle temperatures.

    A prior that nobody can have.
    """
    found = defaultdict(list)
    for target in all_targets:
        found[target.family].append(target.oracle)
    return {family: -0.5 * ((GRID - np.mean(g)) / np.std(g)) ** 2 for family, g in found.items()}


def fits(
    chosen: Draws, random: Draws, family: np.ndarray
) -> Iterator[tuple[str, np.ndarray | float, Draws]]:
    """Each method with the log T of each draw, and the draws it was fitted on."""
    t, priors = chosen.tables, estimates(chosen.tables.target)
    yield "no calibration", 0.0, chosen
    for name, temperature in t.target.estimates.items():
        yield f"{name}, no answer", math.log(temperature), chosen
    yield "random labels alone", random.alone(), random
    yield "random labels, mixup samples", random.posterior(priors["mixup"]).median, random
    yield "chosen labels alone", chosen.alone(), chosen
    for name, prior in priors.items():
        yield f"chosen labels, {name}", chosen.posterior(prior).median, chosen
    for sign, word in ((1, "high"), (-1, "low")):
        wrong = Prior("mixup", math.exp(t.target.oracle + sign), MIXUP_WIDTH)
        yield f"chosen labels, a prior too {word} by e", chosen.posterior([wrong]).median, chosen
    yield (
        "chosen labels, told the temperatures of the family",
        chosen.posterior_of(family).median,
        chosen,
    )
    yield "oracle", t.target.oracle, chosen


def measure(
    all_targets: list[Target], draws: int
) -> tuple[Errors, dict[str, dict[tuple[str, int], list[Look]]]]:
    """Errors of all methods.

    Intervals and verdicts for the prior from mixup samples and for both.
    """
    errors: Errors = defaultdict(list)
    found: dict[str, dict[tuple[str, int], list[Look]]] = {
        which: defaultdict(list) for which in ("mixup", "both")
    }
    families = told(all_targets)
    for t, seeds in with_seeds(all_targets, draws):
        family, asked, drawn = t.target.family, t.chosen(seeds), t.random(seeds)
        for n in NUMBERS:
            chosen, random = (
                Draws(t, asked[:, :n], spread=True),
                Draws(t, drawn[:, :n], spread=False),
            )
            for method, log_t, some in fits(chosen, random, families[family]):
                off = np.broadcast_to(log_t - t.target.oracle, len(some.rows))
                errors[family, method, n] += zip(
                    some.ece(log_t).tolist(), off.tolist(), strict=True
                )
            for which, by_n in found.items():
                by_n[family, n] += looks(chosen, estimates(t.target)[which])
    return errors, found


def error_table(found: Errors) -> str:
    """Mean ECE and root mean square error of log T."""
    lines = [
        "| family | | " + " | ".join(f"n = {n}" for n in NUMBERS) + " |",
        "|---" * (2 + len(NUMBERS)) + "|",
    ]
    for family, method in dict.fromkeys((family, method) for family, method, _ in found):
        cells = [np.array(found[family, method, n]) for n in NUMBERS]
        text = " | ".join(
            f"{c[:, 0].mean():.2f} ({np.sqrt((c[:, 1] ** 2).mean()):.2f})" for c in cells
        )
        lines.append(f"| {family} | {method} | {text} |")
    return "\n".join(lines)


def widths_table(
    all_targets: list[Target], draws: int, name: str, choices: tuple[float, ...]
) -> str:
    """The mean ECE, over n up to 100, by the width of one prior.

    Last, what the other families would choose.
    """
    scores: defaultdict[tuple[str, float], list[float]] = defaultdict(list)
    for t, seeds in with_seeds(all_targets, draws):
        asked, priors = (
            t.chosen(seeds),
            {choice: priors_with(t.target, name, choice) for choice in choices},
        )
        for n in NUMBERS[:4]:
            some = Draws(t, asked[:, :n], spread=True)
            for choice, prior in priors.items():
                log_t = some.posterior(prior).median
                scores[t.target.family, choice] += some.ece(log_t).tolist()
    families = list(dict.fromkeys(family for family, _ in scores))
    means = np.array(
        [[np.mean(scores[family, choice]) for choice in choices] for family in families]
    )
    lines = [
        f"| {name} | " + " | ".join(map(str, choices)) + " | chosen by the others |",
        "|---" * (2 + len(choices)) + "|",
    ]
    for k, family in enumerate(families):
        others = np.delete(means, k, axis=0).mean(axis=0)
        cells = " | ".join(f"{value:.2f}" for value in means[k])
        lines.append(f"| {family} | {cells} | {choices[int(others.argmin())]} |")
    lines.append("| mean | " + " | ".join(f"{value:.2f}" for value in means.mean(axis=0)) + " | |")
    return "\n".join(lines)


def priors_with(target: Target, name: str, choice: float) -> list[Prior]:
    """The prior from mixup samples with a width of log T.

    Or both, agreement with an error of the accuracy.
    """
    found, logits = target.estimates, target.logits
    if name == "mixup":
        return priors_of({name: found[name]}, logits, {name: choice})
    return priors_of(found, logits, {name: agreement_width(logits, found[name], choice)})


def check(all_targets: list[Target]) -> None:
    """Many draws at once give what `refine` gives, up to the grid."""
    for target in all_targets[:: max(1, len(all_targets) // 5)]:
        t, priors = Tables(target), estimates(target)["both"]
        rows = t.chosen(range(1))[:, :50]
        draws = Draws(t, rows, spread=True)
        wide = draws.wide(priors)
        sample = LabelSample(rows[0], target.labels[rows[0]])
        t_found = refine(target.logits, sample, priors=priors)[1].temperature
        expected = np.log([t_found.value, t_found.low, t_found.high])
        found = [draws.posterior(priors).median[0], wide.quantile(0.05)[0], wide.quantile(0.95)[0]]
        np.testing.assert_allclose(found, expected, atol=0.02)


def report(all_targets: list[Target], draws: int) -> Iterator[str]:
    """All tables."""
    check(all_targets)
    errors, found = measure(all_targets, draws)
    yield error_table(errors)
    for which, some in found.items():
        yield f"Prior: {which}\n\n{coverage_table(some)}\n\n{verdict_table(some)}"


def widths(all_targets: list[Target], draws: int) -> Iterator[str]:
    """Each prior by its width."""
    many = [
        target for target in all_targets if target.logits.shape[1] > 2
    ]  # agreement is left out with two classes
    yield widths_table(all_targets, draws, "mixup", MIXUP_WIDTHS)
    yield widths_table(many, draws, "agreement", AGREEMENT_ERRORS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["widths", "table", "held-out"])
    parser.add_argument(
        "--data", type=Path, help="folder with sentiment_4domains.npz and employment_ma.npz"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/bench"), help="where trust.py keeps its models"
    )
    parser.add_argument("--draws", type=int, default=200, help="for each task")
    args = parser.parse_args()
    store = Store(args.out)
    tables: Iterable[str]
    if args.what == "held-out":
        tasks = [task for group in trust.HELD_OUT.values() for task in group]
        if missing := sum(not (store.folder(task) / "target.npz").exists() for task in tasks):
            parser.error(
                f"expected all {len(tasks)} held-out models, got {missing} untrained: see trust.py prepare"
            )
        trust.opened("a few answers")
        tables = report(list(targets(trust.HELD_OUT, store)), args.draws)
    else:
        of = widths if args.what == "widths" else report
        tables = of(list(targets(trust.DEVELOPMENT, store, args.data)), args.draws)
    for table in tables:
        print(table, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
