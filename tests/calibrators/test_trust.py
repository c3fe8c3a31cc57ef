"""The verdict on a temperature: when which sentence is said, and that it is true then."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pseudocal import TemperatureScaling, fit_temperature
from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import reasons
from pseudocal.calibrators.agreement import Agreement
from pseudocal.calibrators.confidence import match_confidence, mean_confidence
from pseudocal.calibrators.consensus import consensus_of
from pseudocal.calibrators.trust import Trust, judge
from pseudocal.scaling.temperature import BOUNDS

SENTENCES = {
    name: text for name, text in vars(reasons).items() if name.isupper() and isinstance(text, str)
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


def two(rate, shared=0.0, classes=10, mistakes=200.0, sure=0.999, inputs=1000):
    return Agreement(classes, inputs, rate, shared, mistakes, sure)


def trust_of(real, used="agreement", agreements=(), mixup_samples=4.0, log_se=0.02):
    """The trust in a temperature.

    That of the mixup samples is given, that of the agreement follows from the agreement.
    """
    found, consensus = (
        {"mixup": TemperatureScaling(mixup_samples, log_se=log_se)},
        consensus_of(agreements),
    )
    if consensus is not None:
        found[consensus.estimator] = match_confidence(real.logits, consensus.accuracy)
        used = used if used == "mixup" else consensus.estimator
    return judge(
        real, found, used if used in found else "mixup", mixup_samples=900, agreements=agreements
    )


def said(name, trust):
    """Whether a sentence is said, with whatever numbers."""
    pattern = re.sub(r"\\\{.*?\\\}", ".*", re.escape(SENTENCES[name]))
    return re.search(pattern, " ".join(trust.reasons)) is not None


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
CASES = {  # the sentence: what is judged, the verdict, and what must be true then
    "BOUND": (
        lambda: judge(rows(), {"mixup": all_wrong()}, "mixup", mixup_samples=1000),
        "do not apply",
        lambda t: t.temperatures["mixup"] == BOUNDS[1] and "the upper end" in t.reasons[0],
    ),
    "ONE_CLASS": (
        lambda: trust_of(rows(largest=0.97), agreements=[two(0.5)]),
        "do not apply",
        lambda t: (
            t.evidence["largest class"] == 0.97 and "One of 10 classes takes 97%" in t.reasons[0]
        ),
    ),
    "MUCH_OF_ONE_CLASS": (
        lambda: trust_of(rows(largest=0.5), agreements=[two(0.5)]),
        "caution",
        lambda t: (
            t.evidence["largest class"] == 0.5 and "One of 10 classes takes 50%" in t.reasons[0]
        ),
    ),
    "MOSTLY_ONE_CLASS": (
        lambda: trust_of(rows(largest=0.95, groups=IMAGES)),
        "caution",
        lambda t: (
            t.evidence["largest class"] == 0.95
            and "One class takes 95% of all pixels" in t.reasons[0]
        ),
    ),
    "ALONE": (lambda: trust_of(rows()), "caution", lambda t: "agreement" not in t.temperatures),
    "PIXELS": (
        lambda: trust_of(rows(groups=IMAGES)),
        "caution",
        lambda t: "agreement" not in t.temperatures,
    ),
    "SAME_MODEL": (
        lambda: trust_of(rows(), agreements=[two(0.97, shared=0.95)]),
        "caution",
        lambda t: "agreement" not in t.temperatures and t.evidence["shared mistakes"] == 0.95,
    ),
    "TWO_CLASSES": (
        lambda: trust_of(rows(0.9, classes=2), agreements=[two(0.9, classes=2)]),
        "caution",
        lambda t: "agreement" not in t.temperatures and t.estimated_accuracy.high < 0.97,
    ),
    "SURROGATE_TWO_CLASSES": (
        lambda: trust_of(rows(0.9, classes=2), agreements=[surrogate(0.3, classes=2)]),
        "caution",
        lambda t: "surrogate" not in t.temperatures and t.estimated_accuracy.high > (1 + 0.3) / 2,
    ),
    "SAME_SURROGATE": (
        lambda: trust_of(rows(), agreements=[surrogate(0.97, shared=0.95)]),
        "caution",
        lambda t: "surrogate" not in t.temperatures and t.evidence["shared mistakes"] == 0.95,
    ),
    "BLIND_SURROGATE": (
        lambda: trust_of(rows(), agreements=[surrogate(0.9)]),
        "caution",
        lambda t: (
            t.estimated_accuracy.accuracy - t.estimated_accuracy.low
            > t.estimated_accuracy.high - t.estimated_accuracy.accuracy
        ),
    ),
    "SURROGATE_OPINION": (
        lambda: trust_of(rows(), agreements=[surrogate(0.8, shared=0.5)]),
        "caution",
        lambda t: (
            t.estimated_accuracy.accuracy == pytest.approx(0.6 - 0.15 * 0.24)
            and "second confidence" not in t.evidence
        ),
    ),
    "SURROGATE_NO_MISTAKES": (
        lambda: trust_of(rows(), agreements=[surrogate(0.9, shared=0.5, mistakes=0.0)]),
        "caution",
        lambda t: "mistakes on mixup samples" not in t.reasons[0],
    ),
    "SURROGATE_AT_CHANCE": (
        lambda: trust_of(rows(), agreements=[surrogate(0.4, shared=0.5)]),
        "caution",
        lambda t: (
            "surrogate" not in t.temperatures
            and t.estimated_accuracy.high - t.estimated_accuracy.low > 0.5
        ),
    ),
    "MIXUP_OF_TWO": (
        lambda: trust_of(rows(0.9, classes=2)),
        "caution",
        lambda t: set(t.temperatures) == {"mixup"},
    ),
    "FROM_MIXUP": (
        lambda: trust_of(rows(), agreements=[two(0.97, shared=0.95), surrogate(0.4, shared=0.5)]),
        "caution",
        lambda t: (
            set(t.temperatures) == {"mixup"}
            and t.estimated_accuracy.accuracy == t.effects["mixup"].confidence
        ),
    ),
    "UNUSED_SURROGATE": (
        lambda: trust_of(rows(), agreements=[two(0.5), surrogate(0.9)]),
        "apply",
        lambda t: "surrogate" not in t.temperatures and t.estimated_accuracy.accuracy < 0.6,
    ),
    "UNSURE": (
        lambda: trust_of(rows(), agreements=[two(0.4, sure=0.5)]),
        "caution",
        lambda t: t.evidence["second confidence"] == 0.5,
    ),
    "ONE_OPINION": (
        lambda: trust_of(rows(), agreements=[two(0.5, shared=0.2)]),
        "apply",
        lambda t: (t.evidence["agreement"], t.evidence["shared mistakes"]) == (0.5, 0.2),
    ),
    "OPINIONS": (
        lambda: trust_of(rows(), agreements=[two(0.5), two(0.56)]),
        "apply",
        lambda t: "2 other models agree with it on 50% to 56%" in t.reasons[0],
    ),
    "NO_MISTAKES": (
        lambda: trust_of(rows(), agreements=[two(0.9, shared=0.5, mistakes=0.0)]),
        "caution",
        lambda t: "% of the first" not in t.reasons[0],
    ),
    "AT_CHANCE": (
        lambda: trust_of(rows(), agreements=[two(0.4, shared=0.5)]),
        "do not apply",
        lambda t: 0.1 < t.estimated_accuracy.accuracy < 0.2,
    ),
    "TOO_NEAR": (
        lambda: trust_of(rows(0.62), agreements=[two(0.58)]),
        "caution",
        lambda t: t.estimated_accuracy.low < 0.62 < t.estimated_accuracy.high,
    ),
    "LOWERED": (
        lambda: trust_of(rows(), agreements=[two(0.5)]),
        "apply",
        lambda t: t.temperatures["agreement"] > 1,
    ),
    "RAISED": (
        lambda: trust_of(rows(0.3), agreements=[two(0.95, sure=0.3)], mixup_samples=0.4),
        "apply",
        lambda t: t.temperatures["agreement"] < 1 and t.effects["agreement"].confidence > 0.9,
    ),
    "BACKED": (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=1.2, log_se=0.05),
        "apply",
        lambda t: t.temperatures["agreement"] > 1 and np.log(t.temperatures["mixup"]) > 2 * 0.05,
    ),
    "UNDECIDED": (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=1.01, log_se=0.05),
        "caution",
        lambda t: abs(np.log(t.temperatures["mixup"])) < 0.05,
    ),
    "CONTRADICTED": (
        lambda: trust_of(rows(), agreements=[two(0.5)], mixup_samples=0.8, log_se=0.05),
        "caution",
        lambda t: t.temperatures["agreement"] > 1 and np.log(t.temperatures["mixup"]) < -2 * 0.05,
    ),
    "NEARER": (
        lambda: trust_of(rows(), "mixup", [two(0.5)], mixup_samples=4.0),
        "apply",
        lambda t: gap(t, "mixup") < 0.1 < gap(t, "none"),
    ),
    "STILL_HIGH": (
        lambda: trust_of(rows(), "mixup", [two(0.3)], mixup_samples=3.5),
        "caution",
        lambda t: t.effects["mixup"].gap > 0.1 and gap(t, "mixup") < gap(t, "none"),
    ),
    "STILL_LOW": (
        lambda: trust_of(rows(0.2), "mixup", [two(0.95, sure=0.2)], mixup_samples=0.4),
        "caution",
        lambda t: t.effects["mixup"].gap < -0.1 and gap(t, "mixup") < gap(t, "none"),
    ),
    "NO_TELLING": (
        lambda: trust_of(rows(0.8), "mixup", [two(0.65)], mixup_samples=1.6),
        "caution",
        lambda t: (
            t.estimated_accuracy.low
            < (t.effects["none"].confidence + t.effects["mixup"].confidence) / 2
            < t.estimated_accuracy.high
        ),
    ),
    "FURTHER": (
        lambda: trust_of(rows(), "mixup", [two(0.98)]),
        "do not apply",
        lambda t: gap(t, "mixup") > gap(t, "none"),
    ),
    "OTHER_TEMPERATURE": (
        lambda: trust_of(rows(), "mixup", [two(0.98)]),
        "do not apply",
        lambda t: gap(t, "agreement") < gap(t, "mixup"),
    ),
}


def test_each_sentence_has_a_case():
    assert CASES.keys() == SENTENCES.keys()


@pytest.mark.parametrize("name", CASES)
def test_each_sentence_is_said_where_it_is_true(name):
    make, verdict, true = CASES[name]
    trust = make()
    assert said(name, trust), trust.reasons
    assert trust.verdict == verdict
    assert true(trust)
    assert (
        trust.estimated_accuracy.low
        <= trust.estimated_accuracy.accuracy
        <= trust.estimated_accuracy.high
    )
    assert "{" not in " ".join(trust.reasons)


def test_a_temperature_that_leaves_the_confidence_far_off_is_never_applied():
    for rate in np.arange(0.2, 1.0, 0.05):
        for mixup_samples in (0.5, 1.5, 3.0, 4.0, 6.0, 10.0):
            trust = trust_of(rows(), "mixup", [two(rate)], mixup_samples=mixup_samples)
            assert trust.verdict != "apply" or gap(trust, "mixup") <= 0.1


def test_a_surrogate_alone_is_never_enough_to_apply():
    """Whatever it says, of whatever temperature; beside a model that is one, it changes nothing."""
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
                assert said(
                    "SURROGATE_AT_CHANCE" if opinion.at_chance else "BLIND_SURROGATE", trust
                )
    assert found == {"caution", "do not apply"}
    both, alone = (
        trust_of(rows(), agreements=[two(0.5), *more]) for more in ([surrogate(0.9)], [])
    )
    assert both == replace(alone, reasons=(*alone.reasons, reasons.UNUSED_SURROGATE))
    assert both.verdict == "apply"


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
    assert "nothing follows from its agreement (46%)" in both.reasons[1]
    assert "agree on 96% of the inputs, so the first is right on at most 98%" in both.reasons[0]


def test_an_agreement_is_not_its_own_judge():
    """The same estimate and temperature, and the mixup samples decide whether that is enough."""
    by_mixup = {
        t: trust_of(rows(), agreements=[two(0.5)], mixup_samples=t).verdict for t in (0.5, 1.0, 2.0)
    }
    assert by_mixup == {0.5: "caution", 1.0: "caution", 2.0: "apply"}


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
        (10, 0.4, "caution"),
    ],
)
def test_how_much_of_one_class_is_too_much_depends_on_their_number(classes, largest, verdict):
    rate = 0.5 if classes > 2 else 0.9
    trust = trust_of(
        rows(0.95, classes=classes, largest=largest), agreements=[two(rate, classes=classes)]
    )
    assert trust.verdict == verdict
    warned = said("MUCH_OF_ONE_CLASS", trust) or said("ONE_CLASS", trust)
    assert warned == (largest > 1 / classes + 0.25)


def test_two_classes_bound_the_accuracy():
    """They disagree on 20%.

    Two models that are equally good are right on 90% at most, or on less.
    """
    real, agreements = rows(0.8, classes=2), [two(0.8, classes=2, inputs=10**6)]
    trust = trust_of(real, agreements=agreements, mixup_samples=0.2)
    assert mean_confidence(real, 0.2) > 0.99
    assert trust.estimated_accuracy.accuracy == pytest.approx(0.9, abs=0.001)
    assert trust.estimated_accuracy.high == pytest.approx(0.9, abs=0.001)
    assert trust.estimated_accuracy.low < 0.5
    assert "shared mistakes" not in trust.evidence
    assert trust.score is None


def test_the_spread_of_several_opinions_widens_the_interval():
    one, alike, with_different_classes = (
        trust_of(rows(), agreements=opinions).estimated_accuracy
        for opinions in ([two(0.5)], [two(0.5), two(0.5)], [two(0.3), two(0.7)])
    )
    assert alike == one
    assert with_different_classes.high - with_different_classes.low > 1.3 * (one.high - one.low)


def test_what_each_temperature_would_do():
    trust = trust_of(rows(), agreements=[two(0.5)])
    assert list(trust.effects) == ["none", "mixup", "agreement"]
    assert trust.temperatures == {"mixup": 4.0, "agreement": trust.effects["agreement"].temperature}
    assert trust.effects["none"].confidence == pytest.approx(0.999)
    assert trust.effects["agreement"].gap == pytest.approx(0, abs=1e-6)
    assert Trust.from_dict(trust.to_dict()) == trust


@pytest.mark.parametrize(
    "content", [[], {"verdict": "trust me"}, {"verdict": "apply", "reasons": 3}]
)
def test_a_record_of_trust_from_elsewhere_is_checked(content):
    with pytest.raises(InputError, match="expected a record of trust"):
        Trust.from_dict(content)
