"""How well the agreement of two saved outputs estimates the accuracy.

    python benchmarks/saved_outputs.py FOLDER

The folder has the files named below. A case is an ordered pair of models on one set of inputs. Six
families, left out in turn: the ends of the 90% interval are chosen on the other five, weighted
equally, and tested on the sixth.

- llm_options.npz: 16 language models on three multiple-choice tasks; the truth is the accuracy that
  their authors published.
- decisions.npz: nine networks on nine sets of distorted images; predicted classes only.
- sentiment_4domains.npz: three text classifiers, trained on one domain and used on the others.
- gas_drift.npz: four classifiers of sensor data, used on later batches.
- employment_ma.npz: four classifiers of census data, used on other years and other ages.
- usps.npz and scikit-learn's digits: four classifiers, used on the other set and on noisy, blurred
  and shifted digits.

Pairs that are warned about as outputs of one model get no interval and are not counted as covered.
The last lines count how often the warning that both outputs may come from one model appears: for
the language models under two prompts, and for different models.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.calibrators.saved_outputs import SavedPair, calibrate_saved_outputs

WARNED = 0.93  # of two prompts of one model
COVERED = 0.93  # more than 90%: five families say little about the spread between families


@dataclass(frozen=True)
class Case:
    """An ordered pair of models on one set of inputs."""

    family: str
    pair: SavedPair
    accuracy: float  # of the first model
    second_accuracy: float
    gap: float  # between mean confidence and accuracy, before
    gap_after: float  # and after calibration

    @property
    def error(self) -> float:
        """The accuracy above the estimate."""
        return self.accuracy - self.pair.accuracy

    @property
    def shortfall(self) -> float:
        """The accuracy below the estimate, as a fraction of the estimate."""
        return -self.error / self.pair.accuracy


def case(
    family: str, logits: np.ndarray, second: np.ndarray, accuracy: float, other: float
) -> Case:
    """Compare two outputs."""
    trust = calibrate_saved_outputs(logits, second).trust
    assert trust is not None
    assert trust.verdict == "caution"
    gaps = (trust.evidence[f"confidence {when}"] - accuracy for when in ("before", "after"))
    return Case(family, SavedPair.of(logits, second), accuracy, other, *gaps)


def pairs_of(
    family: str, outputs: Sequence[np.ndarray], accuracies: Sequence[float]
) -> Iterator[Case]:
    """All ordered pairs of models."""
    for i, j in permutations(range(len(outputs)), 2):
        yield case(family, outputs[i], outputs[j], accuracies[i], accuracies[j])


def fitted(family: str, models: list[Any], source: Any, targets: Sequence[Any]) -> Iterator[Case]:
    """Fit models on a source, and compare them on targets."""
    for model in models:
        model.fit(*source)
    for x, y in targets:
        outputs = [np.log(np.maximum(model.predict_proba(x), 1e-6)) for model in models]
        accuracies = [float((each.argmax(axis=1) == y).mean()) for each in outputs]
        yield from pairs_of(family, outputs, accuracies)


def language_models(folder: Path) -> Iterator[Case]:
    """Cases of llm_options.npz."""
    with np.load(folder / "llm_options.npz") as arrays:
        logits = arrays["logits"].astype(np.float64)
        accuracies = arrays["published_accuracy"]
    for task in range(logits.shape[1]):
        yield from pairs_of("language models", list(logits[:, task]), accuracies[:, task].tolist())


def networks(folder: Path) -> Iterator[Case]:
    """Cases of decisions.npz; a class stands for logits of which no confidence is known."""
    with np.load(folder / "decisions.npz") as arrays:
        names = [key.split("|")[0] for key in arrays if key.endswith("|predicted")]
        sets = [(arrays[f"{name}|predicted"], arrays[f"{name}|labels"]) for name in names]
    for predicted, labels in sets:
        accuracies = (predicted == labels).mean(axis=1)
        for i, j in permutations(range(len(predicted)), 2):
            logits = 50.0 * np.eye(16)[predicted[i]]
            yield case(
                "networks", logits, predicted[j].astype(np.int64), accuracies[i], accuracies[j]
            )


def texts(folder: Path) -> Iterator[Case]:
    """Cases of sentiment_4domains.npz."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    data = {}
    with np.load(folder / "sentiment_4domains.npz") as arrays:
        for name in sorted({key.rsplit("_", 1)[0] for key in arrays}):
            valence = arrays[f"{name}_valence"]
            rows = np.flatnonzero(np.abs(valence) > 0.5)[:3000]
            data[name] = (arrays[f"{name}_text"][rows], (valence[rows] > 0).astype(np.int64))
    for name, source in data.items():
        characters = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, 4), min_df=3, max_features=20_000
        )
        models = [
            make_pipeline(TfidfVectorizer(min_df=2), LogisticRegression(C=10)),
            make_pipeline(CountVectorizer(min_df=2), MultinomialNB()),
            make_pipeline(characters, LogisticRegression(C=10)),
        ]
        targets = [each for other, each in data.items() if other != name]
        yield from fitted("texts", models, source, targets)


def classifiers() -> list[Any]:
    """Four classifiers of numbers."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        RandomForestClassifier(40, random_state=0),
        make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
        make_pipeline(StandardScaler(), GaussianNB(var_smoothing=0.01)),
    ]


def sensors(folder: Path) -> Iterator[Case]:
    """Cases of gas_drift.npz."""
    with np.load(folder / "gas_drift.npz") as arrays:
        x, batch = arrays["x"], arrays["batch"]
        y = np.unique(arrays["y"], return_inverse=True)[1]
    for source in ([1, 2], [3], [1, 2, 3]):
        rows = np.isin(batch, source)
        targets = [(x[batch == b], y[batch == b]) for b in np.unique(batch[~rows])]
        yield from fitted("sensors", classifiers(), (x[rows], y[rows]), targets)


def census(folder: Path) -> Iterator[Case]:
    """Cases of employment_ma.npz."""
    with np.load(folder / "employment_ma.npz") as arrays:
        x, y, year = arrays["x"], arrays["employed"], arrays["year"]
        age = x[:, list(arrays["columns"]).index("AGEP")]

    def some(chosen: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(chosen)[:most]
        return x[rows], y[rows]

    targets = [some(year == each, 1500) for each in (2016, 2017, 2018)]
    yield from fitted("census", classifiers(), some(year == 2015, 2000), targets)
    ages = [
        (18, 30, 45, 60),
        (45, 60, 18, 30),
        (30, 50, 60, 90),
        (30, 60, 16, 22),
        (16, 25, 60, 90),
    ]
    for low, high, target_low, target_high in ages:
        source = some((age >= low) & (age < high), 2000)
        target = some((age >= target_low) & (age < target_high), 1500)
        yield from fitted("census", classifiers(), source, [target])


def digits(folder: Path) -> Iterator[Case]:
    """Cases of usps.npz and scikit-learn's digits, 8 x 8."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    with np.load(folder / "usps.npz") as arrays:
        small = arrays["train_x"][:2500].reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)) / 255
        usps = (small, arrays["train_y"][:2500].astype(np.int64))
    optical = (bundled.images / 16, bundled.target)
    rng = np.random.default_rng(0)

    def versions(x: np.ndarray, y: np.ndarray) -> list[Any]:
        blurred = (x + np.roll(x, 1, 1) + np.roll(x, -1, 1) + np.roll(x, 1, 2)) / 4
        noisy = x + rng.normal(0, 0.25, x.shape)
        images = (x, noisy, blurred, np.roll(x, 1, 2))
        return [(each.reshape(len(x), -1), y) for each in images]

    early = (optical[0][:900], optical[1][:900])
    late = (optical[0][900:], optical[1][900:])
    splits: list[Any] = [(optical, usps), (usps, optical), (early, late)]
    for (x, y), target in splits:
        source = (x.reshape(len(x), -1), y)
        yield from fitted("digits", classifiers(), source, versions(*target))


def quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """A weighted quantile."""
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order]) / weights.sum()
    place = min(int(np.searchsorted(cumulated, q)), len(values) - 1)
    return float(values[order][place])


def ends(cases: Sequence[Case]) -> tuple[float, float]:
    """How far the accuracies are below the estimate, as a fraction of it, and above it."""
    usable = [each for each in cases if not each.pair.may_be_one_model]
    families = [each.family for each in usable]
    weights = np.array([1 / families.count(each) for each in families])
    below = np.array([each.shortfall for each in usable])
    # the upper end is 1 if the second model is far less confident
    above = np.array([0.0 if each.pair.second_is_less_confident else each.error for each in usable])
    q = (1 + COVERED) / 2
    return quantile(below, weights, q), quantile(above, weights, q)


def covers(each: Case, below: float, above: float) -> bool:
    """Whether the interval with these ends covers the accuracy."""
    within = each.pair.second_is_less_confident or each.error <= above
    return within and each.shortfall <= below


def print_table(cases: Sequence[Case]) -> None:
    """Print errors and coverage, each family left out."""
    print(
        "| held-out family | pairs | error | bias | comparable | agreement alone | confidence | covered |"
    )
    print("|---|---|---|---|---|---|---|---|")
    names = sorted({each.family for each in cases})
    covered = []
    for name in [*names, "all"]:
        own = [each for each in cases if name in (each.family, "all")]
        if name != "all":
            chosen = ends([each for each in cases if each.family != name])
            usable = [each for each in own if not each.pair.may_be_one_model]
            hits = [covers(each, *chosen) for each in usable]
            covered += hits
        else:
            hits = covered
        errors = 100 * np.array([each.error for each in own])
        close = [
            abs(100 * each.error) for each in own if each.second_accuracy > each.accuracy - 0.05
        ]
        alone = [abs(100 * (each.pair.agreement - each.accuracy)) for each in own]
        gaps = [abs(100 * each.gap) for each in own]
        confidence = "" if name in ("networks", "all") else f"{np.mean(gaps):.1f}"
        numbers = (
            f"{np.abs(errors).mean():.1f}",
            f"{-errors.mean():+.1f}",
            f"{np.mean(close):.1f}",
        )
        tail = (f"{np.mean(alone):.1f}", confidence, f"{100 * np.mean(hits):.0f}%")
        print(f"| {name} | {len(own)} | {' | '.join((*numbers, *tail))} |")
    print(f"ends chosen on all families: {ends(cases)[0]:.3f} below, {ends(cases)[1]:.3f} above")


def print_gaps(cases: Sequence[Case]) -> None:
    """Print what a temperature does where one follows; of networks there are no confidences."""
    for name in sorted({each.family for each in cases} - {"networks"}):
        print_gap(name, [each for each in cases if each.family == name])


def print_gap(name: str, known: Sequence[Case]) -> None:
    """Print what a temperature does to the confidence in one family."""
    moved = [each for each in known if each.gap != each.gap_after]
    if not moved:
        print(f"{name}: no temperature follows in {len(known)} pairs")
        return
    before = 100 * np.abs([each.gap for each in moved])
    after = 100 * np.abs([each.gap_after for each in moved])
    print(
        f"{name}: a temperature follows in {len(moved)} of {len(known)} pairs; confidence minus accuracy "
        f"{before.mean():.1f} points before, {after.mean():.1f} after, larger in "
        f"{100 * (after > before + 1).mean():.0f}%"
    )


def print_prompts(folder: Path, cases: Sequence[Case]) -> None:
    """Print how often two prompts of one language model are warned about, and other pairs."""
    with np.load(folder / "llm_options.npz") as arrays:
        logits = arrays["logits"].astype(np.float64)
        prompts = arrays["prompts"].astype(np.int64)
    pairs = {
        (model, task, prompt): SavedPair.of(logits[model, task], prompts[model, task, prompt])
        for model, task in np.ndindex(*logits.shape[:2])
        for prompt in (1, 2)  # the logits are those of prompt 0
    }
    caught = [pair.may_be_one_model for pair in pairs.values()]
    print(
        f"two prompts of one model: warned about in {100 * np.mean(caught):.0f}% of {len(caught)}"
    )
    held_out = []
    for (model, _, _), pair in pairs.items():
        others = [other.excess for key, other in pairs.items() if key[0] != model]
        held_out.append(pair.excess >= np.quantile(others, 1 - WARNED))
    print(f"with the threshold chosen on the other models: {100 * np.mean(held_out):.0f}%")
    for name in sorted({each.family for each in cases} - {"networks"}):
        own = [each.pair.may_be_one_model for each in cases if each.family == name]
        print(f"different models, {name}: warned about in {100 * np.mean(own):.0f}% of {len(own)}")


def main(folder: Path) -> None:
    """Print all tables."""
    warnings.filterwarnings("ignore")
    families = (language_models, networks, texts, sensors, census, digits)
    cases = [each for family in families for each in family(folder)]
    print_table(cases)
    print_gaps(cases)
    print_prompts(folder, cases)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
