"""The fair test of trust: verdict, forecast and the estimator from agreement, on tasks that chose no number of theirs.

    python benchmarks/trust.py prepare --out runs/bench     train what is missing (hours on one core, resumable)
    python benchmarks/trust.py development                  every candidate, on the tasks it was developed on
    python benchmarks/trust.py examples                     verdicts of development, beside what is true
    python benchmarks/trust.py held-out --candidate agreement
    python benchmarks/trust.py trust                        verdict and forecast, on the held-out tasks

Development has two of the four vendors as targets, four methods, and the digits after three; what is held out has the
other two vendors as targets, three more methods, a second backbone, and the digits after three other methods. Every
look at what is held out is written to
`benchmarks/trust_openings.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import wilcoxon
from sklearn.metrics import roc_auc_score

from pseudocal import fit_temperature
from pseudocal.arrays import Labelled
from pseudocal.calibrators.agreement import (
    Agreement,
    accuracy_ends,
    agreement_of,
    count_agreement,
    count_mistakes,
    surely_mistaken,
)
from pseudocal.calibrators.confidence import confidences, gaps, match_confidence
from pseudocal.calibrators.rivals.atc import atc_accuracy
from pseudocal.calibrators.rivals.doc import doc_accuracy
from pseudocal.calibrators.trust import Trust, judge
from pseudocal.lab.bench import Store, Suite, Task, run
from pseudocal.lab.bench.stages.predict import all_logits, load_classifier
from pseudocal.lab.bench.store import load_arrays
from pseudocal.lab.bench.suites import SMALL
from pseudocal.lab.bench.views import View, domains_of, shown
from pseudocal.metrics import Outcomes, ece
from pseudocal.scaling import TemperatureScaling
from pseudocal.synthesis import partners

VENDORS = ("noto", "twemoji", "openmoji", "fluent")
OPENINGS = Path(__file__).with_name("trust_openings.jsonl")
LAM = 0.65
SEEDS = 3


def emoji(targets: tuple[str, ...], methods: tuple[str, ...], backbone: str = "efficientnet-lite0") -> list[Task]:
    """Tasks as the suite `emoji` has them, those of SHOT as `emoji-source-free` has them."""
    return [
        Task(
            "emoji",
            source,
            target,
            "source-free" if method == "shot" else "closed-set",
            method,
            seed,
            backbone=backbone,
            width=256,
            options=SMALL.get(method, ()),
        )
        for source, target in permutations(VENDORS, 2)
        if target in targets
        for method in methods
        for seed in range(SEEDS)
    ]


def digits(methods: tuple[str, ...]) -> list[Task]:
    """Tasks as the suite `digits` has them."""
    return [
        Task("digits", source, target, method=method, seed=seed, backbone="digits", width=256, iterations=600)
        for source, target in permutations(("mnist", "optdigits", "fonts"), 2)
        for method in methods
        for seed in range(SEEDS)
    ]


DEVELOPMENT = {
    "emoji, Lite0": emoji(("noto", "fluent"), ("source-only", "mcc", "bnm", "shot")),
    "digits": digits(("source-only", "mcc", "bnm")),
}
HELD_OUT = {
    "emoji, Lite0": emoji(("openmoji", "twemoji"), ("source-only", "mcc", "bnm", "atdoc", "cdan", "safn")),
    "emoji, Lite2": emoji(("openmoji", "twemoji"), ("source-only", "mcc", "bnm", "safn"), "efficientnet-lite2"),
    "digits, other methods": digits(("atdoc", "cdan", "safn")),
}


@dataclass(frozen=True, eq=False)
class Case:
    """One model on one target, with a second one of another seed; `labels` are for scoring alone."""

    task: Task
    real: Labelled  # logits of the target, with the classes that the second model gives
    mixes: Labelled
    agreement: Agreement
    source: Labelled | None
    labels: np.ndarray

    @property
    def logits(self) -> np.ndarray:
        """What the model says of the target."""
        return self.real.logits

    @property
    def accuracy(self) -> float:
        """What the forecast is about."""
        return float((self.logits.argmax(axis=1) == self.labels).mean())

    def ece(self, temperature: float) -> float:
        """In points."""
        return 100 * ece(Outcomes.from_logits(self.logits / temperature, self.labels))


def case_of(task: Task, store: Store) -> Case:
    """Read a task and its second opinion; mixes come from the features that all heads share."""
    second = replace(task, seed=(task.seed + 1) % SEEDS)
    logits, other = (load_arrays(store.folder(t) / "target.npz")["logits"] for t in (task, second))
    images, view = domains_of(task, store)[1].inputs, View(LAM, task.seed)
    mixed, other_mixed = (all_logits(load_classifier(t, store), shown(t, images, view)) for t in (task, second))
    partner = partners(len(logits), seed=task.seed)
    own, others = logits.argmax(axis=1), other.argmax(axis=1)
    kept = np.flatnonzero(own != own[partner])
    shares = [classes[rows] for classes in (own, others) for rows in (kept, partner[kept])]
    predicted, other_predicted = mixed[kept].argmax(axis=1), other_mixed[kept].argmax(axis=1)
    wrong = surely_mistaken(predicted, shares)
    mistakes = count_mistakes(predicted[wrong], (predicted == other_predicted)[wrong], logits.shape[1])
    real = Labelled(logits, others)
    val = store.folder(task) / "source_val.npz"
    source = load_arrays(val) if val.exists() else None
    return Case(
        task,
        real,
        Labelled(mixed[kept], own[kept]),
        agreement_of(count_agreement(logits, other) + mistakes, real),
        None if source is None else Labelled(source["logits"], source["labels"]),
        np.load(store.folder(task) / "target_labels.npy"),
    )


def pseudocal(case: Case) -> float:
    return fit_temperature(case.mixes.logits, case.mixes.labels).temperature


def likelihood(case: Case) -> float:
    """Agreement row by row: with probability q + (1 - q) r, where q is the confidence."""
    below, agree = gaps(case.logits), case.real.labels == case.logits.argmax(axis=1)
    r = case.agreement.shared

    def loss(log_t: float) -> float:
        total = np.exp(below / np.exp(log_t)).sum(axis=1)
        wrong = np.maximum((total - 1) / total, 1e-12)
        return -float(np.where(agree, np.log(r + (1 - r) / total), np.log((1 - r) * wrong)).mean())

    grid = np.linspace(-3, 5, 33)
    best = int(np.argmin([loss(t) for t in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    return float(np.exp(minimize_scalar(loss, bounds=around, method="bounded").x))


def second_labels(case: Case) -> float:
    """The mixes of PseudoCal, labelled by the second model."""
    partner = partners(len(case.logits), seed=case.task.seed)
    own = case.logits.argmax(axis=1)
    return fit_temperature(case.mixes.logits, case.real.labels[own != own[partner]]).temperature


def matching(accuracy: Callable[[Agreement], float]) -> Callable[[Case], float]:
    return lambda case: match_confidence(case.logits, accuracy(case.agreement)).temperature


CANDIDATES: dict[str, Callable[[Case], float]] = {
    "none": lambda case: 1.0,
    "PseudoCal": pseudocal,
    "labels of the second model": second_labels,
    "raw agreement": matching(lambda a: a.rate),
    "corrected agreement": matching(lambda a: accuracy_ends(a.rate, a.shared)[0]),
    "likelihood of agreement": likelihood,
    "agreement": matching(lambda a: a.accuracy),
    "oracle": lambda case: fit_temperature(case.logits, case.labels).temperature,
}


def compare(cases: dict[str, list[Case]], names: list[str]) -> str:
    """Mean ECE, and for each family a paired test over tasks (means over seeds) against PseudoCal."""
    lines = ["| family | candidate | ECE | worst | better than PseudoCal | p |", "|---|---|---|---|---|---|"]
    for family, group in cases.items():
        scores = {name: [case.ece(CANDIDATES[name](case)) for case in group] for name in names}
        reference = by_task(group, scores["PseudoCal"])
        for name, values in scores.items():
            own = by_task(group, values)
            p = "" if name == "PseudoCal" else f"{wilcoxon(own, reference).pvalue:.1g}"
            better = "" if name == "PseudoCal" else f"{np.mean(own < reference):.0%} of {len(own)} tasks"
            lines.append(f"| {family} | {name} | {np.mean(values):.1f} | {max(values):.1f} | {better} | {p} |")
    return "\n".join(lines)


def by_task(group: list[Case], values: list[float]) -> np.ndarray:
    """Means over seeds, for each pair of domains and method."""
    tasks = defaultdict(list)
    for case, value in zip(group, values, strict=True):
        tasks[case.task.pair, case.task.method].append(value)
    return np.array([np.mean(seeds) for seeds in tasks.values()])


def with_all(cases: dict[str, list[Case]]) -> dict[str, list[Case]]:
    return {**cases, "all": [case for group in cases.values() for case in group]}


def judged(cases: list[Case]) -> Iterator[tuple[Case, Trust, float, float]]:
    """Each case with the trust in PseudoCal's temperature, and the ECE before and after it."""
    for case in cases:
        temperature = pseudocal(case)
        found = {"mixes": TemperatureScaling(temperature)}
        trust = judge(case.real, found, "mixes", mixes=len(case.mixes), agreements=[case.agreement])
        yield case, trust, case.ece(1.0), case.ece(temperature)


def verdicts(cases: dict[str, list[Case]]) -> str:
    """How often the verdict is right."""
    lines = [
        "| family | cases | apply | of these no worse | of the helpful: apply | do not apply | AUROC (95%) |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, group in with_all(cases).items():
        rows = list(judged(group))
        worse = np.array([after > before + 1 for _, _, before, after in rows])
        helps = np.array([after < before for _, _, before, after in rows])
        bad = worse | np.array([after > 10 for *_, after in rows])
        apply = np.array([trust.verdict == "apply" for _, trust, _, _ in rows])
        refused = sum(trust.verdict == "do not apply" for _, trust, _, _ in rows)
        score = np.array([trust.score for _, trust, _, _ in rows])
        lines.append(
            f"| {family} | {len(rows)} | {apply.sum()} | {share(~worse[apply])} | {share(apply[helps])} "
            f"| {refused} | {auroc(bad, score)} |"
        )
    return "\n".join(lines)


def share(which: np.ndarray) -> str:
    """How many, in percent."""
    return f"{np.mean(which):.0%}" if len(which) else "-"


def auroc(bad: np.ndarray, score: np.ndarray) -> str:
    """With its interval from resampled cases; `bad` is made worse by over a point, or an ECE above ten."""
    if bad.all() or not bad.any():
        return "all alike"
    rng, drawn = np.random.default_rng(0), []
    for _ in range(1000):
        rows = rng.integers(len(bad), size=len(bad))
        if 0 < bad[rows].sum() < len(bad):
            drawn.append(roc_auc_score(bad[rows], score[rows]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{roc_auc_score(bad, score):.2f} ({low:.2f} to {high:.2f})"


def forecasts(cases: dict[str, list[Case]]) -> str:
    """Coverage and width of the 90% interval, and the mean absolute error beside those of others, in points."""
    lines = [
        "| family | covered | median width | forecast | raw agreement | PseudoCal's confidence | plain confidence "
        "| ATC | DoC |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for family, group in with_all(cases).items():
        errors: dict[str, list[float]] = defaultdict(list)
        covered, widths = [], []
        for case, trust, *_ in judged(group):
            forecast, truth = trust.forecast, case.accuracy
            covered.append(forecast.low <= truth <= forecast.high)
            widths.append(100 * (forecast.high - forecast.low))
            for name, value in others(case, trust).items():
                errors[name].append(100 * abs(value - truth))
        means = " | ".join(f"{np.mean(values):.1f}" for values in errors.values())
        lines.append(f"| {family} | {np.mean(covered):.0%} | {np.median(widths):.0f} | {means} |")
    return "\n".join(lines)


def others(case: Case, trust: Trust) -> dict[str, float]:
    """Forecasts of the accuracy."""
    found = {
        "forecast": trust.forecast.accuracy,
        "raw": case.agreement.rate,
        "after": trust.evidence["confidence after"],
        "plain": float(confidences(case.logits).mean()),
    }
    if case.source is not None:
        found |= {"atc": atc_accuracy(case.source, case.logits), "doc": doc_accuracy(case.source, case.logits)}
    return found


def examples(cases: list[Case]) -> str:
    """The verdict on each case, and what it could not know."""
    return "\n\n".join(
        f"{case.task.pair}, {case.task.method}: {trust.verdict}. {trust.reasons[0]} Accuracy {case.accuracy:.1%}, "
        f"ECE {before:.1f} before and {after:.1f} after."
        for case, trust, before, after in judged(cases)
    )


def opened(what: str) -> None:
    """Write down that the held-out tasks were looked at."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    record: dict[str, Any] = {
        "opened": what,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.strip(),
    }
    with OPENINGS.open("a") as file:
        file.write(json.dumps(record) + "\n")


def load(families: dict[str, list[Task]], store: Store) -> dict[str, list[Case]]:
    return {family: [case_of(task, store) for task in tasks] for family, tasks in families.items()}


def prepare(store: Store, family: str | None, *, development: bool) -> None:
    """Train what is missing, and compute the features of mixes."""
    families = [*DEVELOPMENT.items(), *([] if development else HELD_OUT.items())]
    tasks = [task for name, group in families if family in (None, name) for task in group]
    for failure in run(Suite("trust", tuple(tasks), ("pseudocal",)), store, progress=print):
        print(f"{failure.task.pair} {failure.task.method} {failure.task.seed}: {failure.error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "development", "examples", "held-out", "trust"])
    parser.add_argument("--candidate", choices=CANDIDATES, default="agreement")
    parser.add_argument("--family", choices=[*DEVELOPMENT, *HELD_OUT], help="prepare this one alone")
    parser.add_argument("--development", action="store_true", help="prepare no held-out task")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    args = parser.parse_args()
    store = Store(args.out)
    if args.what == "prepare":
        prepare(store, args.family, development=args.development)
    elif args.what == "development":
        cases = load(DEVELOPMENT, store)
        print(compare(cases, list(CANDIDATES)), verdicts(cases), forecasts(cases), sep="\n\n")
    elif args.what == "examples":
        print(examples([case_of(task, store) for task in DEVELOPMENT["emoji, Lite0"] if task.seed == 0]))
    elif args.what == "held-out":
        opened(f"ECE of candidate {args.candidate!r}")
        print(compare(load(HELD_OUT, store), ["none", "PseudoCal", args.candidate, "oracle"]))
    else:
        opened("verdict and forecast")
        cases = load(HELD_OUT, store)
        print(verdicts(cases), forecasts(cases), sep="\n\n")


if __name__ == "__main__":
    main()
