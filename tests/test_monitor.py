"""The alarm: worked out by hand, valid by simulation, the same however the stream is cut."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.monitor import (
    MeanEvidence,
    Monitor,
    MonitorSettings,
    Reference,
    Signals,
    Summary,
    _class_means,
    anytime_interval,
    uncertainty,
)


def stream(n: int, disagree: float, rng: np.random.Generator, *, classes: int = 3) -> Signals:
    """Signals of random inputs: the models disagree on a fraction of them."""
    uncertain = rng.beta(2, 8, n)
    other = (rng.random(n) < disagree).astype(float)
    values = {"disagreement": other, "uncertainty": uncertain}
    return Signals(rng.integers(0, classes, n), classes, values)


def by_hand(expected: float, mean: float) -> Reference:
    """A reference of one signal and two classes, whose mean residual is known."""
    summary = Summary(np.array([50, 50]), {"disagreement": np.array([5.0, 5.0])})
    evidence = MeanEvidence(np.array([mean]), np.array([0.0, 1000.0]))
    return Reference(summary, {"disagreement": np.full(2, expected)}, {"disagreement": evidence})


def zeros_and_ones(values: list[int]) -> Signals:
    return Signals(
        np.zeros(len(values), dtype=int), 2, {"disagreement": np.array(values, dtype=float)}
    )


def test_three_inputs_by_hand() -> None:
    # expected 0.2, mean residual 0, margin 0.05: the null mean is 0.05 of a residual >= -0.2, so the
    # largest bet is 1 / 0.25 = 4, and half of it is 2. Factors: 1 + 2 (0.8 - 0.05) = 2.5 if the
    # models disagree, 1 + 2 (-0.2 - 0.05) = 0.5 if they agree.
    settings = MonitorSettings(margin=0.05, restart_every=2, bets=(0.5,))
    monitor = Monitor(by_hand(0.2, 0.0), settings)
    assert monitor.report.e_value == pytest.approx(1)
    monitor.add(zeros_and_ones([1]))
    assert monitor.report.e_value == pytest.approx(0.5 * 2.5 + 0.5)
    monitor.add(zeros_and_ones([0]))
    assert monitor.report.e_value == pytest.approx(0.5 * 2.5 * 0.5 + 0.5)
    monitor.add(zeros_and_ones([1]))  # the second start, of weight 1/6; the others weigh 1/3
    assert monitor.report.e_value == pytest.approx((0.5 * 1.25 + 1 / 6) * 2.5 + 1 / 3)
    assert monitor.report.largest == pytest.approx((0.5 * 1.25 + 1 / 6) * 2.5 + 1 / 3)
    assert monitor.report.since == 0


def test_the_start_with_the_most_weight_by_hand() -> None:
    # as above; six times 0.5 leave the first start 0.5 * 0.5**6 < 1/12, the weight of the third
    settings = MonitorSettings(margin=0.05, restart_every=3, bets=(0.5,))
    monitor = Monitor(by_hand(0.2, 0.0), settings)
    monitor.add(zeros_and_ones([0] * 6 + [1] * 5))
    assert monitor.report.since == 6
    assert monitor.report.raised_at is None
    terms = [(0.5 * 0.5**6 + 0.5**3 / 6 + 1 / 12) * 2.5**3, 1 / 20]
    assert monitor.report.e_value == pytest.approx(sum(terms) * 2.5**2 + 1 / 5)


def test_alarm_is_raised_at_the_input_that_reaches_the_threshold() -> None:
    settings = MonitorSettings(margin=0.05, bets=(0.5,))  # e = 0.5 * 2.5**n + 0.5, threshold 20
    monitor = Monitor(by_hand(0.2, 0.0), settings)
    monitor.add(zeros_and_ones([1] * 20))
    assert monitor.report.raised_at == math.ceil(math.log(39, 2.5))
    assert monitor.report.signal == "disagreement"


def test_the_e_value_is_the_smallest_over_candidates_by_hand() -> None:
    # Candidates 0 and 0.2, margin 0.05: the null means are 0.05 and 0.25. Half of the largest bets
    # is 10 and 2. Factors of a disagreement: 1 + 10 (1 - 0.05) = 10.5 and 1 + 2 (1 - 0.25) = 2.5.
    evidence = MeanEvidence(np.array([0.0, 0.2]), np.log([0.5, 4.0, 100.0]))
    summary = Summary(np.array([50, 50]), {"disagreement": np.array([5.0, 5.0])})
    reference = Reference(summary, {"disagreement": np.zeros(2)}, {"disagreement": evidence})
    monitor = Monitor(reference, MonitorSettings(margin=0.05, bets=(0.5,)))
    assert monitor.report.e_value == pytest.approx(0.5)
    monitor.add(zeros_and_ones([1]))
    low = 0.5 * (0.5 * 10.5 + 0.5)
    high = 4 * (0.5 * 2.5 + 0.5)
    assert monitor.report.e_value == pytest.approx(min(low, high))
    monitor.add(zeros_and_ones([1, 1]))
    low = 0.5 * (0.5 * 10.5**3 + 0.5)
    high = 4 * (0.5 * 2.5**3 + 0.5)
    above = 100 * 0.5  # whatever the mean is, half of the wealth still waits
    assert high < above < low
    assert monitor.report.e_value == pytest.approx(high)
    monitor.add(zeros_and_ones([1] * 10))
    assert monitor.report.e_value == pytest.approx(above)


def test_evidence_against_a_mean_by_hand() -> None:
    # two values, 0 and 1. The spread begins with 1/2, so the bets are (0, 1, 2.5) / (0.5 sqrt(2)),
    # then with sqrt(0.25 / 2) twice that; both at most 1. Against a mean of 0.9 the factors are
    # 1 + 0.9 and 1 - 0.1, or 1 if the bet is 0.
    evidence = MeanEvidence.of(np.array([0.0, 1.0]), low=0.0, high=1.0)
    assert evidence.log_evidence[0] == pytest.approx(math.log(1 / 3))
    assert evidence.means[-1] == 1.0  # two values exclude nothing
    assert evidence.log_evidence[-1] == pytest.approx(math.log((1 + 2 + 2) / 3))


def test_evidence_against_the_true_mean_is_rare() -> None:
    """An evidence of 10 against it has a probability of at most 1 / 10."""
    rng = np.random.default_rng(0)
    against = []
    for _ in range(400):
        evidence = MeanEvidence.of((rng.random(200) < 0.1).astype(float), low=0.0, high=1.0)
        cell = np.searchsorted(evidence.means, 0.1)
        against.append(math.exp(evidence.log_evidence[cell]))
    assert np.mean(np.array(against) >= 10) <= 0.1
    assert np.mean(against) <= 1.1


def test_a_larger_baseline_excludes_more_means() -> None:
    rng = np.random.default_rng(0)
    few = MeanEvidence.of(rng.random(200), low=0.0, high=1.0)
    many = MeanEvidence.of(rng.random(20000), low=0.0, high=1.0)
    assert many.means[-1] < 0.52 < few.means[-1] < 0.7


@pytest.mark.parametrize("size", [200, 2000])
def test_false_alarms_at_the_margin_are_rare(size: int) -> None:
    raised = 0
    for seed in range(100):
        rng = np.random.default_rng([size, seed])
        monitor = Monitor(Reference.of(stream(size, 0.1, rng)), MonitorSettings(alpha=0.2))
        monitor.add(stream(3000, 0.12, rng))
        raised += monitor.report.raised
    assert raised <= 20


def test_error_of_a_small_baseline_is_in_the_test() -> None:
    # 5% of 200 may well be 9% where the baseline comes from: no alarm at 9%, margin 2 points
    rng = np.random.default_rng(0)
    baseline = zeros_and_ones(rng.permutation([1] * 10 + [0] * 190).tolist())
    monitor = Monitor(Reference.of(baseline))
    monitor.add(zeros_and_ones((rng.random(20000) < 0.09).astype(int).tolist()))
    assert not monitor.report.raised


def test_late_change_is_found_early_and_dated() -> None:
    rng = np.random.default_rng(0)
    monitor = Monitor(Reference.of(stream(2000, 0.1, rng)))
    monitor.add(stream(20000, 0.1, rng))
    monitor.add(stream(500, 0.4, rng))
    report = monitor.report
    assert 20000 < report.raised_at < 20200
    assert report.signal == "disagreement"
    assert report.since == 20000


def test_rise_of_eight_points_is_found_within_4000_inputs() -> None:
    found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        monitor = Monitor(Reference.of(stream(2000, 0.21, rng)))
        monitor.add(stream(1000, 0.21, rng))
        monitor.add(stream(4000, 0.29, rng))
        found += monitor.report.raised
    assert found >= 25


def frequent_class(name: str) -> bool:
    """Whether an alarm is raised if a class on which the signal is high becomes more frequent."""

    def of(n: int, hard: float, rng: np.random.Generator) -> Signals:
        predicted = (rng.random(n) < hard).astype(int)
        high = rng.random(n) < np.where(predicted == 1, 0.4, 0.02)
        return Signals(predicted, 2, {name: high.astype(float)})

    rng = np.random.default_rng(0)
    baseline = of(4000, 0.1, rng)
    later = of(4000, 0.6, rng)
    assert later.values[name].mean() > baseline.values[name].mean() + 0.15
    monitor = Monitor(Reference.of(baseline))
    monitor.add(later)
    return monitor.report.raised


def test_other_class_frequencies_alone_do_not_raise_the_uncertainty() -> None:
    assert not frequent_class("uncertainty")


def test_rare_class_with_a_clearly_higher_signal_keeps_its_mean() -> None:
    """Of 2,000 inputs 80 are of class 1: about 20 in the quarter that the means come from."""

    def of(n: int, rare: float, rng: np.random.Generator) -> Signals:
        predicted = (rng.random(n) < rare).astype(int)
        values = np.where(predicted == 1, 0.28, 0.07) + rng.uniform(-0.05, 0.05, n)
        return Signals(predicted, 2, {"uncertainty": values})

    raised = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        reference = Reference.of(of(2000, 0.04, rng))
        assert reference.expected["uncertainty"] == pytest.approx([0.07, 0.28], abs=0.03)
        monitor = Monitor(reference)
        monitor.add(of(4000, 0.5, rng))
        raised += monitor.report.raised
    assert raised == 0


def test_class_means_are_shrunk_as_far_as_they_differ_by_chance() -> None:
    # Variance within classes 0.16 / 2 = 0.08; between them (0.16 - 0.08) / (4 - 8 / 4) = 0.04. So
    # each class gets 0.08 / 0.04 = 2 inputs with the mean of all, 0.4.
    predicted = np.array([0, 0, 1, 1])
    means = _class_means(predicted, np.array([0.0, 0.4, 0.4, 0.8]), 3)
    assert means == pytest.approx([(0.4 + 0.8) / 4, (1.2 + 0.8) / 4, 0.4])
    alike = _class_means(predicted, np.array([0.0, 0.4, 0.1, 0.5]), 3)
    assert alike == pytest.approx([0.25, 0.25, 0.25])


@pytest.mark.parametrize("predicted", [[0, 0, 0], [0, 1, 2]])
def test_class_means_without_anything_to_compare_are_one(predicted: list[int]) -> None:
    means = _class_means(np.array(predicted), np.array([0.1, 0.2, 0.6]), 3)
    assert means == pytest.approx([0.3, 0.3, 0.3])


def test_more_predictions_of_a_doubtful_class_are_disagreement() -> None:
    """They look like errors that make a model predict one class too often."""
    assert frequent_class("disagreement")


def test_batches_make_no_difference_to_the_last_digit() -> None:
    rng = np.random.default_rng(3)
    reference = Reference.of(stream(1000, 0.1, rng))
    signals = stream(3000, 0.2, rng)
    whole = Monitor(reference)
    whole.add(signals)
    parts = Monitor(reference)
    edges = [0, 1, 1, 249, 250, 251, 900, 2000, 3000]
    for begin, end in itertools.pairwise(edges):
        parts.add(signals.rows(slice(begin, end)))
    assert parts.as_json() == whole.as_json()
    assert whole.report.raised


def test_summaries_add_up() -> None:
    signals = stream(100, 0.3, np.random.default_rng(0))
    parts = Summary.of(signals.rows(slice(0, 40))) + Summary.of(signals.rows(slice(40, 100)))
    whole = Summary.of(signals)
    assert (parts.counts == whole.counts).all()
    assert parts.sums["uncertainty"] == pytest.approx(whole.sums["uncertainty"])


def test_stored_monitor_goes_on_where_it_stopped() -> None:
    rng = np.random.default_rng(4)
    monitor = Monitor(Reference.of(stream(1000, 0.1, rng)))
    monitor.add(stream(777, 0.2, rng))
    text = json.dumps(monitor.as_json(), allow_nan=False)
    other = Monitor.from_json(json.loads(text))
    more = stream(2000, 0.3, rng)
    monitor.add(more)
    other.add(more)
    assert other.report.raised
    assert other.as_json() == monitor.as_json()
    assert Monitor.from_json(json.loads(json.dumps(other.as_json()))).report == other.report


def test_size_of_the_state_does_not_depend_on_the_stream() -> None:
    rng = np.random.default_rng(4)
    monitor = Monitor(Reference.of(stream(1000, 0.1, rng)))
    monitor.add(stream(1000, 0.1, rng))
    short = len(json.dumps(monitor.as_json()))
    monitor.add(stream(50000, 0.1, rng))
    assert len(json.dumps(monitor.as_json())) < 1.2 * short


def test_changes_name_the_class_that_got_worse() -> None:
    rng = np.random.default_rng(0)
    baseline = stream(2000, 0.1, rng)
    later = stream(2000, 0.1, rng)
    worse = np.where(later.predicted == 2, 1.0, later.values["disagreement"])
    later = Signals(later.predicted, 3, {**later.values, "disagreement": worse})
    change = Reference.of(baseline).changes(Summary.of(later))[0]
    assert change.predicted == 2
    assert change.increase["disagreement"] == pytest.approx(0.9 / 3, abs=0.03)
    assert change.before == pytest.approx(1 / 3, abs=0.05)


def test_signals_of_another_model_are_refused() -> None:
    rng = np.random.default_rng(0)
    monitor = Monitor(Reference.of(stream(500, 0.1, rng)))
    with pytest.raises(InputError, match="expected 3 classes"):
        monitor.add(stream(10, 0.1, rng, classes=4))
    signals = stream(10, 0.1, rng)
    with pytest.raises(InputError, match="signals of the baseline"):
        monitor.add(Signals(signals.predicted, 3, {"uncertainty": signals.values["uncertainty"]}))


@pytest.mark.parametrize(
    ("predicted", "value", "message"),
    [
        ([0, 1], [0.0, 1.5], "from 0 to 1"),
        ([0, 1], [0.0, math.nan], "from 0 to 1"),
        ([0, 2], [0.0, 1.0], "classes from 0 to 1"),
        ([0, 1], [0.0], "of shape"),
        ([0.5, 1.0], [0.0, 1.0], "integers"),
    ],
)
def test_invalid_signals_are_refused(predicted: list, value: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Signals(np.array(predicted), 2, {"disagreement": np.array(value)})


def test_uncertainty_does_not_depend_on_the_scale_of_the_logits() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 5))
    assert uncertainty(0.2 * logits + 7) == pytest.approx(uncertainty(logits))
    assert uncertainty(0.2 * logits[:, :2]) != pytest.approx(uncertainty(logits[:, :2]))


def test_uncertainty_of_impossible_and_equal_classes() -> None:
    rows = [[1.0, 1.0, -np.inf], [0.0, -np.inf, -np.inf], [2.0, 2.0, 2.0]]
    assert uncertainty(rows) == pytest.approx([1 / 2, 0, 2 / 3])
    assert uncertainty([[3.0, 1.0, -np.inf]]) == uncertainty([[5.0, 1.0, -np.inf]])


def test_second_model_of_other_classes_is_refused() -> None:
    with pytest.raises(InputError, match="second model"):
        Signals.of(np.zeros((2, 3)), np.zeros((2, 4)))


def test_small_baseline_is_refused() -> None:
    with pytest.raises(InputError, match="at least 100 inputs, got 99"):
        Reference.of(stream(99, 0.1, np.random.default_rng(0)))


@pytest.mark.parametrize(
    "setting", [{"alpha": 0}, {"margin": 1.0}, {"restart_every": 0}, {"bets": ()}, {"bets": (1.0,)}]
)
def test_invalid_settings_are_refused(setting: dict) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        MonitorSettings(**setting)


def damaged(stored: dict, *path: str, value: object) -> dict:
    """A copy of a stored monitor with one value replaced."""
    copy = json.loads(json.dumps(stored))
    part = copy
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 99),
        (("settings",), {}),
        (("inputs",), -1),
        (("inputs",), 1.5),
        (("log_largest",), None),
        (("wealth",), {}),
        (("wealth", "disagreement", "log_sum"), [0.0]),
        (("wealth", "disagreement", "log_sum"), "abc"),
        (("reference", "evidence"), {"disagreement": {"means": [0.1], "log_evidence": [0, 1]}}),
        (("reference", "evidence", "disagreement"), 7.0),
        (("reference", "evidence", "disagreement", "means"), [7.0]),
        (("reference", "evidence", "disagreement", "means"), []),
        (("reference", "evidence", "disagreement", "log_evidence"), [0.0]),
        (("reference", "expected", "disagreement"), [0.1]),
        (("raised",), [5, "nothing", 0]),
        (("raised",), [5]),
        (("settings", "alpha"), "x"),
        (("settings", "bets"), 5),
        (("wealth", "disagreement"), 3),
        (("reference", "expected"), [1]),
    ],
)
def test_damaged_state_is_refused(path: tuple, value: object) -> None:
    monitor = Monitor(Reference.of(stream(500, 0.1, np.random.default_rng(0))))
    with pytest.raises(InputError):
        Monitor.from_json(damaged(monitor.as_json(), *path, value=value))


def test_anytime_interval_by_hand() -> None:
    # one right label: the mixture is B(3/2, 1/2) / B(1/2, 1/2) = 1/2, so p <= 0.05 / 2 is excluded
    interval = anytime_interval(1, 1)
    assert interval.low == pytest.approx(0.025)
    assert interval.high == 1.0
    assert (anytime_interval(0, 0).low, anytime_interval(0, 0).high) == (0.0, 1.0)


def test_anytime_interval_of_right_and_wrong_mirror_each_other() -> None:
    right = anytime_interval(30, 40)
    wrong = anytime_interval(10, 40)
    assert (1 - right.high, 1 - right.low) == pytest.approx((wrong.low, wrong.high))


def test_anytime_interval_covers_after_every_label() -> None:
    missed = 0
    for seed in range(100):
        right = np.cumsum(np.random.default_rng(seed).random(100) < 0.7)
        intervals = [anytime_interval(int(right[n]), n + 1, level=0.8) for n in range(100)]
        missed += any(not each.low <= 0.7 <= each.high for each in intervals)
    assert missed <= 20


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(InputError, match="right predictions"):
        anytime_interval(3, 2)
