"""Properties of the calibrators one by one: known truths, equivalences, edges."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pseudocal import fit_temperature, softmax
from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import (
    atc,
    atc_accuracy,
    cpcs,
    doc,
    doc_accuracy,
    ensemble,
    match_confidence,
    matrixscal,
    oracle,
    tempscal,
    transcal,
    vectorscal,
)
from pseudocal.calibrators.baselines.importance import controlled
from pseudocal.calibrators.confidence import confidences
from pseudocal.metrics import Outcomes, ece


@pytest.fixture(scope="module")
def pair():
    """A source and a target that one temperature, 2.5, calibrates, though the target is harder."""

    def domain(scale, seed):
        rng = np.random.default_rng(seed)
        z = scale * rng.standard_normal((8000, 5))
        return Labelled(2.5 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))

    return domain(3.0, 0), domain(1.5, 1)


def test_where_one_temperature_fits_all_find_it(pair):
    source, target = pair
    weights = np.ones(len(source))
    assert tempscal(source).temperature == pytest.approx(2.5, rel=0.03)
    assert cpcs(source, weights).temperature == pytest.approx(2.5, rel=0.03)
    assert doc(source, target.logits).temperature == pytest.approx(2.5, rel=0.03)
    for by in ("nll", "ece"):
        assert oracle(target.logits, target.labels, by=by).temperature == pytest.approx(
            2.5, rel=0.05
        )


def test_estimates_of_the_accuracy(pair):
    source, target = pair
    truth = (target.logits.argmax(axis=1) == target.labels).mean()
    assert doc_accuracy(source, target.logits) == pytest.approx(truth, abs=0.02)
    own = (source.logits.argmax(axis=1) == source.labels).mean()
    assert doc_accuracy(source, source.logits) == pytest.approx(own)
    assert atc_accuracy(source, source.logits) == pytest.approx(own, abs=1e-3)


def test_atc_takes_a_harder_target_for_harder_than_it_is(pair):
    """By its rule no row below the threshold is right.

    A calibrated model is right there now and then.
    """
    source, target = pair
    truth = (target.logits.argmax(axis=1) == target.labels).mean()
    assert atc_accuracy(source, target.logits) < truth - 0.1
    assert atc(source, target.logits).temperature > 4
    assert atc(source, source.logits).temperature == pytest.approx(2.5, rel=0.03)


@pytest.mark.parametrize("accuracy", [0.3, 0.6, 0.99])
def test_matched_confidence_is_the_accuracy(accuracy, pair):
    scaling = match_confidence(pair[1].logits, accuracy)
    assert confidences(pair[1].logits, scaling.temperature).mean() == pytest.approx(accuracy)
    np.testing.assert_allclose(
        confidences(pair[1].logits, scaling.temperature),
        softmax(pair[1].logits / scaling.temperature).max(axis=1),
    )


@pytest.mark.parametrize(("accuracy", "bound"), [(1.2, "lower"), (0.1, "upper"), (-3.0, "upper")])
def test_accuracies_that_no_temperature_reaches(accuracy, bound, pair):
    assert match_confidence(pair[1].logits, accuracy).bound == bound


def test_a_source_that_is_never_right():
    wrong = Labelled(np.array([[2.0, 0.0]] * 4), np.array([1, 1, 1, 1]))
    assert atc_accuracy(wrong, wrong.logits) == 0
    assert transcal(wrong, np.ones(4), wrong.logits).bound == "upper"


def test_a_source_that_is_always_right():
    right = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 0]))
    assert transcal(right, [1.0, 2.0, 3.0, 4.0], right.logits).bound == "lower"


class TestCPCS:
    def test_equal_weights_count_for_nothing(self, pair):
        source = pair[0]
        assert (
            cpcs(source, np.ones(len(source))).temperature
            == cpcs(source, np.full(len(source), 7.0)).temperature
        )

    def test_a_weight_of_two_is_a_row_twice(self):
        rng = np.random.default_rng(0)
        z, y = 3 * rng.standard_normal((50, 3)), rng.integers(0, 3, 50)
        twice = np.arange(50) % 2 + 1
        repeated = Labelled(np.repeat(z, twice, axis=0), np.repeat(y, twice))
        weighted, plain = cpcs(Labelled(z, y), twice), cpcs(repeated, np.ones(len(repeated)))
        assert weighted.temperature == pytest.approx(plain.temperature, rel=1e-4)

    def test_weights_are_checked(self, pair):
        with pytest.raises(InputError, match="expected weights of shape"):
            cpcs(pair[0], np.ones(3))


class TestTransCal:
    def test_temperatures_below_one(self):
        """A model that is too unsure: the release stops at 1."""
        rng = np.random.default_rng(0)
        z = 3 * rng.standard_normal((5000, 4))
        timid = Labelled(0.4 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))
        weights = np.exp(0.1 * rng.standard_normal(5000))
        assert transcal(timid, weights, timid.logits).temperature == pytest.approx(0.4, rel=0.05)
        assert transcal(timid, weights, timid.logits, reference=True).temperature == pytest.approx(
            1
        )

    def test_the_released_search_depends_on_its_start(self):
        """Every exponent solves the equation with its own temperature."""
        rng = np.random.default_rng(0)
        z = 3 * rng.standard_normal((500, 4))
        source = Labelled(2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))
        weights = np.exp(rng.standard_normal(500))
        found = {
            start: transcal(source, weights, source.logits, reference=True, start=start)
            for start in (1.2, 2.0, 8.0)
        }
        default = transcal(source, weights, source.logits, reference=True)
        assert found[2.0].temperature == default.temperature
        assert abs(found[1.2].temperature - found[8.0].temperature) > 0.01
        assert found[8.0].settings["start"] == 8.0
        with pytest.raises(InputError, match=r"expected a start of at least 1, got 0\.5"):
            transcal(source, weights, source.logits, start=0.5)

    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("variance", [True, False])
    def test_equal_weights(self, pair, bias, variance):
        """No variance in the weights: the release divides by it."""
        source = pair[0]
        calibration = transcal(
            source, np.ones(len(source)), source.logits, bias=bias, variance=variance
        )
        assert calibration.temperature == pytest.approx(2.5, rel=0.05)

    def test_an_exponent_of_zero_is_equal_weights(self, pair):
        source, target = pair
        weights = np.random.default_rng(0).random(len(source))
        zero = transcal(source, weights, target.logits, exponent=0.0)
        assert zero.temperature == transcal(source, np.ones(len(source)), target.logits).temperature

    def test_without_the_bias_term_the_exponent_is_one(self, pair):
        source, target = pair
        weights = np.random.default_rng(0).random(len(source)) + 0.5
        plain, one = (
            transcal(source, weights, target.logits, bias=bias, exponent=exponent)
            for bias, exponent in ((False, 0.3), (True, 1.0))
        )
        assert plain.temperature == one.temperature

    def test_control_variates_keep_the_mean_and_cut_the_variance(self):
        """Estimates of E[w r] = 1 from small samples.

        With the control variate they scatter less.
        """
        rng = np.random.default_rng(0)
        w = rng.exponential(size=(2000, 50))
        values = w + 0.3 * rng.standard_normal(w.shape)
        plain = values.mean(axis=1)
        less = np.array([controlled(v, by, 1.0).mean() for v, by in zip(values, w, strict=True)])
        assert less.mean() == pytest.approx(1, abs=0.01)
        assert less.std() < 0.5 * plain.std()

    def test_exponents_are_checked(self, pair):
        with pytest.raises(InputError, match="between 0 and 1, got 2"):
            transcal(pair[0], np.ones(len(pair[0])), pair[1].logits, exponent=2)


class TestOracle:
    @pytest.mark.parametrize("seed", [0, 1, 7])
    def test_no_temperature_has_a_lower_ece(self, seed):
        """At seed 7 the minimum is a gap between two jumps, which a coarse grid misses by 0.012."""
        rng = np.random.default_rng(seed)
        z, y = 4 * rng.standard_normal((80, 5)), rng.integers(0, 5, 80)
        y = np.where(rng.random(80) < 0.6, z.argmax(axis=1), y)
        best = oracle(z, y, by="ece")
        ours = ece(Outcomes.from_logits(best(z), y))
        grid = np.exp(np.linspace(np.log(0.05), np.log(100), 4001))
        assert ours <= min(ece(Outcomes.from_logits(z / t, y)) for t in grid) + 1e-6
        stalled = oracle(z, y, by="ece", reference=True)
        assert ours <= ece(Outcomes.from_logits(stalled(z), y)) + 1e-12

    def test_by_nll_it_is_temperature_scaling(self, pair):
        target = pair[1]
        assert oracle(target.logits, target.labels).scaling == fit_temperature(
            target.logits, target.labels
        )

    def test_bins_are_passed_on(self, pair):
        target = pair[1]
        one = oracle(target.logits, target.labels, by="ece", bins=1)
        assert ece(Outcomes.from_logits(one(target.logits), target.labels), bins=1) < 1e-5

    def test_mistakes(self):
        with pytest.raises(InputError, match="by 'nll' or 'ece', got 'brier'"):
            oracle([[1.0, 0.0]], [0], by="brier")  # type: ignore[arg-type]


class TestEnsemble:
    def test_mean_probabilities(self):
        logits = np.random.default_rng(0).standard_normal((3, 10, 4))
        together = ensemble(list(logits))
        np.testing.assert_allclose(softmax(together), np.mean([softmax(z) for z in logits], axis=0))
        np.testing.assert_allclose(logsumexp(together, axis=1), 0, atol=1e-12)

    def test_mean_logits(self):
        np.testing.assert_array_equal(
            ensemble([[[1.0, 0.0]], [[3.0, 4.0]]], mean="logits"), [[2.0, 2.0]]
        )

    def test_equal_members_change_nothing(self):
        logits = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
        np.testing.assert_allclose(softmax(ensemble([logits] * 5)), softmax(logits), rtol=1e-5)

    @pytest.mark.parametrize(
        "members", [[], [np.zeros((2, 2))], [np.zeros((2, 2)), np.zeros((2, 3))]]
    )
    def test_mistakes(self, members):
        with pytest.raises(InputError, match="two members or more, all of one shape"):
            ensemble(members)

    def test_an_unknown_mean(self):
        with pytest.raises(InputError, match="'probabilities' or 'logits', got 'median'"):
            ensemble([np.zeros((2, 2))] * 2, mean="median")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [vectorscal, matrixscal])
def test_a_chosen_penalty_keeps_few_rows_from_being_overfitted(method):
    """30 classes and 150 rows whose logits are twice too large.

    TempScal is right, and ridge stays close to it.
    """
    rng = np.random.default_rng(0)
    z = 2 * rng.standard_normal((1150, 30))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    source, target = Labelled(2 * z[:150], labels[:150]), Labelled(2 * z[150:], labels[150:])

    def error(calibration):
        return ece(Outcomes.from_logits(calibration(target.logits), target.labels))

    ridge = method(source)
    assert ridge.settings["penalty"] > 0
    assert error(ridge) < error(tempscal(source)) + 0.03
    assert error(ridge) + 0.05 < error(method(source, penalty=0.0))


def test_the_released_search_of_cpcs_passes_negative_temperatures():
    """A model that is always right.

    The search goes below zero on its way, where the score is high but finite.
    """
    logits = 300 * np.random.default_rng(1).normal(size=(40, 5))
    found = cpcs(Labelled(logits, logits.argmax(axis=1)), np.ones(40), reference=True)
    assert found.temperature == pytest.approx(0.05)
