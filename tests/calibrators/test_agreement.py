"""The agreement of two models, and what it says of the first one's accuracy."""

import numpy as np
import pytest

from pseudocal import Calibration, PseudoCal
from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import ReasonCode
from pseudocal.calibrators.agreement import (
    Agreement,
    agreement_of,
    count_agreement,
    count_mistakes,
)
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.trust import UnreliableCalibrationWarning
from pseudocal.distributed import LocalExecutor
from pseudocal.mixup import STRATEGIES

CLASSES, DIM = 8, 16


def models(shared=0.6, own=0.3, sharpness=6.0):
    """Two linear models of one truth, with errors that they share and errors of their own.

    Both are far too sure.
    """
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(DIM, CLASSES))
    wrong = truth + shared * rng.normal(size=truth.shape)
    first, second = (wrong + own * rng.normal(size=truth.shape) for _ in range(2))
    return truth, lambda x: sharpness * (x @ first), lambda x: sharpness * (x @ second)


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).normal(size=(6000, DIM))


def accuracy(truth, model, x):
    return float((model(x).argmax(axis=1) == (x @ truth).argmax(axis=1)).mean())


def test_agreement_estimates_the_accuracy(inputs):
    truth, model, second = models()
    calibration = PseudoCal(estimator="agreement").fit(model, inputs, second_opinion=second)
    estimated_accuracy = calibration.trust.estimated_accuracy
    right = accuracy(truth, model, inputs)
    assert estimated_accuracy.low < right < estimated_accuracy.high
    sure = calibration.probabilities(model(inputs)).max(axis=1).mean()
    assert sure == pytest.approx(estimated_accuracy.value, abs=1e-6)
    assert (
        abs(sure - right) < 0.08 < abs(1 - right)
    )  # the model itself is sure of nearly everything


@pytest.mark.parametrize("own", [0.0, 0.002])
def test_a_second_model_that_is_the_first_says_nothing(inputs, own):
    """Neither the temperature nor the estimate is taken from it, whoever asked for that."""
    truth, model, second = models(own=own)
    alone = PseudoCal().fit(model, inputs)
    for estimator in ("auto", "mixup", "agreement"):
        calibration = PseudoCal(estimator=estimator).fit(model, inputs, second_opinion=second)
        assert calibration.temperature == alone.temperature
        assert calibration.trust.verdict == "caution"
        assert calibration.trust.reasons[0].code == ReasonCode.SECOND_MODEL_TOO_SIMILAR
        assert calibration.trust.estimated_accuracy == alone.trust.estimated_accuracy
        assert (
            calibration.trust.estimated_accuracy.low
            < accuracy(truth, model, inputs)
            < calibration.trust.estimated_accuracy.high
        )


def test_shared_mistakes_are_taken_off():
    """Of 100 inputs 50 are right.

    The second agrees with these and with 20 percent of the mistakes: 60 in all.
    """
    first = np.eye(10)[np.zeros(100, dtype=int)]
    second = np.eye(10)[np.r_[np.zeros(60, dtype=int), np.ones(40, dtype=int)]]
    mistakes = count_mistakes(np.arange(50) % 10, np.arange(50) < 10, classes=10)
    agreement = agreement_of(
        count_agreement(first, second) + mistakes, Labelled(first, first.argmax(axis=1))
    )
    assert agreement.rate == pytest.approx(0.6)
    assert agreement.shared == pytest.approx(0.2, abs=0.01)
    kappa, independent = 0.5, (0.2 + np.sqrt(0.2**2 + 4 * 0.4)) / 2
    assert kappa < agreement.accuracy < 0.6 < independent


def test_the_error_is_that_of_repeated_draws():
    rng = np.random.default_rng(0)
    drawn = [
        Agreement(10, 400, rng.binomial(400, 0.6) / 400, rng.binomial(200, 0.3) / 200, 200.0)
        for _ in range(4000)
    ]
    spread = np.std([agreement.accuracy for agreement in drawn])
    assert Agreement(10, 400, 0.6, 0.3, 200.0).error == pytest.approx(spread, rel=0.05)


def test_a_second_opinion_changes_neither_the_mixup_nor_the_temperature_of_the_paper(inputs):
    _, model, second = models()
    alone, both = (
        PseudoCal(estimator="mixup").fit(model, inputs, second_opinion=second)
        for second in (None, second)
    )
    assert alone.temperature == both.temperature
    assert alone.trust.score is None
    assert both.trust.score is not None
    passes = both.counts["forward_passes"] / alone.counts["forward_passes"]
    assert 1.5 < passes < 3  # once for each real input, three times for each sure mistake


def test_parts_and_workers_agree(inputs):
    _, model, second = models()
    method = PseudoCal(estimator="agreement")
    whole = method.fit(model, inputs, second_opinion=second)
    blocks = method.fit(model, inputs, second_opinion=second, executor=LocalExecutor())
    assert blocks.temperature == pytest.approx(whole.temperature, rel=1e-9)
    assert blocks.trust.verdict == whole.trust.verdict
    assert blocks.trust.evidence == pytest.approx(whole.trust.evidence)


def test_streams_weigh_their_pairs(inputs):
    _, model, second = models()
    batches = [inputs[i : i + 100] for i in range(0, len(inputs), 100)]
    streamed, whole = (
        np.mean(
            [
                PseudoCal(seed=s)
                .fit(model, x, second_opinion=second)
                .trust.estimated_accuracy.value
                for s in range(4)
            ]
        )
        for x in (batches, inputs)
    )
    assert streamed == pytest.approx(whole, abs=0.03)  # of one seed it scatters by 0.015


def test_with_a_second_opinion_and_no_other_option_the_temperature_comes_from_agreement(inputs):
    _, model, second = models()
    default = PseudoCal().fit(model, inputs, second_opinion=second)
    assert default == PseudoCal(estimator="agreement").fit(model, inputs, second_opinion=second)
    assert default.settings["estimator"] == "agreement"
    assert (
        default.temperature
        == default.trust.temperatures["agreement"]
        == default.estimates["agreement"]
    )


def two_classes(x):
    return np.stack([np.zeros(len(x)), 3 * x[:, 0]], axis=1)


@pytest.mark.parametrize(
    ("model", "second", "code"),
    [
        (models()[1], None, ReasonCode.NO_SECOND_OPINION),
        (models()[1], [], ReasonCode.NO_SECOND_OPINION),
        (models()[1], models()[1], ReasonCode.SECOND_MODEL_TOO_SIMILAR),
        (models()[1], [models()[1], models()[1]], ReasonCode.SECOND_MODEL_TOO_SIMILAR),
    ],
)
@pytest.mark.parametrize("estimator", ["auto", "mixup"])
def test_without_a_usable_second_opinion_the_temperature_comes_from_mixup(
    inputs, model, second, code, estimator
):
    found = PseudoCal(estimator=estimator).fit(model, inputs, second_opinion=second)
    assert found.settings["estimator"] == "mixup"
    assert found.temperature == PseudoCal().fit(model, inputs).temperature
    assert list(found.trust.temperatures) == list(found.estimates) == ["mixup"]
    assert found.trust.verdict == "caution"
    assert found.trust.reasons[0].code == code


@pytest.mark.parametrize("estimator", ["auto", "agreement", "mixup"])
def test_a_model_of_two_classes_stays_as_it_is_unless_mixup_is_asked_for(inputs, estimator):

    def second(x):
        return two_classes(x + 0.3)

    found = PseudoCal(estimator=estimator).fit(two_classes, inputs, second_opinion=second)
    codes = [reason.code for reason in found.trust.reasons]
    assert found.trust.verdict == "caution"
    assert list(found.trust.temperatures) == list(found.estimates) == ["mixup"]
    assert ReasonCode.SECOND_MODEL_TWO_CLASSES in codes
    if estimator == "mixup":
        assert found.settings["estimator"] == "mixup"
        assert found.temperature == found.estimates["mixup"] != 1
        assert ReasonCode.MIXUP_TWO_CLASSES in codes
    else:
        assert found.settings["estimator"] == "none"
        assert found.temperature == 1
        assert codes[0] == ReasonCode.TWO_CLASSES


def test_of_several_opinions_those_count_that_are_usable(inputs):
    _, model, second = models()
    one, same_too = (
        PseudoCal().fit(model, inputs, second_opinion=[second, *rest]) for rest in ([], [model])
    )
    assert same_too.temperature == one.temperature
    assert same_too.trust.estimated_accuracy == one.trust.estimated_accuracy


def test_two_opinions_are_averaged(inputs):
    truth, model, second = models()
    rng = np.random.default_rng(7)
    weaker = truth + 0.9 * rng.normal(size=truth.shape)

    def third(x):
        return 6.0 * (x @ weaker)

    alone, other, both = (
        PseudoCal().fit(model, inputs, second_opinion=opinions).trust.estimated_accuracy
        for opinions in (second, [third], [second, third])
    )
    assert both.value == pytest.approx((alone.value + other.value) / 2)
    assert both.high - both.low > alone.high - alone.low


def test_models_that_agree_no_more_than_in_mistakes_leave_the_temperature_finite():
    """Where the agreement on real inputs is that of mistakes, the estimate is near chance and T below its bound."""
    for rate, shared in ((0.0, 0.0), (0.3, 0.5), (0.05, 0.3)):
        accuracy = Agreement(10, 500, rate, shared, 100.0).accuracy
        assert 0.1 < accuracy < 0.2
        fitted = match_confidence(10 * np.eye(10), accuracy)
        assert fitted.bound is None
    for rows in (1, 500):
        assert (
            match_confidence(10 * np.eye(10), Agreement(10, rows, 1.0, 0.0, 100.0).accuracy).bound
            is None
        )


def test_an_underconfident_model_gets_a_temperature_below_one(inputs):
    truth, model, second = models(shared=0.1, own=0.1, sharpness=0.2)
    found = PseudoCal().fit(model, inputs, second_opinion=second)
    right = accuracy(truth, model, inputs)
    before, after = (found.trust.effects[name].confidence for name in ("none", "agreement"))
    assert before < right - 0.3
    assert before < after < right  # nearer, if not near: these two share most of their mistakes
    assert found.temperature < 1
    assert found.trust.verdict == "caution"  # a higher confidence is a risk
    codes = [reason.code for reason in found.trust.reasons]
    assert codes[0] == ReasonCode.MANY_SHARED_ERRORS
    assert ReasonCode.RARELY_UNDERCONFIDENT in codes
    assert ReasonCode.RAISES_CONFIDENCE in codes


def test_epochs_repeat_the_inputs_and_do_not_narrow_the_interval(inputs):
    _, model, second = models()
    once, thrice = (
        PseudoCal(epochs=n).fit(model, inputs[:1000], second_opinion=second).trust for n in (1, 3)
    )
    width = once.estimated_accuracy.high - once.estimated_accuracy.low
    assert thrice.estimated_accuracy.high - thrice.estimated_accuracy.low == pytest.approx(
        width, rel=0.1
    )
    assert thrice.evidence["agreement"] == once.evidence["agreement"]


@pytest.mark.parametrize(
    ("settings", "second", "more", "message"),
    [
        ({"estimator": "agreement"}, None, {}, "expected a second opinion"),
        ({}, lambda x: np.zeros((len(x), 3)), {}, "expected a second opinion on 8 classes, got 3"),
        (
            {},
            lambda x: np.zeros((len(x), 8, 5, 5)),
            {},
            r"expected a second opinion of shape \(100, 8\), as the model",
        ),
        ({}, lambda x: np.full((len(x), 8), np.nan), {}, "NaN"),
        ({}, lambda x: np.zeros((len(x) - 1, 8)), {}, "expected"),
        (
            {},
            models()[2],
            {"strategy": STRATEGIES["Pseudo-Label"]},
            "expected no strategy together with a second opinion",
        ),
    ],
)
def test_what_makes_no_second_opinion(inputs, settings, second, more, message):
    _, model, _ = models()
    with pytest.raises(InputError, match=message):
        PseudoCal(**settings).fit(model, inputs[:200], second_opinion=second, **more)


def test_a_second_model_that_agrees_by_chance_is_not_used(inputs):
    """One of another task, or with its classes in another order."""
    _, model, _ = models()
    other = np.random.default_rng(9).normal(size=(DIM, CLASSES))
    found = PseudoCal().fit(model, inputs, second_opinion=lambda x: 6 * (x @ other))
    assert found.trust.evidence["agreement"] < 1 / CLASSES + 0.05
    assert found.settings["estimator"] == "mixup"
    assert found.trust.verdict == "caution"
    assert found.trust.reasons[0].code == ReasonCode.SECOND_MODEL_UNRELATED


def test_maps_have_no_second_opinion():
    maps = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    with pytest.raises(InputError, match="no second opinion for a segmentation model"):
        PseudoCal().fit(lambda x: x, maps, second_opinion=lambda x: x)


def lost_between(seed):
    """A model that is right on every real input and confident, and knows little of what lies between them."""
    guess = 50 * np.random.default_rng(seed).normal(size=(CLASSES, CLASSES))
    return lambda x: np.where(
        (x == np.round(x)).all(axis=1, keepdims=True), 5 * x, 3 * x + 5 * np.sin(x @ guess)
    )


def test_a_harmful_temperature_is_warned_of_or_replaced():
    inputs = 2 * np.eye(CLASSES)[np.arange(2000) % CLASSES]
    model, second = lost_between(0), lost_between(1)
    with pytest.warns(
        UnreliableCalibrationWarning,
        match="should not be applied: Calibration moves the mean confidence from 100% to 72%",
    ):
        warned = PseudoCal(estimator="mixup").fit(model, inputs, second_opinion=second)
    replaced = PseudoCal(estimator="mixup", on_unreliable="identity").fit(
        model, inputs, second_opinion=second
    )
    assert warned.temperature > 1.5
    assert replaced.temperature == 1.0
    assert replaced.trust == warned.trust
    assert replaced.trust.verdict == "do not apply"


def test_trust_is_saved_with_the_calibration(inputs, tmp_path):
    _, model, second = models()
    calibration = PseudoCal().fit(model, inputs, second_opinion=second)
    calibration.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == calibration


def test_a_second_opinion_costs_one_pass_for_each_input_and_one_for_each_suspect(inputs):
    _, model, second = models()
    passes = []

    def counted(x):
        passes.append(len(x))
        return second(x)

    evidence = PseudoCal().collect(model, inputs, second_opinion=counted)
    suspects = evidence.surrogate_samples.pack()["surrogate_mixup"]
    assert sum(passes) == len(inputs) + len(suspects)
    assert 0 < evidence.opinions[0].mistakes.sum() <= len(suspects)
