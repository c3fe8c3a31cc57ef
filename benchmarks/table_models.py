"""Tables: mixup of mixed columns, and two kinds of models as second opinions of each other.

    python benchmarks/table_models.py mixed --data ../shared/data
    python benchmarks/table_models.py opinions --data ../shared/data

`mixed`: numbers and categories in one table. Numeric columns are mixed, and categories come from
the larger parent. Mixing passes if it lowers the mean ECE of every family and makes at most 10% of
the models worse by more than a point. `opinions`: a random forest and a boosted model of one table
are second opinions of each other.

Families, for development:

- gas_drift.npz: six gases, used on later batches. Mixed: every other column in 8 categories.
- employment_ma.npz: `opinions` employed or not, `mixed` the marital status (5 classes, of age and
  schooling, and of 13 columns of categories), used on later years and on other ages.
- usps.npz and scikit-learn's digits at 8 x 8. Mixed: every other pixel in 4 categories.

ECE in percent, the errors of estimated accuracies in points.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pseudocal import PseudoCal
from pseudocal.arrays import Labelled, Predictor
from pseudocal.calibrators import oracle
from pseudocal.metrics import Outcomes, accuracy, ece
from pseudocal.mixup.mixup import mixup
from pseudocal.mixup.pairs import Pairs
from pseudocal.predictors import as_predictor
from pseudocal.scaling import TemperatureScaling

MOST = 1500  # rows of a target
AGES = ((18, 30, 45, 60), (45, 60, 18, 30), (30, 50, 60, 90))  # from, to; used on from, to
WORSE = 0.01  # of the ECE


@dataclass(frozen=True)
class Shift:
    """A table to train on, and one that the model is used on."""

    family: str
    source: tuple[np.ndarray, np.ndarray]
    target: tuple[np.ndarray, np.ndarray]
    categories: tuple[int, ...] = ()  # the columns of categories


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["mixed", "opinions"])
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")  # from scikit-learn, about convergence
    if given.what == "mixed":
        print_mixed(given.data)
    else:
        print_opinions(given.data)


# ------------------------------------------------------------------------------ data


def shifts(folder: Path, *, mixed: bool) -> Iterator[Shift]:
    """All pairs of a source and a target."""
    yield from gases(folder, mixed)
    yield from census(folder, mixed)
    yield from digits(folder, mixed)


def gases(folder: Path, mixed: bool) -> Iterator[Shift]:
    with np.load(folder / "gas_drift.npz") as arrays:
        x, y, batch = arrays["x"].astype(float), arrays["y"].astype(int), arrays["batch"]
    for trained in ((1, 2), (3,), (1, 2, 3)):
        source = np.isin(batch, trained)
        table, columns = with_categories(x, x[source], 8) if mixed else (x, ())
        for used in np.unique(batch[~source]):
            target = np.flatnonzero(batch == used)[:MOST]
            if set(y[target]) <= set(y[source]):
                shift = ((table[source], y[source]), (table[target], y[target]))
                yield Shift("gas drift", *shift, columns)


def census(folder: Path, mixed: bool) -> Iterator[Shift]:
    with np.load(folder / "employment_ma.npz") as arrays:
        x, y, year = arrays["x"].astype(float), arrays["employed"], arrays["year"]
        names = list(arrays["columns"])
    age = x[:, names.index("AGEP")]
    columns: tuple[int, ...] = ()
    if mixed:
        y = x[:, names.index("MAR")].astype(int) - 1
        x = np.delete(x, names.index("MAR"), axis=1)
        names.remove("MAR")
        columns = tuple(i for i, name in enumerate(names) if name not in ("AGEP", "SCHL"))
    before = np.flatnonzero(year == 2015)[:4000]
    for later in (2016, 2017, 2018):
        after = np.flatnonzero(year == later)[:MOST]
        yield Shift("census", (x[before], y[before]), (x[after], y[after]), columns)
    for low, high, target_low, target_high in AGES:
        source = np.flatnonzero((age >= low) & (age < high))[:4000]
        target = np.flatnonzero((age >= target_low) & (age < target_high))[:MOST]
        yield Shift("census", (x[source], y[source]), (x[target], y[target]), columns)


def digits(folder: Path, mixed: bool) -> Iterator[Shift]:
    bundled = load_digits()
    with np.load(folder / "usps.npz") as arrays:
        usps = arrays["train_x"][:2500].reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)).reshape(-1, 64)
        usps = 16 * usps / usps.max()
        sets = [(bundled.data, bundled.target), (usps, arrays["train_y"][:2500].astype(int))]
    for source, target in (sets, sets[::-1]):
        table = np.concatenate([source[0], target[0][:MOST]])
        columns: tuple[int, ...] = ()
        if mixed:
            table, columns = with_categories(table, source[0], 4)
        n = len(source[0])
        yield Shift("digits", (table[:n], source[1]), (table[n:], target[1][:MOST]), columns)


def with_categories(
    x: np.ndarray, source: np.ndarray, levels: int
) -> tuple[np.ndarray, tuple[int, ...]]:
    """The table with every other column in categories, by quantiles of the source."""
    table = x.copy()
    columns = tuple(range(1, x.shape[1], 2))
    for column in columns:
        cuts = np.quantile(source[:, column], np.arange(1, levels) / levels)
        table[:, column] = np.searchsorted(cuts, x[:, column])
    return table, columns


# ------------------------------------------------------------------------------ models


def models(shift: Shift, seed: int = 0) -> dict[str, Any]:
    """A forest, a boosted and a linear model, fitted to the source."""
    one_hot = OneHotEncoder(handle_unknown="ignore")
    encoded = [("categories", one_hot, list(shift.categories))]
    forest = make_pipeline(
        ColumnTransformer(encoded, remainder="passthrough"),
        RandomForestClassifier(100, random_state=seed),
    )
    linear = make_pipeline(
        ColumnTransformer(encoded, remainder=StandardScaler()), LogisticRegression(max_iter=300)
    )
    boosted = HistGradientBoostingClassifier(
        max_iter=60, categorical_features=list(shift.categories) or None, random_state=seed
    )
    made = {"forest": forest, "boosted": boosted, "linear": linear}
    return {name: model.fit(*shift.source) for name, model in made.items()}


def error(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(ece(Outcomes.from_logits(logits, labels)))


# ------------------------------------------------------------------------------ mixed tables


def mixed_table(columns: tuple[int, ...]) -> Any:
    """Mixup of numeric columns; categories come from the larger parent."""

    def strategy(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator) -> Labelled:
        larger = pairs.inputs[:, columns]
        # categories are no part of the sum: each mixup sample gets those of its first parent
        mixable = pairs.inputs.copy()
        mixable[:, columns] = 0
        first = with_classes(pairs)

        def completed(x: np.ndarray, /) -> Any:
            x = x.copy()
            x[:, columns] = larger[first]
            return predict(x)

        return mixup(completed, replace(pairs, inputs=mixable), rng=rng)

    return strategy


def with_classes(pairs: Pairs) -> np.ndarray:
    """The first parents of the pairs that mixup keeps: those with different predicted classes."""
    predicted = pairs.outputs.argmax(axis=1)
    return pairs.first[predicted[pairs.first] != predicted[pairs.second]]


def print_mixed(folder: Path) -> None:
    rows: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for shift in shifts(folder, mixed=True):
        x, y = shift.target
        for name, model in models(shift).items():
            logits = as_predictor(model)(x)
            strategy = mixed_table(shift.categories)
            found = PseudoCal(estimator="mixup").fit(model, x, strategy=strategy)
            scaled = TemperatureScaling(found.refused or found.temperature)(logits)
            best = oracle(logits, y)(logits)
            scores = (error(logits, y), error(scaled, y), error(best, y))
            right = accuracy(Outcomes.from_logits(logits, y))
            rows.setdefault((shift.family, name), []).append((right, *scores))
    print("| family | model | cases | accuracy | none | mixup of numbers | oracle | worse by > 1 |")
    print("|---|---|---|---|---|---|---|---|")
    for (family, name), each in rows.items():
        cases = np.array(each)
        worse = (cases[:, 2] > cases[:, 1] + WORSE).mean()
        means = " | ".join(f"{100 * value:.1f}" for value in cases.mean(axis=0))
        print(f"| {family} | {name} | {len(cases)} | {means} | {worse:.0%} |")


# ------------------------------------------------------------------------------ second opinions


def print_opinions(folder: Path) -> None:
    rows: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for shift in shifts(folder, mixed=False):
        x, y = shift.target
        fitted = models(shift)
        twins = models(shift, seed=1)
        for name, other in (("forest", "boosted"), ("boosted", "forest")):
            logits = as_predictor(fitted[name])(x)
            right = accuracy(Outcomes.from_logits(logits, y))
            best = error(oracle(logits, y)(logits), y)
            seconds = {"none": None, "the same kind": twins[name], other: fitted[other]}
            for beside, second in seconds.items():
                found = PseudoCal(on_unreliable="identity").fit(
                    fitted[name], x, second_opinion=second
                )
                trust = found.trust
                assert trust is not None
                estimate = trust.estimated_accuracy
                covered = estimate.low <= right <= estimate.high
                harmless = error(found(logits), y) <= error(logits, y) + WORSE
                rows.setdefault((shift.family, name, beside), []).append(
                    (
                        right,
                        100 * abs(estimate.value - right) if estimate.known else np.nan,
                        covered if estimate.known else np.nan,
                        error(logits, y),
                        error(found(logits), y),
                        best,
                        trust.verdict == "apply",
                        harmless if trust.verdict == "apply" else np.nan,
                    )
                )
    print(
        "| family | model | second opinion | cases | accuracy | estimate off by | covered | "
        "ECE none | ECE after | oracle | apply | apply harmless |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for (family, name, beside), each in rows.items():
        cases = np.array(each, dtype=float)
        means = [np.nan if np.isnan(one).all() else np.nanmean(one) for one in cases.T]
        print(
            f"| {family} | {name} | {beside} | {len(cases)} | {means[0]:.1%} | {means[1]:.1f} | "
            f"{means[2]:.0%} | {100 * means[3]:.1f} | {100 * means[4]:.1f} | {100 * means[5]:.1f} | "
            f"{means[6]:.0%} | {means[7]:.0%} |"
        )


if __name__ == "__main__":
    main()
