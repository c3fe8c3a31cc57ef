"""The verdict on a temperature: when which reason is given, and that it is true then."""

import numpy as np
import pytest

from pseudocal import TemperatureScaling, fit_temperature
from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.agreement import Agreement, Consensus
from pseudocal.calibrators.confidence import match_confidence, mean_confidence
from pseudocal.calibrators.trust import (
    LATER_REASONS,
    Trust,
    estimate_together,
    judge,
    too_close,
)
from pseudocal.calibrators.wording import IMPROVES, OPINIONS
from pseudocal.scaling.temperature import BOUNDS

# of a person's labels (test_labels.py), and of inputs that cannot be mixed (app/cli/test_texts.py)
ELSEWHERE = {
    code
    for code in ReasonCode
    if code.startswith(("labels_", "saved_outputs_"))
    or code.endswith("_not_mixed")
    or code in ("nothing_fitted", "preprocessing_assumed")
}


def rows(confidence=0.999, classes=10, largest=None, n=1000, groups=None):
    """Rows of one confidence.

    Their classes are equally frequent, or one has a fraction of its own.
    """
    gap = np.log(confidence / (1 - confidence) * (classes - 1))
    own = np.arange(n) % classes
    if largest is not None:
        own = np.where(np.arange(n) < largest * n, 0, 1 + np.arange(n) % (classes - 1))
    logits = gap * np.eye(classes)[own]
    return Labelled(logits, own, None, groups)


def surrogate(rate, shared=0.0, classes=10, mistakes=200.0):
    return Agreement(classes, 1000, rate, shared, mistakes, surrogate=True)


def two(rate, shared=0.0, classes=10, mistakes=200.0, confidence=0.999, inputs=1000):
    return Agreement(classes, inputs, rate, shared, mistakes, confidence)


def trust_of(
    real, used="agreement", agreements=(), mixup_samples=4.0, log_se=0.02, confidence=None
):
    """The trust in a temperature.

    That of the mixup samples is given, that of the agreement follows from the agreement.
    """
    found = {"mixup": TemperatureScaling(mixup_samples, log_se=log_se)}
    if used == "none":
        found["none"] = TemperatureScaling(1.0)
    consensus = Consensus.of(agreements, confidence)
    if consensus is not None:
        found[consensus.estimator] = match_confidence(real.logits, consensus.accuracy)
        used = used if used in ("mixup", "none") else consensus.estimator
    return judge(
        real,
        found,
        used if used in found else "mixup",
        mixup_samples=900,
        agreements=agreements,
        consensus=consensus,
    )


def said(code, trust):
    """Whether a reason is given."""
    return code in [reason.code for reason in trust.reasons]


def numbers(code, trust):
    """The numbers of a reason that is given once."""
    [found] = [reason.numbers for reason in trust.reasons if reason.code == code]
    return found


def gap(trust, name):
    """How far the confidence is from the estimate."""
    return abs(trust.effects[name].gap)


def all_wrong():
    """A fit on mixup samples of which none has the class that the model gives it.

    The larger T, the better.
    """
    mixup_samples = rows()
    return fit_temperature(mixup_samples.logits, (mixup_samples.labels + 1) % 10)


IMAGES = np.arange(1000) // 10
CASES = {  # the reason: what is judged, the verdict, and what must be true then
    ReasonCode.TEMPERATURE_AT_BOUND: (
        lambda: judge(rows(), {"mixup": all_wrong()}, "mixup", mixup_samples=1000),
        "do not apply",
        lambda t, n: n["temperature"] == t.temperatures["mixup"] == BOUNDS[1],
    ),
    ReasonCode.EXTREME_TEMPERATURE: (
        lambda: trust_of(
            Labelled(60 * np.eye(10)[np.arange(1000) % 10], np.arange(1000) % 10),
            agreements=[two(0.5)],
        ),
        "caution",
        lambda t, n: n["temperature"] == t.temperatures["agreement"] > 20,
    ),
    ReasonCode.FEW_INPUTS: (
        lambda: trust_of(
            Labelled(20 * np.eye(10)[np.arange(99) % 10], np.arange(99) % 10),
            agreements=[two(0.5)],
        ),
        "caution",
        lambda t, n: n == {"inputs": 99, "enough": 100},
    ),
    ReasonCode.ONE_CLASS: (
        lambda: trust_of(rows(largest=0.97), agreements=[two(0.5)]),
        "do not apply",
        lambda t, n: n == {"classes": 10, "fraction": 0.97},
    ),
    ReasonCode.DOMINANT_CLASS: (
        lambda: trust_of(rows(0.6, largest=0.5), agreements=[two(0.5)]),
        "caution",
        lambda t, n: n == {"classes": 10, "fraction": 0.5},
    ),
    ReasonCode.DOMINANT_PIXEL_CLASS: (
        lambda: trust_of(rows(largest=0.95, groups=IMAGES)),
        "caution",
        lambda t, n: n == {"fraction": 0.95} and t.evidence["largest class"] == 0.95,
    ),
    ReasonCode.NO_SECOND_OPINION: (
        lambda: trust_of(rows()),
        "caution",
        lambda t, n: "agreement" not in t.temperatures,
    ),
    ReasonCode.SEGMENTATION: (
        lambda: trust_of(rows(groups=IMAGES)),
        "caution",
        lambda t, n: "agreement" not in t.temperatures,
    ),
    ReasonCode.SECOND_MODEL_TOO_SIMILAR: (
        lambda: trust_of(rows(), agreements=[two(0.97, shared=0.95)]),
        "caution",
        lambda t, n: n == {"shared": 0.95} and "agreement" not in t.temperatures,
    ),
    ReasonCode.SECOND_MODEL_TWO_CLASSES: (
        lambda: trust_of(rows(0.9, classes=2), agreements=[two(0.9, classes=2)]),
        "caution",
        lambda t, n: (
            n == {"agreement": 0.9, "highest": 0.95}
            and "agreement" not in t.temperatures
            and t.estimated_accuracy.high < 0.97
        ),
    ),
    ReasonCode.SURROGATE_TWO_CLASSES: (
        lambda: trust_of(rows(0.9, classes=2), agreements=[surrogate(0.3, classes=2)]),
        "caution",
        lambda t, n: n == {"agreement": 0.3} and t.estimated_accuracy.high > (1 + 0.3) / 2,
    ),
    ReasonCode.SURROGATE_TOO_SIMILAR: (
        lambda: trust_of(rows(), agreements=[surrogate(0.97, shared=0.95)]),
        "caution",
        lambda t, n: n == {"shared": 0.95} and "surrogate" not in t.temperatures,
    ),
    ReasonCode.SURROGATE_ONLY: (
        lambda: trust_of(rows(), agreements=[surrogate(0.9)]),
        "caution",
        lambda t, n: (
            t.estimated_accuracy.value - t.estimated_accuracy.low
            > t.estimated_accuracy.high - t.estimated_accuracy.value
        ),
    ),
    ReasonCode.SURROGATE_AGREES: (
        lambda: trust_of(rows(), agreements=[surrogate(0.8, shared=0.5)]),
        "caution",
        lambda t, n: (
            t.estimated_accuracy.value == n["accuracy"] == pytest.approx(0.6 - 0.15 * 0.24)
            and "second confidence" not in t.evidence
        ),
    ),
    ReasonCode.SURROGATE_ERRORS_UNKNOWN: (
        lambda: trust_of(rows(), agreements=[surrogate(0.9, shared=0.5, mistakes=0.0)]),
        "caution",
        lambda t, n: n.keys() == {"agreement_low", "agreement_high", "accuracy"},
    ),
    ReasonCode.SURROGATE_AT_CHANCE: (
        lambda: trust_of(rows(), agreements=[surrogate(0.4, shared=0.5)]),
        "caution",
        lambda t, n: (
            "surrogate" not in t.temperatures
            and t.estimated_accuracy.high - t.estimated_accuracy.low > 0.5
        ),
    ),
    ReasonCode.MIXUP_TWO_CLASSES: (
        lambda: trust_of(rows(0.9, classes=2)),
        "caution",
        lambda t, n: set(t.temperatures) == {"mixup"},
    ),
    ReasonCode.TWO_CLASSES: (
        lambda: trust_of(rows(0.9, classes=2), "none"),
        "caution",
        lambda t, n: (
            set(t.temperatures) == {"mixup"}
            and n == {"mixup": 4.0}
            and t.estimated_accuracy.value == t.effects["none"].confidence
        ),
    ),
    ReasonCode.MIXUP_ONLY: (
        lambda: trust_of(rows(), agreements=[two(0.97, shared=0.95), surrogate(0.4, shared=0.5)]),
        "caution",
        lambda t, n: (
            set(t.temperatures) == {"mixup"}
            and t.estimated_accuracy.value == t.effects["mixup"].confidence
        ),
    ),
    ReasonCode.SURROGATE_CONFIRMS: (
        lambda: trust_of(rows(), agreements=[two(0.5), surrogate(0.6)]),
        "apply",
        lambda t, n: (
            "surrogate" not in t.temperatures
            and t.estimated_accuracy.value == n["accuracy"] == pytest.approx(0.5)
            and n["surrogate"] == t.evidence["surrogate accuracy"] < 0.6
        ),
    ),
    ReasonCode.SURROGATE_DIFFERS: (
        lambda: trust_of(rows(0.8), agreements=[two(0.5), surrogate(0.9)]),
        "caution",
        lambda t, n: (
            t.estimated_accuracy.value == n["accuracy"] == pytest.approx((0.5 + n["surrogate"]) / 2)
        ),
    ),
    ReasonCode.MAY_BE_AT_CHANCE: (
        lambda: trust_of(rows(), agreements=[two(0.19)]),
        "apply",
        lambda t, n: t.estimated_accuracy.low <= n["chance"] == 0.1 < t.estimated_accuracy.value,
    ),
    ReasonCode.CONFIDENCE_COUNTS: (
        lambda: trust_of(rows(), agreements=[two(0.5, shared=0.2)], confidence=0.999),
        "apply",
        lambda t, n: (
            t.estimated_accuracy.value == n["accuracy"]
            and n["accuracy"]
            == pytest.approx(
                n["weight"] * n["before"]
                + (1 - n["weight"]) * numbers(ReasonCode.SECOND_MODEL_AGREES, t)["accuracy"]
            )
        ),
    ),
    ReasonCode.SECOND_MODEL_LESS_CONFIDENT: (
        lambda: trust_of(rows(), agreements=[two(0.4, confidence=0.5)]),
        "caution",
        lambda t, n: n == {"second_confidence": 0.5, "before": t.effects["none"].confidence},
    ),
    ReasonCode.SECOND_MODEL_AGREES: (
        lambda: trust_of(rows(), agreements=[two(0.5, shared=0.2)]),
        "apply",
        lambda t, n: (n["agreement_low"], n["shared_high"]) == (0.5, 0.2),
    ),
    ReasonCode.SECOND_MODELS_AGREE: (
        lambda: trust_of(rows(), agreements=[two(0.5), two(0.56)]),
        "apply",
        lambda t, n: (n["models"], n["agreement_low"], n["agreement_high"]) == (2, 0.5, 0.56),
    ),
    ReasonCode.SHARED_ERRORS_UNKNOWN: (
        lambda: trust_of(rows(), agreements=[two(0.9, shared=0.5, mistakes=0.0)]),
        "apply",
        lambda t, n: n.keys() == {"agreement_low", "agreement_high", "accuracy"},
    ),
    ReasonCode.SECOND_MODEL_AT_CHANCE: (
        lambda: trust_of(rows(), agreements=[two(0.4, shared=0.5)]),
        "caution",
        lambda t, n: (
            n["shared_low"] == 0.5
            and 0.1 < t.estimated_accuracy.value == n["accuracy"] < 0.2
            and t.effects["agreement"].confidence == pytest.approx(n["accuracy"])
        ),
    ),
    ReasonCode.SECOND_MODEL_UNRELATED: (
        lambda: trust_of(rows(), agreements=[two(0.11, shared=0.1)]),
        "caution",
        lambda t, n: n == {"agreement": 0.11} and "agreement" not in t.temperatures,
    ),
    ReasonCode.NO_CLEAR_GAIN: (
        lambda: trust_of(rows(0.62), "none", agreements=[two(0.58)]),
        "caution",
        lambda t, n: (
            t.estimated_accuracy.low < 0.62 < t.estimated_accuracy.high
            and n["temperature"] == t.temperatures["agreement"] != 1
        ),
    ),
    ReasonCode.WITHIN_INTERVAL: (
        lambda: trust_of(rows(0.6), agreements=[two(0.5)]),
        "caution",
        lambda t, n: (
            n["before"] == pytest.approx(0.6)
            and (n["low"], n["high"]) == (t.estimated_accuracy.low, t.estimated_accuracy.high)
            and n["low"] < n["before"] < n["high"]
        ),
    ),
    ReasonCode.SMALL_GAP: (
        lambda: trust_of(
            rows(0.64, classes=1000, n=100_000),
            agreements=[two(0.5, classes=1000, mistakes=1e6, inputs=100_000)],
        ),
        "caution",
        lambda t, n: t.estimated_accuracy.high < n["before"] and n["gap"] == gap(t, "none"),
    ),
    ReasonCode.RARELY_UNDERCONFIDENT: (
        lambda: trust_of(rows(0.29), agreements=[two(0.5)]),
        "caution",
        lambda t, n: t.temperatures["agreement"] < 1,
    ),
    ReasonCode.MANY_SHARED_ERRORS: (
        lambda: trust_of(rows(0.9), agreements=[two(0.9, shared=0.6)]),
        "caution",
        lambda t, n: n == {"shared": 0.6},
    ),
    ReasonCode.EXPECTED_GAIN: (
        lambda: trust_of(rows(0.6), agreements=[two(0.5)]),
        "caution",
        lambda t, n: n == {"fell": 6.0},
    ),
    ReasonCode.LOWERS_CONFIDENCE: (
        lambda: trust_of(rows(), agreements=[two(0.5)]),
        "apply",
        lambda t, n: n["temperature"] == t.temperatures["agreement"] > 1,
    ),
    ReasonCode.RAISES_CONFIDENCE: (
        lambda: trust_of(rows(0.3), agreements=[two(0.95, confidence=0.3)], mixup_samples=0.4),
        "caution",
        lambda t, n: t.temperatures["agreement"] < 1 and t.effects["agreement"].confidence > 0.9,
    ),
    ReasonCode.MIXUP_AGREES: (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=1.2, log_se=0.05),
        "apply",
        lambda t, n: t.temperatures["agreement"] > 1 and np.log(t.temperatures["mixup"]) > 2 * 0.05,
    ),
    ReasonCode.MIXUP_UNDECIDED: (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=1.01, log_se=0.05),
        "apply",
        lambda t, n: abs(np.log(t.temperatures["mixup"])) < 0.05,
    ),
    ReasonCode.MIXUP_DISAGREES: (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=0.8, log_se=0.05),
        "apply",
        lambda t, n: (
            t.temperatures["agreement"] > 1 and np.log(t.temperatures["mixup"]) < -2 * 0.05
        ),
    ),
    ReasonCode.CLOSER: (
        lambda: trust_of(rows(), "mixup", [two(0.5)], mixup_samples=4.0),
        "apply",
        lambda t, n: gap(t, "mixup") < 0.1 < gap(t, "none"),
    ),
    ReasonCode.CLOSER_BUT_HIGH: (
        lambda: trust_of(rows(), "mixup", [two(0.3)], mixup_samples=3.5),
        "caution",
        lambda t, n: n["gap"] == t.effects["mixup"].gap > 0.1 and gap(t, "mixup") < gap(t, "none"),
    ),
    ReasonCode.CLOSER_BUT_LOW: (
        lambda: trust_of(rows(0.2), "mixup", [two(0.95, confidence=0.2)], mixup_samples=0.4),
        "caution",
        lambda t, n: n["gap"] == t.effects["mixup"].gap < -0.1 and gap(t, "mixup") < gap(t, "none"),
    ),
    ReasonCode.EITHER_MAY_BE_CLOSER: (
        lambda: trust_of(rows(0.8), "mixup", [two(0.65)], mixup_samples=1.6),
        "caution",
        lambda t, n: (
            t.estimated_accuracy.low
            < (t.effects["none"].confidence + t.effects["mixup"].confidence) / 2
            < t.estimated_accuracy.high
        ),
    ),
    ReasonCode.FURTHER: (
        lambda: trust_of(rows(), "mixup", [two(0.98)]),
        "do not apply",
        lambda t, n: gap(t, "mixup") > gap(t, "none"),
    ),
    ReasonCode.AGREEMENT_IS_CLOSER: (
        lambda: trust_of(rows(), "mixup", [two(0.98)]),
        "do not apply",
        lambda t, n: (
            n["temperature"] == t.temperatures["agreement"]
            and gap(t, "agreement") < gap(t, "mixup")
        ),
    ),
    ReasonCode.SURROGATE_IS_CLOSER: (
        lambda: trust_of(rows(), "mixup", [surrogate(0.999)], mixup_samples=6.0),
        "do not apply",
        lambda t, n: n["temperature"] == t.temperatures["surrogate"],
    ),
}


def test_each_reason_has_a_case():
    assert CASES.keys() | ELSEWHERE == set(ReasonCode)


@pytest.mark.parametrize("code", CASES)
def test_each_reason_is_given_where_it_is_true(code):
    make, verdict, true = CASES[code]
    trust = make()
    assert trust.verdict == verdict
    assert true(trust, numbers(code, trust))
    assert (
        trust.estimated_accuracy.low
        <= trust.estimated_accuracy.value
        <= trust.estimated_accuracy.high
    )


@pytest.mark.parametrize(
    ("height", "verdict"), [(40.0, "apply"), (60.0, "caution"), (0.05, "caution")]
)
def test_an_extreme_temperature_is_never_applied(height, verdict):
    """Whatever the agreement says; the reason comes first."""
    own = np.arange(1000) % 10
    rate = 0.5 if height > 1 else 0.97
    trust = trust_of(Labelled(height * np.eye(10)[own], own), agreements=[two(rate)])
    assert trust.verdict == verdict
    assert (trust.reasons[0].code == ReasonCode.EXTREME_TEMPERATURE) == (verdict == "caution")


@pytest.mark.parametrize(("inputs", "verdict"), [(99, "caution"), (100, "apply")])
def test_a_few_inputs_are_never_enough_to_apply_a_temperature(inputs, verdict):
    own = np.arange(inputs) % 10
    real = Labelled(20 * np.eye(10)[own], own)
    trust = trust_of(real, agreements=[two(0.5)])
    assert trust.verdict == verdict
    alone = trust_of(real, "mixup")
    assert alone.verdict == "caution"
    for each in (trust, alone):
        assert (each.reasons[0].code == ReasonCode.FEW_INPUTS) == (inputs < 100)


def test_a_temperature_that_leaves_the_confidence_far_off_is_never_applied():
    for rate in np.arange(0.2, 1.0, 0.05):
        for mixup_samples in (0.5, 1.5, 3.0, 4.0, 6.0, 10.0):
            trust = trust_of(rows(), "mixup", [two(rate)], mixup_samples=mixup_samples)
            assert trust.verdict != "apply" or gap(trust, "mixup") <= 0.1


def test_a_surrogate_alone_is_never_enough_to_apply():
    """Whatever it says, of whatever temperature."""
    found = set()
    for rate in np.arange(0.2, 1.0, 0.1):
        for mixup_samples in (0.5, 1.5, 4.0):
            for used, confidence in (
                ("mixup", 0.999),
                ("surrogate", 0.999),
                ("mixup", 0.3),
                ("surrogate", 0.3),
            ):
                opinion = surrogate(rate, shared=0.3)
                trust = trust_of(rows(confidence), used, [opinion], mixup_samples=mixup_samples)
                found.add(trust.verdict)
                assert said(ReasonCode.SURROGATE_AT_CHANCE, trust) == opinion.at_chance
                assert said(ReasonCode.SURROGATE_ONLY, trust) != opinion.at_chance
    assert found == {"caution", "do not apply"}


def test_a_surrogate_beside_a_model_counts_where_they_differ_much():
    """The interval widens with the difference; a surrogate at chance counts too."""
    alone, near, far = (
        trust_of(rows(), agreements=[two(0.6), *more])
        for more in ([], [surrogate(0.5)], [surrogate(0.05)])
    )
    assert near.estimated_accuracy.value == alone.estimated_accuracy.value
    assert near.verdict == alone.verdict == "apply"
    assert far.estimated_accuracy.value < alone.estimated_accuracy.value - 0.2
    widths = [t.estimated_accuracy.high - t.estimated_accuracy.low for t in (alone, near)]
    assert widths[0] < widths[1]


def test_with_two_classes_nothing_follows_from_a_surrogate_beside_a_model():
    model = two(0.96, classes=2)
    alone, both = (
        trust_of(rows(0.97, classes=2), agreements=[model, *more])
        for more in ([], [surrogate(0.46, classes=2)])
    )
    assert (both.estimated_accuracy, both.verdict, both.reasons[0]) == (
        alone.estimated_accuracy,
        alone.verdict,
        alone.reasons[0],
    )
    assert both.reasons[0] == Reason(
        ReasonCode.SECOND_MODEL_TWO_CLASSES, {"agreement": 0.96, "highest": 0.98}
    )
    assert both.reasons[1] == Reason(ReasonCode.SURROGATE_TWO_CLASSES, {"agreement": 0.46})


@pytest.mark.parametrize(
    ("confidence", "verdict", "fell"),
    [
        (0.9, "apply", 8),
        (0.66, "apply", 8),
        (0.64, "caution", 6),
        (0.56, "caution", None),
        (0.5, "caution", None),
        (0.31, "caution", None),
        (0.29, "caution", 6),
    ],
)
def test_how_far_the_confidence_moves_decides(confidence, verdict, fell):
    """The estimate is 50%; the risk is stated in numbers, unless nothing should be applied."""
    trust = trust_of(rows(confidence), agreements=[two(0.5)], mixup_samples=0.8)
    assert trust.verdict == verdict
    risks = [r.numbers["fell"] for r in trust.reasons if r.code == ReasonCode.EXPECTED_GAIN]
    assert risks == ([] if fell is None else [fell])


@pytest.mark.parametrize(
    ("confidence", "agreements", "cause"),
    [
        (0.6, [two(0.5)], ReasonCode.WITHIN_INTERVAL),
        (0.29, [two(0.5)], ReasonCode.RARELY_UNDERCONFIDENT),
        (0.9, [two(0.9, shared=0.6)], ReasonCode.MANY_SHARED_ERRORS),
        (0.8, [two(0.5), surrogate(0.9)], ReasonCode.SURROGATE_DIFFERS),
        (0.6, [surrogate(0.5)], ReasonCode.SURROGATE_ONLY),
        (0.6, [], ReasonCode.NO_SECOND_OPINION),
        (0.8, [two(0.7, confidence=0.5)], ReasonCode.SECOND_MODEL_LESS_CONFIDENT),
    ],
)
def test_the_cause_of_caution_comes_first_and_the_risk_before_what_was_found(
    confidence, agreements, cause
):
    trust = trust_of(rows(confidence), agreements=agreements)
    codes = [reason.code for reason in trust.reasons]
    assert (trust.verdict, codes[0]) == ("caution", cause)
    if ReasonCode.EXPECTED_GAIN in codes:
        risk = codes.index(ReasonCode.EXPECTED_GAIN)
        assert not {*codes[:risk]} & {*OPINIONS, *IMPROVES}
        assert {*codes[risk + 1 :]} <= {*LATER_REASONS[-1]}


def test_models_that_agree_on_nearly_all_inputs_may_raise_the_confidence():
    assert not too_close(Consensus((two(0.95),)), 0.85)
    assert too_close(Consensus((two(0.8),)), 0.65)


def test_the_interval_widens_below_where_one_class_has_many_predictions():
    agreement = two(0.6)
    plain, dominated = (
        estimate_together(Consensus((agreement,), dominance=dominance)) for dominance in (0.0, 0.4)
    )
    assert plain.high == dominated.high
    assert dominated.low < plain.low - 0.2


def test_there_is_no_cliff_at_a_number_of_mixup():
    """Fewer mixup samples have a larger error, and the doubt grows with it by and by."""
    scores = [
        trust_of(rows(), agreements=[two(0.5)], mixup_samples=1.1, log_se=1.04 / np.sqrt(n)).score
        for n in (2000, 500, 499, 20)
    ]
    assert scores == sorted(scores)
    assert scores[2] - scores[1] < 0.001 < scores[3] - scores[2]


@pytest.mark.parametrize(
    ("classes", "largest", "verdict"),
    [
        (2, 0.5, "caution"),
        (2, 0.7, "caution"),
        (2, 0.96, "do not apply"),
        (10, 0.3, "apply"),
        (10, 0.4, "apply"),
    ],
)
def test_how_much_of_one_class_is_too_much_depends_on_their_number(classes, largest, verdict):
    rate = 0.5 if classes > 2 else 0.9
    trust = trust_of(
        rows(0.95, classes=classes, largest=largest), agreements=[two(rate, classes=classes)]
    )
    # a lower accuracy would move the confidence the same way
    assert trust.verdict == verdict
    warned = said(ReasonCode.DOMINANT_CLASS, trust) or said(ReasonCode.ONE_CLASS, trust)
    assert warned == (largest > 1 / classes + 0.25)


def test_two_classes_bound_the_accuracy():
    """They disagree on 20%.

    Two models that are equally good are right on 90% at most, or on less.
    """
    real, agreements = rows(0.8, classes=2), [two(0.8, classes=2, inputs=10**6)]
    trust = trust_of(real, agreements=agreements, mixup_samples=0.2)
    assert mean_confidence(real, 0.2) > 0.99
    assert trust.estimated_accuracy.value == pytest.approx(0.9, abs=0.001)
    assert trust.estimated_accuracy.high == pytest.approx(0.9, abs=0.001)
    assert trust.estimated_accuracy.low < 0.5
    assert "shared mistakes" not in trust.evidence
    assert trust.score is None


def test_the_spread_of_several_opinions_widens_the_interval():
    one, alike, apart = (
        trust_of(rows(), agreements=opinions).estimated_accuracy
        for opinions in ([two(0.5)], [two(0.5), two(0.5)], [two(0.3), two(0.7)])
    )
    assert alike == one
    assert apart.high - apart.low > 1.3 * (one.high - one.low)


def test_what_each_temperature_would_do():
    trust = trust_of(rows(), agreements=[two(0.5)])
    assert list(trust.effects) == ["none", "mixup", "agreement"]
    assert trust.temperatures == {"mixup": 4.0, "agreement": trust.effects["agreement"].temperature}
    assert trust.effects["none"].confidence == pytest.approx(0.999)
    assert trust.effects["agreement"].gap == pytest.approx(0, abs=1e-6)
    assert Trust.from_dict(trust.to_dict()) == trust


@pytest.mark.parametrize(
    "content",
    [[], {"verdict": "trust me"}, {"verdict": "apply", "reasons": 3}],
)
def test_a_record_of_trust_from_elsewhere_is_checked(content):
    with pytest.raises(InputError, match="expected a record of trust"):
        Trust.from_dict(content)
