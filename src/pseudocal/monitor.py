"""Watch a deployed model without labels: an alarm that may be looked at after every input.

Each input gives one or two signals between 0 and 1: a second model disagrees (0 or 1), and
`uncertainty`, 1 - confidence of standardised logits. `Reference.of` learns from a baseline what they
were. `Monitor` bets, input by input, that they are now larger than the baseline's mean by more than a
margin. Its wealth, the e-value, is small while that is false and grows exponentially while it is true.

**What is promised.** Let c be the predicted class of an input, s a signal, f(c) the expected signal
of that class, and r = s - f(c) the residual. f is estimated from a random quarter of the baseline
and fixed afterwards; for the disagreement it is 0. Let rho be the mean residual where the baseline
comes from. Nothing got worse if, for each signal, the mean of the next residual given the past is at
most rho + margin, always. Then an alarm is ever raised with probability at most alpha, if the inputs
of the baseline are independent. The proof has three steps.

1. *The stream, if rho were known.* The factor 1 + bet (r - rho - margin) is not negative and has
   mean at most 1 given the past. So the product of the factors since any start is a nonnegative
   supermartingale, and so is a weighted mean of such products: over bets and over starts (every
   `restart_every` inputs and where a batch begins, the k-th with weight 1/((k+1)(k+2)), waiting at 1
   until it starts). A start may depend on the past, but not on what comes. Call it S(rho).
2. *The baseline's own error.* rho is unknown. Over the inputs of the baseline that f does not
   depend on, the product of 1 + bet (rho - r) has mean 1 if each bet depends on earlier inputs
   only, and so has a mean B(rho) of several such products. So B(rho) S(rho) is a nonnegative
   supermartingale that begins with mean 1, and so is its mean over the signals. By Ville's inequality
   that ever reaches 1 / alpha with probability at most alpha.
3. *All rho at once.* The e-value of a signal is the smallest B(rho) S(rho) over all possible rho,
   so it is at most that of the true one. B grows with rho and S falls. So between two candidates
   B at the lower one times S at the upper one is a lower bound, and some candidates are enough.

The bets do not depend on the class, so only the mean residual matters. If merely the frequencies of
the predicted classes change, f(c) absorbs what that does to the uncertainty, up to its own error, and
the margin absorbs the rest. For the disagreement f is 0: a value for each class would also absorb
errors that look like other class frequencies. This part is measured (docs/howto/watch.md), not
proven.

For one bet the products of all starts share their later factors, so their weighted sum is one
number. The state has one number per signal, bet and candidate, however long the stream. Betting on
bounded means: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting.
Mixing over starts: Shin, Ramdas and Rinaldo (2024), E-detectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, as_logits, as_numpy, check_rows, is_integer, softmax
from pseudocal.metrics.intervals import Interval
from pseudocal.metrics.outcomes import check_level

DISAGREEMENT = "disagreement"
UNCERTAINTY = "uncertainty"
SIGNALS = (DISAGREEMENT, UNCERTAINTY)
VERSION = 2  # of the stored state
LARGEST_LOG = 600.0  # of a reported e-value: JSON has no infinity
FEWEST = 100  # inputs of a baseline, and of a stream before its silence says anything
SHARPNESS = 3.0  # of 2, 3 and 5 the best on development data
NEAREST = 50  # inputs between two restarts, at least
BASELINE_BETS = (0.0, 1.0, 2.5)  # on the baseline, over spread * sqrt(inputs)
CANDIDATES = 32  # for the mean residual of the baseline's distribution
MOST_EVIDENCE = 1e6  # of the baseline against a candidate
PRIOR = 10  # inputs with the mean signal that a class gets in addition, in `Reference.changes`


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """When an alarm is raised.

    Attributes:
        alpha: The largest probability of ever raising an alarm while nothing got worse.
        margin: The increase of a mean signal that is tolerated.
        restart_every: The number of inputs after which a fresh bet starts.
        bets: The bets, as fractions of the largest possible one.

    """

    alpha: float = 0.05
    margin: float = 0.02
    restart_every: int = 250
    bets: tuple[float, ...] = (0.025, 0.05, 0.1, 0.2, 0.4, 0.75)

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"expected alpha between 0 and 1, got {self.alpha}", setting="alpha")
        if not 0 <= self.margin < 1:
            raise InputError(
                f"expected a margin from 0 to below 1, got {self.margin}", setting="margin"
            )
        if self.restart_every < 1:
            raise InputError(
                f"expected a restart after at least 1 input, got {self.restart_every}",
                setting="restart_every",
            )
        if not self.bets or not all(0 < bet < 1 for bet in self.bets):
            raise InputError(f"expected bets between 0 and 1, got {self.bets}", setting="bets")

    @property
    def threshold(self) -> float:
        """The e-value that raises an alarm."""
        return 1 / self.alpha


@dataclass(frozen=True, eq=False)
class Signals:
    """The signals of a batch of inputs.

    >>> signals = Signals.of([[2.0, 0.0], [0.0, 0.0]], second=[[1.0, 0.0], [0.0, 1.0]])
    >>> signals.predicted
    array([0, 0])
    >>> signals.values["disagreement"]
    array([0., 1.])
    >>> signals.values["uncertainty"].round(3)
    array([0.119, 0.5  ])

    Attributes:
        predicted: The predicted class of each input, of shape `(n,)`.
        classes: The number of classes.
        values: The signals by name, each of shape `(n,)` with numbers from 0 to 1.

    """

    predicted: NDArray[np.int64]
    classes: int
    values: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        predicted = np.asarray(self.predicted)
        if predicted.ndim != 1 or not is_integer(predicted):
            raise InputError("expected one predicted class per input, as integers")
        if len(predicted) and not 0 <= predicted.min() <= predicted.max() < self.classes:
            raise InputError(
                f"expected predicted classes from 0 to {self.classes - 1}, got "
                f"{predicted.min()} to {predicted.max()}"
            )
        if not self.values or not set(self.values) <= set(SIGNALS):
            raise InputError(f"expected signals out of {', '.join(SIGNALS)}")
        for name, value in self.values.items():
            if value.shape != predicted.shape:
                raise InputError(f"expected {name} of shape {predicted.shape}, got {value.shape}")
            if not bool(((value >= 0) & (value <= 1)).all()):
                raise InputError(f"expected {name} from 0 to 1")

    def __len__(self) -> int:
        return len(self.predicted)

    @classmethod
    def of(cls, logits: ArrayLike, second: ArrayLike | None = None) -> Signals:
        """The signals of a model's logits and, if there is one, of a second model's.

        Args:
            logits: Of shape `(n, classes)`, calibrated or not, but always alike.
            second: The second model's, of the same shape.

        """
        first = as_logits(logits)
        check_rows(first)
        predicted = first.argmax(axis=1)
        values = {}
        if second is not None:
            other = as_logits(second)
            check_rows(other)
            if other.shape != first.shape:
                raise InputError(
                    f"expected logits of the second model of shape {first.shape}, got {other.shape}"
                )
            values[DISAGREEMENT] = (other.argmax(axis=1) != predicted).astype(np.float64)
        values[UNCERTAINTY] = uncertainty(first)
        return cls(predicted, first.shape[1], values)

    def rows(self, index: Any) -> Signals:
        """The signals of some of the inputs."""
        values = {name: value[index] for name, value in self.values.items()}
        return Signals(self.predicted[index], self.classes, values)


@dataclass(frozen=True, eq=False)
class Summary:
    """Counts of predicted classes and sums of signals; summaries of two batches add up.

    Attributes:
        counts: The number of inputs of each predicted class.
        sums: The sum of each signal over the inputs of each predicted class.

    """

    counts: NDArray[np.int64]
    sums: Mapping[str, NDArray[np.float64]]

    @classmethod
    def of(cls, signals: Signals) -> Summary:
        """The summary of a batch."""
        counts = np.bincount(signals.predicted, minlength=signals.classes)
        sums: dict[str, NDArray[np.float64]] = {
            name: np.bincount(signals.predicted, weights=value, minlength=signals.classes).astype(
                np.float64
            )
            for name, value in signals.values.items()
        }
        return cls(counts, sums)

    def __add__(self, other: Summary) -> Summary:
        if self.sums.keys() != other.sums.keys() or self.counts.shape != other.counts.shape:
            raise InputError("expected summaries of the same signals and classes")
        sums = {name: total + other.sums[name] for name, total in self.sums.items()}
        return Summary(self.counts + other.counts, sums)

    def as_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for `json.dumps`."""
        return {
            "counts": self.counts.tolist(),
            "sums": {name: total.tolist() for name, total in self.sums.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Summary:
        """The summary that `as_json` returned."""
        counts = _stored_array(stored, "counts")
        sums = {name: _array(total, name) for name, total in _stored(stored, "sums").items()}
        if any(total.shape != counts.shape for total in sums.values()):
            raise InputError("expected one sum per class in a summary")
        return cls(counts.astype(np.int64), sums)


@dataclass(frozen=True, slots=True)
class ClassChange:
    """How one predicted class changed.

    Attributes:
        predicted: The class.
        before: Its fraction of the predictions in the baseline.
        now: Its fraction now.
        increase: What its inputs add to the increase of the mean signal, each signal by name.

    """

    predicted: int
    before: float
    now: float
    increase: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class MeanEvidence:
    """What a sample says against each possible mean: B in the module's docstring.

    >>> evidence = MeanEvidence.of(np.tile([0.0, 1.0], 500), low=0, high=1)
    >>> evidence.means[[0, -1]].round(2)
    array([0.48, 0.61])
    >>> np.exp(evidence.log_evidence[[0, -1]]).round(2)    # of means up to 0.48, and above 0.61
    array([3.3e-01, 1.0e+06])

    Attributes:
        means: Candidates for the mean, ascending, of shape `(m,)`.
        log_evidence: Of shape `(m + 1,)`: the logarithm of the evidence against all means up to the
            first candidate, between two candidates, and above the last.

    """

    means: NDArray[np.float64]
    log_evidence: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64], *, low: float, high: float) -> MeanEvidence:
        """Bet on a sample.

        Args:
            values: Independent values, of shape `(n,)`.
            low: The lowest possible value.
            high: The highest possible value.

        """
        bets = _bets_on_sample(values, 1 / (high - low))

        def against(mean: float) -> float:
            return _log_mean(np.log1p(bets * (mean - values)[:, None]).sum(axis=0)).item()

        floor = -math.log(len(BASELINE_BETS))  # what the bet of 0 leaves
        first = _crossing(against, floor + 0.2, low, high)
        last = _crossing(against, math.log(MOST_EVIDENCE), first, high)
        means = np.linspace(first, last, CANDIDATES)
        return cls(means, np.array([floor, *(against(mean) for mean in means)]))

    def times(self, log_stream: NDArray[np.float64], log_waiting: float) -> NDArray[np.float64]:
        """The logarithm of the smallest product with the wealth of a stream, over all means.

        Args:
            log_stream: The logarithm of the wealth of all starts if a candidate is the mean, of
                shape `(m, n)`.
            log_waiting: The logarithm of the wealth that waits, whatever the mean is.

        """
        inside = np.logaddexp(log_stream, log_waiting) + self.log_evidence[:-1, None]
        above = self.log_evidence[-1] + log_waiting
        smallest: NDArray[np.float64] = np.minimum(inside.min(axis=0), above)
        return smallest

    def as_json(self) -> dict[str, Any]:
        """Plain lists, for `json.dumps`."""
        return {"means": self.means.tolist(), "log_evidence": self.log_evidence.tolist()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> MeanEvidence:
        """The evidence that `as_json` returned."""
        means = _stored_array(stored, "means")
        log_evidence = _stored_array(stored, "log_evidence")
        if len(means) == 0 or len(log_evidence) != len(means) + 1:
            raise InputError("expected the evidence against each mean in a stored reference")
        if not bool((np.abs(means) <= 1).all()):
            raise InputError("expected means from -1 to 1 in a stored reference")
        if not bool((np.diff(means) >= 0).all() and (np.diff(log_evidence) >= 0).all()):
            raise InputError("expected ascending means and evidence in a stored reference")
        return cls(means, log_evidence)


@dataclass(frozen=True, eq=False)
class Reference:
    """What the signals were in the baseline.

    Attributes:
        summary: Counts and sums of the baseline.
        expected: For each signal the expected value of each predicted class. Of `uncertainty` it is
            the mean of the class in a random quarter of the baseline, shrunk to that of all classes
            as far as the classes differ by chance; of `disagreement` it is 0.
        evidence: For each signal what the baseline says about the mean residual: signal minus
            expected value.

    """

    summary: Summary
    expected: Mapping[str, NDArray[np.float64]]
    evidence: Mapping[str, MeanEvidence]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.summary.counts)

    @classmethod
    def of(cls, baseline: Signals) -> Reference:
        """Learn from a baseline.

        Args:
            baseline: Signals of independent inputs from where the model does well, in any order.

        """
        if len(baseline) < FEWEST:
            raise InputError(
                f"expected a baseline of at least {FEWEST} inputs, got {len(baseline)}; "
                "collect more"
            )
        order = np.random.default_rng(0).permutation(len(baseline))
        quarter = len(baseline) // 4
        expected = {}
        evidence = {}
        for name in baseline.values:
            if name == DISAGREEMENT:
                per_class = np.zeros(baseline.classes)
                rest = baseline.rows(order)
            else:
                first = baseline.rows(order[:quarter])
                per_class = _class_means(first.predicted, first.values[name], baseline.classes)
                rest = baseline.rows(order[quarter:])
            residuals = rest.values[name] - per_class[rest.predicted]
            low = -float(per_class.max())
            high = 1 - float(per_class.min())
            expected[name] = per_class
            evidence[name] = MeanEvidence.of(residuals, low=low, high=high)
        return cls(Summary.of(baseline), expected, evidence)

    def residuals(self, signals: Signals, name: str) -> NDArray[np.float64]:
        """One signal minus what is expected of each input's predicted class."""
        return signals.values[name] - self.expected[name][signals.predicted]

    def check(self, signals: Signals) -> None:
        """Refuse signals of another model."""
        if signals.classes != self.classes:
            raise InputError(
                f"expected {self.classes} classes as in the baseline, got {signals.classes}"
            )
        if signals.values.keys() != self.expected.keys():
            raise InputError(
                f"expected the signals of the baseline, {', '.join(self.expected)}; got "
                f"{', '.join(signals.values)}"
            )

    def changes(self, now: Summary) -> list[ClassChange]:
        """The predicted classes, those that add most to the increase of a signal first.

        Args:
            now: The sum of the summaries since the change.

        """
        before = self.summary
        if now.sums.keys() != before.sums.keys() or now.counts.shape != before.counts.shape:
            raise InputError("expected a summary of the baseline's signals and classes")
        total = max(int(now.counts.sum()), 1)
        fractions = before.counts / before.counts.sum()
        increases = {
            name: (now.sums[name] - now.counts * _shrunk(before.counts, before.sums[name])) / total
            for name in now.sums
        }
        changes = [
            ClassChange(
                predicted,
                float(fractions[predicted]),
                float(now.counts[predicted] / total),
                {name: float(increase[predicted]) for name, increase in increases.items()},
            )
            for predicted in range(self.classes)
        ]
        return sorted(changes, key=lambda change: -max(change.increase.values()))

    def as_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for `json.dumps`."""
        return {
            "summary": self.summary.as_json(),
            "expected": {name: value.tolist() for name, value in self.expected.items()},
            "evidence": {name: value.as_json() for name, value in self.evidence.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Reference:
        """The reference that `as_json` returned."""
        summary = Summary.from_json(_stored(stored, "summary"))
        expected = {
            name: _array(value, name) for name, value in _stored(stored, "expected").items()
        }
        evidence = {
            name: MeanEvidence.from_json(value)
            for name, value in _stored(stored, "evidence").items()
        }
        alike = expected.keys() == evidence.keys() == summary.sums.keys()
        if not alike or not expected.keys() <= set(SIGNALS):
            raise InputError("expected the same signals in all parts of a stored reference")
        for value in expected.values():
            if value.shape != summary.counts.shape or not bool(((value >= 0) & (value <= 1)).all()):
                raise InputError("expected one number from 0 to 1 per class in a stored reference")
        return cls(summary, expected, evidence)


@dataclass(frozen=True, slots=True)
class AlarmReport:
    """The state of the alarm in words and numbers.

    Attributes:
        inputs: The number of inputs so far.
        e_value: The evidence now that something got worse.
        largest: The largest e-value so far; 1 / `largest` bounds the probability of seeing as much
            evidence while nothing got worse.
        threshold: The e-value that raises an alarm.
        raised_at: The number of inputs after which the alarm was raised; None if it was not.
        signal: The signal with more evidence, at the alarm if there was one, otherwise now.
        since: The number of inputs before the restart with the most weight: about where the change
            began. At the alarm if there was one, otherwise now.
        e_values: The e-value of each signal now.

    """

    inputs: int
    e_value: float
    largest: float
    threshold: float
    raised_at: int | None
    signal: str
    since: int
    e_values: Mapping[str, float]

    @property
    def raised(self) -> bool:
        """Whether the alarm was raised."""
        return self.raised_at is not None


class _Raised(NamedTuple):
    """An alarm, with the fields `raised_at`, `signal` and `since` of its report."""

    at: int
    signal: str
    since: int


@dataclass(eq=False)
class _Wealth:
    """The wealth of all bets on one signal: S in the module's docstring, without what waits.

    Attributes:
        log_sum: For each bet and each candidate for the baseline's mean, the logarithm of the
            weighted sum over restarts; of shape `(bets, candidates)`.
        log_best: For each bet the logarithm of its largest term, at the candidate in the middle.
        start: For each bet the number of inputs before the start of that term.

    """

    log_sum: NDArray[np.float64]
    log_best: NDArray[np.float64]
    start: NDArray[np.int64]

    @classmethod
    def at_start(cls, bets: int, candidates: int) -> _Wealth:
        """Before the first input: only the first restart, of weight 1/2."""
        half = math.log(0.5)
        log_sum = np.full((bets, candidates), half)
        return cls(log_sum, np.full(bets, half), np.zeros(bets, dtype=np.int64))

    def restart(self, number: int, inputs: int) -> None:
        """Let one more restart begin."""
        log_weight = -math.log((number + 1) * (number + 2))
        self.log_sum = np.logaddexp(self.log_sum, log_weight)
        better = self.log_best < log_weight
        self.start = np.where(better, inputs, self.start)
        self.log_best = np.where(better, log_weight, self.log_best)

    def add(self, log_factors: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Add inputs between two restarts.

        One is added after the other, so the cut into batches does not matter to the last digit.

        Args:
            log_factors: The logarithm of what each bet makes of each input, of shape
                `(bets, candidates, n)`.

        Returns:
            The logarithm of the mean over bets after each input, of shape `(candidates, n)`, and
            where the leading term of the leading bet began, of shape `(n,)`.

        """
        middle = log_factors[:, log_factors.shape[1] // 2]
        sums = _cumulated(self.log_sum, log_factors)
        best = _cumulated(self.log_best, middle)
        self.log_sum = sums[..., -1].copy()
        self.log_best = best[..., -1].copy()
        return _log_mean(sums), self.start[best.argmax(axis=0)]

    @property
    def since(self) -> int:
        """Where the leading term of the leading bet began."""
        return int(self.start[np.argmax(self.log_best)])


@dataclass(eq=False)
class Monitor:
    """The alarm over a stream of inputs; the module's docstring says what it promises.

    >>> rng = np.random.default_rng(0)
    >>> def day(n, noise):
    ...     x = rng.normal(size=(n, 2))
    ...     return Signals.of(9 * x, second=9 * (x + noise * rng.normal(size=(n, 2))))
    >>> monitor = Monitor(Reference.of(day(2000, noise=0.1)))
    >>> monitor.add(day(1000, noise=0.1))
    >>> monitor.report.raised
    False
    >>> monitor.add(day(1000, noise=1.0))
    >>> monitor.report.raised, monitor.report.signal, monitor.report.since
    (True, 'disagreement', 1000)

    Args:
        reference: What the signals were in the baseline.
        settings: When an alarm is raised.

    """

    reference: Reference
    settings: MonitorSettings = field(default_factory=MonitorSettings)

    def __post_init__(self) -> None:
        self.inputs = 0
        self._restarts = 0
        self._started = 0  # the number of inputs before the last restart
        self._wealth = {
            name: _Wealth.at_start(len(self.settings.bets), len(evidence.means))
            for name, evidence in self.reference.evidence.items()
        }
        self._log_largest = 0.0
        self._raised: _Raised | None = None

    def add(self, signals: Signals) -> None:
        """Add a batch of inputs, in the order in which they came.

        Args:
            signals: Of the batch. A batch without an order, such as a folder that is sorted by
                class, should be shuffled first.

        """
        self.reference.check(signals)
        done = 0
        every = self.settings.restart_every
        while done < len(signals):
            if self.inputs - self._started >= every:
                self._restart()
            n = min(len(signals) - done, every - (self.inputs - self._started))
            self._add_segment(signals.rows(slice(done, done + n)))
            done += n

    def restart(self) -> None:
        """Let a fresh bet begin with the next input, for example because a batch begins.

        A change often begins with a batch. If the last restart was less than 50 inputs ago, none
        begins: more of them weigh less each.
        """
        if self.inputs - self._started >= min(NEAREST, self.settings.restart_every):
            self._restart()

    def _restart(self) -> None:
        self._restarts += 1
        self._started = self.inputs
        for wealth in self._wealth.values():
            wealth.restart(self._restarts, self.inputs)

    def _add_segment(self, signals: Signals) -> None:
        """Add inputs between two restarts."""
        before = self.inputs
        log_e_values = {}
        since = {}
        for name, wealth in self._wealth.items():
            log_stream, since[name] = wealth.add(self._log_factors(signals, name))
            evidence = self.reference.evidence[name]
            log_e_values[name] = evidence.times(log_stream, self._log_waiting())
        log_e = _log_mean(np.array(list(log_e_values.values())))
        self.inputs = before + len(signals)
        self._log_largest = max(self._log_largest, float(log_e.max()))
        over = np.flatnonzero(log_e >= math.log(self.settings.threshold))
        if self._raised is None and len(over):
            at = int(over[0])
            signal = max(log_e_values, key=lambda name: float(log_e_values[name][at]))
            self._raised = _Raised(before + at + 1, signal, int(since[signal][at]))

    def _log_factors(self, signals: Signals, name: str) -> NDArray[np.float64]:
        """The logarithm of what each bet makes of each input, of shape `(bets, candidates, n)`."""
        nulls = self.reference.evidence[name].means + self.settings.margin
        lowest = -float(self.reference.expected[name].max())
        bets = np.array(self.settings.bets)[:, None] / (nulls - lowest)
        residuals = self.reference.residuals(signals, name)
        log_factors: NDArray[np.float64] = np.log(
            1 + (residuals - nulls[:, None]) * bets[:, :, None]
        )
        return log_factors

    def _log_waiting(self) -> float:
        """The logarithm of the weight of all restarts that are still to come."""
        return -math.log(self._restarts + 2)

    @property
    def report(self) -> AlarmReport:
        """The state of the alarm."""
        e_values = {}
        for name, wealth in self._wealth.items():
            log_stream = _log_mean(wealth.log_sum)[:, None]
            log_e = self.reference.evidence[name].times(log_stream, self._log_waiting())
            e_values[name] = _exp(log_e.item())
        raised_at = None
        signal = max(e_values, key=lambda name: e_values[name])
        since = self._wealth[signal].since
        if self._raised is not None:
            raised_at, signal, since = self._raised
        return AlarmReport(
            self.inputs,
            float(np.mean(list(e_values.values()))),
            _exp(self._log_largest),
            self.settings.threshold,
            raised_at,
            signal,
            since,
            e_values,
        )

    def as_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, for `json.dumps`."""
        return {
            "version": VERSION,
            "settings": asdict(self.settings),
            "reference": self.reference.as_json(),
            "inputs": self.inputs,
            "restarts": self._restarts,
            "started": self._started,
            "log_largest": self._log_largest,
            "raised": self._raised,
            "wealth": {
                name: {
                    "log_sum": wealth.log_sum.ravel().tolist(),
                    "log_best": wealth.log_best.tolist(),
                    "start": wealth.start.tolist(),
                }
                for name, wealth in self._wealth.items()
            },
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Monitor:
        """The monitor that `as_json` returned; it goes on where that one stopped."""
        try:
            return cls._from_json(stored)
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError("the stored monitor is damaged; start a new one") from error

    @classmethod
    def _from_json(cls, stored: Mapping[str, Any]) -> Monitor:
        if _stored(stored, "version") != VERSION:
            raise InputError(
                f"expected a monitor of version {VERSION}, got {stored['version']!r}; start a new "
                "one"
            )
        given = dict(_stored(stored, "settings"))
        if given.keys() != {setting.name for setting in fields(MonitorSettings)}:
            raise InputError("expected all settings of a monitor, and no others")
        settings = MonitorSettings(**(given | {"bets": tuple(given["bets"])}))
        monitor = cls(Reference.from_json(_stored(stored, "reference")), settings)
        monitor.inputs = _count(_stored(stored, "inputs"), "inputs")
        monitor._restarts = _count(_stored(stored, "restarts"), "restarts")
        monitor._started = _count(_stored(stored, "started"), "started")
        if monitor._started > monitor.inputs:
            raise InputError("expected a restart within the inputs of a stored monitor")
        monitor._log_largest = float(_array([_stored(stored, "log_largest")], "log_largest")[0])
        if stored.get("raised") is not None:
            at, signal, since = stored["raised"]
            if signal not in monitor._wealth:
                raise InputError(f"expected an alarm of a signal of the baseline, got {signal!r}")
            monitor._raised = _Raised(_count(at, "raised"), signal, _count(since, "raised"))
        wealth = _stored(stored, "wealth")
        for name, begun in monitor._wealth.items():
            parts = _stored(wealth, name)
            log_sum = _stored_array(parts, "log_sum")
            log_best = _stored_array(parts, "log_best")
            begins = _stored_array(parts, "start")
            if (len(log_sum), len(log_best), len(begins)) != (
                begun.log_sum.size,
                begun.log_best.size,
                begun.start.size,
            ):
                raise InputError(
                    f"expected {len(settings.bets)} bets on {name} in a stored monitor"
                )
            monitor._wealth[name] = _Wealth(
                log_sum.reshape(begun.log_sum.shape), log_best, begins.astype(np.int64)
            )
        return monitor


def uncertainty(logits: ArrayLike) -> NDArray[np.float64]:
    """1 - confidence of each input, from logits that are standardised if there are three classes.

    Lower contrast, and many other harmless changes, scale all logits of an input down: its
    confidence falls, its predicted class stays. So each row is divided by its standard deviation
    over the classes and multiplied by 3. With two classes nothing else than the scale could be
    seen, and the logits stay as they are.

    >>> uncertainty([[4.0, 1.0, 1.0], [8.0, 2.0, 2.0]]).round(3)    # 1 / (1 + exp(9 / 2**0.5) / 2)
    array([0.003, 0.003])

    Args:
        logits: Of shape `(n, classes)`.

    """
    rows = as_logits(logits).astype(np.float64)
    if rows.shape[1] > 2:
        rows = SHARPNESS * _standardised(rows)
    signal: NDArray[np.float64] = 1 - softmax(rows).max(axis=1)
    return signal.clip(0, 1)


def _standardised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows with maximum 0 and standard deviation 1; classes with -inf do not count."""
    possible = np.isfinite(rows)
    below = rows - rows.max(axis=1, keepdims=True)
    mean = below.mean(axis=1, keepdims=True, where=possible)
    squares = np.where(possible, below - mean, 0) ** 2
    spread = np.sqrt(squares.mean(axis=1, keepdims=True, where=possible))
    standardised: NDArray[np.float64] = below / np.where(spread > 0, spread, 1)
    return standardised


def anytime_interval(right: float, labelled: int, *, level: float = 0.95) -> Interval:
    """An interval for the accuracy that may be looked at after every label.

    With probability `level` it covers the accuracy after every number of labels at once, so one may
    stop labelling when it is narrow enough. It is a betting confidence sequence: an accuracy p is
    excluded once the product of q / p over right and (1 - q) / (1 - p) over wrong predictions, mixed
    over q with Jeffreys' prior, reaches 1 / (1 - level). At the true p the product is a martingale
    of mean 1, so Ville's inequality applies; for scores between 0 and 1 it is a supermartingale, as
    the factors are convex in the score.

    >>> print(f"{anytime_interval(40, 50):.2f}")
    0.80 [0.59, 0.94]

    Args:
        right: The number of right predictions, or a sum of scores from 0 to 1.
        labelled: The number of labels, drawn at random.
        level: The probability that all intervals cover the accuracy.

    """
    from scipy.special import betaln

    check_level(level)
    if labelled < 0 or not 0 <= right <= labelled:
        raise InputError(f"expected 0 to {labelled} right predictions, got {right}")
    if labelled == 0:
        return Interval(math.nan, 0.0, 1.0)
    wrong = labelled - right
    mixture = float(betaln(right + 0.5, wrong + 0.5) - betaln(0.5, 0.5))
    goal = mixture - math.log(1 / (1 - level))
    value = right / labelled

    def excluded(p: float) -> bool:
        likelihood = 0.0
        if right > 0:
            likelihood += right * math.log(p)
        if wrong > 0:
            likelihood += wrong * math.log1p(-p)
        return likelihood <= goal

    low = 0.0
    if right > 0:
        low = _edge(excluded, outside=1e-300, inside=value)
    high = 1.0
    if wrong > 0:
        high = _edge(excluded, outside=1 - 1e-16, inside=value)
    return Interval(value, low, high)


def _edge(
    excluded: Callable[[float], bool], outside: float, inside: float, steps: int = 100
) -> float:
    """Where a monotone condition changes, by bisection; a point that is excluded."""
    for _ in range(steps):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside


def _bets_on_sample(values: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """Bets on each value of a sample, of shape `(n, bets)`; they depend on earlier values only.

    A bet is large if the values spread little: one of b / (spread sqrt(n)) does best against a mean
    that is b standard errors too high. The spread begins with one value of variance 1/4.
    """
    n = len(values)
    earlier = np.arange(n)
    sums = np.concatenate([[0], np.cumsum(values)[:-1]])
    squares = np.concatenate([[0], np.cumsum(values**2)[:-1]])
    deviations = (squares - sums**2 / np.maximum(earlier, 1)).clip(0)
    spread = np.sqrt((deviations + 0.25) / (earlier + 1))
    bets: NDArray[np.float64] = np.array(BASELINE_BETS) / (spread * math.sqrt(n))[:, None]
    return bets.clip(max=largest)


def _crossing(function: Callable[[float], float], goal: float, low: float, high: float) -> float:
    """Where a growing function reaches a goal, by bisection; `high` if it does not."""
    if function(high) < goal:
        return high
    return _edge(lambda x: function(x) >= goal, outside=high, inside=low, steps=40)


def _cumulated(start: NDArray[np.float64], terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums of a start and the first terms of the last axis, added one after the other."""
    sums: NDArray[np.float64] = np.cumsum(
        np.concatenate([start[..., None], terms], axis=-1), axis=-1
    )
    return sums[..., 1:]


def _log_mean(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the mean, over the first axis, of numbers with given logarithms."""
    largest = logarithms.max(axis=0)
    means: NDArray[np.float64] = np.log(np.exp(logarithms - largest).mean(axis=0)) + largest
    return means


def _shrunk(
    counts: NDArray[np.int64], sums: NDArray[np.float64], prior: float = PRIOR
) -> NDArray[np.float64]:
    """The mean of each class, shrunk to the mean of all by `prior` inputs."""
    overall = sums.sum() / counts.sum()
    means: NDArray[np.float64] = (sums + prior * overall) / (counts + prior)
    return means.clip(0, 1)


def _class_means(
    predicted: NDArray[np.int64], values: NDArray[np.float64], classes: int
) -> NDArray[np.float64]:
    """The mean of each class, shrunk to the mean of all as far as they differ by chance.

    A class gets k inputs with the mean of all, where k is the variance within classes over that
    between classes, both estimated by the analysis of variance (Buehlmann's credibility). So a
    rare class whose signal is clearly larger keeps its mean; means that hardly differ become one.
    """
    counts = np.bincount(predicted, minlength=classes)
    sums = np.bincount(predicted, weights=values, minlength=classes).astype(np.float64)
    seen = int(np.count_nonzero(counts))
    n = len(values)
    means = sums / np.maximum(counts, 1)
    within = float(((values - means[predicted]) ** 2).sum()) / max(n - seen, 1)
    between = float((counts * (means - values.mean()) ** 2).sum()) - (seen - 1) * within
    if seen in (1, n) or between <= 0:  # nothing to compare, or nothing but chance
        return np.full(classes, values.mean())
    between /= n - float((counts**2).sum()) / n
    return _shrunk(counts, sums, max(within / between, 1.0))


def _exp(logarithm: float) -> float:
    return math.exp(min(logarithm, LARGEST_LOG))


def _stored(stored: Mapping[str, Any], name: str) -> Any:
    if not isinstance(stored, Mapping) or name not in stored:
        raise InputError(f"expected {name!r} in a stored monitor")
    return stored[name]


def _stored_array(stored: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    return _array(_stored(stored, name), name)


def _array(value: Any, name: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(as_numpy(value, name), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in {name!r} of a stored monitor") from None
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InputError(f"expected a list of finite numbers in {name!r} of a stored monitor")
    return array


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"expected a count in {name!r} of a stored monitor, got {value!r}")
    return value
