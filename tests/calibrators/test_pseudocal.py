"""PseudoCal as a user meets it: every kind of model and data, any order, any edge."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from pseudocal import Calibration, InputError, PseudoCal, fit_temperature, softmax
from pseudocal.predictors import Checked

CENTRES = np.random.default_rng(5).normal(size=(5, 8)) * 1.2


def model(x):
    """Three times too sure of itself."""
    return 3 * (np.asarray(x) @ CENTRES.T - 0.5 * (CENTRES**2).sum(axis=1))


def target(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.choice(5, n, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    return (
        CENTRES[classes] + rng.normal(size=(n, 8)) * np.array([0.6, 0.8, 1, 1.4, 2])[classes, None]
    )


def batches(x, n=64):
    return [x[i : i + n] for i in range(0, len(x), n)]


def distance(one: Calibration, other: Calibration) -> float:
    """How many standard errors of their difference two temperatures lie apart."""
    return abs(math.log(one.temperature / other.temperature)) / math.hypot(
        one.scaling.log_se, other.scaling.log_se
    )


def test_is_algorithm_one_of_the_paper():
    """Written out as the paper has it: permute, keep the pairs that differ, mix, fit."""
    x = target(4000)
    rng = np.random.default_rng(1)
    partner = rng.permutation(4000)
    pseudo = model(x).argmax(axis=1)
    keep = pseudo != pseudo[partner]
    mixed = 0.65 * x[keep] + 0.35 * x[partner][keep]
    by_hand = fit_temperature(model(mixed), pseudo[keep])
    ours = PseudoCal().fit(model, x)
    gap = math.log(ours.temperature / by_hand.temperature)
    assert abs(gap) < 3 * math.hypot(ours.scaling.log_se, by_hand.log_se)
    assert ours.counts == {
        "pairs": 4000,
        "mixup_samples": ours.scaling.rows,
        "forward_passes": 4000 + ours.scaling.rows,
    }


def test_same_seed_same_digits_and_another_seed_another_answer():
    x = target()
    assert PseudoCal(seed=3).fit(model, x).scaling == PseudoCal(seed=3).fit(model, x).scaling
    assert PseudoCal(seed=3).fit(model, x).scaling != PseudoCal(seed=4).fit(model, x).scaling
    assert PseudoCal().fit(model, batches(x)).scaling == PseudoCal().fit(model, batches(x)).scaling


@pytest.mark.parametrize("key", ["class", "confidence"])
def test_the_order_of_a_stream_does_not_matter(key):
    gaps = []
    for seed in range(8):
        x = target(seed=seed)
        logits = model(x)
        order = np.argsort(
            logits.argmax(axis=1) if key == "class" else logits.max(axis=1), kind="stable"
        )
        shuffled = PseudoCal(seed=seed).fit(model, batches(x))
        gaps.append(distance(shuffled, PseudoCal(seed=seed).fit(model, batches(x[order]))))
    assert max(gaps) < 3
    assert np.mean(gaps) < 1.3  # 0.8 is expected of two fair estimates


def test_the_order_does_matter_to_pairs_within_a_batch():
    """What the buffer is for.

    Sorted batches hold hardly any pair that differs, and not a fair sample of them.
    """
    gaps, fractions = [], []
    for seed in range(8):
        x = target(seed=seed)
        fair = PseudoCal(seed=seed).fit(model, x)
        by_class = x[np.argsort(model(x).argmax(axis=1), kind="stable")]
        sorted_ = PseudoCal(seed=seed, pairing="batch").fit(model, batches(by_class))
        fractions.append(sorted_.counts["mixup_samples"] / fair.counts["mixup_samples"])
        gaps.append(math.log(sorted_.temperature / fair.temperature) / fair.scaling.log_se)
        assert (
            distance(PseudoCal(seed=seed, pairing="batch").fit(model, batches(x)), fair) < 3
        )  # as it comes: fine
    assert max(fractions) < 0.1
    assert np.mean(np.abs(gaps)) > 2  # 0.8 if it did not matter


def test_memory_bounds_the_sample_and_the_error_says_what_it_costs():
    x = target(20_000)
    full, small = PseudoCal().fit(model, x), PseudoCal(memory=2**16).fit(model, x)
    assert small.counts["mixup_samples"] == full.counts["mixup_samples"] == full.scaling.rows
    assert small.scaling.rows * (5 * 8 + 24) <= 2**16
    assert small.scaling.log_se > 2 * full.scaling.log_se
    assert distance(small, full) < 3


def test_epochs_add_pairs():
    x = target(500)
    once = PseudoCal(epochs=1).fit(model, x)
    thrice = PseudoCal(epochs=3).fit(model, x)
    assert thrice.counts["pairs"] == 1500
    assert thrice.scaling.rows > 2 * once.scaling.rows
    assert thrice.counts["forward_passes"] == 500 + thrice.counts["mixup_samples"]
    streamed = PseudoCal(epochs=3).fit(model, iter(batches(x)))  # one pass over the data is enough
    assert streamed.counts["pairs"] == 1500
    assert distance(streamed, once) < 3


def test_the_pairs_of_a_small_array_do_not_decide_the_temperature():
    """Over 150 seeds, one pairing of 150 inputs moves T by 8.7%, seven pairings by 3.6%."""
    x = target(150)

    def spread(method: PseudoCal) -> float:
        logs = [
            np.log(replace(method, seed=seed).fit(model, x, batch_size=size).temperature)
            for seed in range(12)
            for size in (32, 128)
        ]
        return float(np.std(logs))

    assert spread(PseudoCal()) < 0.05
    assert spread(PseudoCal(epochs=1)) > 1.4 * spread(PseudoCal())


def test_only_small_arrays_are_mixed_more_than_once():
    for n, pairs in ((20, 320), (300, 1200), (1000, 1000), (1500, 1500)):
        found = PseudoCal().fit(model, target(n))
        assert found.counts["pairs"] == pairs
        assert found.settings["epochs"] == pairs // n
    assert PseudoCal(epochs=1).fit(model, target(300)).counts["pairs"] == 300
    assert PseudoCal().fit(model, batches(target(300))).settings["epochs"] == 1  # size not known
    known = list(PseudoCal().steps(model, batches(target(300)), total=300))
    assert sum(step.pairs for step in known) == 1200
    block = list(PseudoCal().steps(model, target(300), part=0))
    assert sum(step.pairs for step in block) == 300


def test_the_same_inputs_again_are_no_new_evidence():
    """The interval holds the temperature of the population, with one epoch as with many."""
    truth = PseudoCal().fit(model, target(200_000, seed=99), batch_size=4096).temperature
    for epochs in (1, 5):
        intervals = [
            PseudoCal(epochs=epochs, seed=s).fit(model, target(300, seed=s)).interval
            for s in range(100)
        ]
        assert (
            sum(low < truth < high for low, high in intervals) >= 89
        )  # 95 expected, standard deviation 2.2


def test_later_epochs_add_no_degrees_of_freedom():
    evidence = PseudoCal(epochs=4).collect(model, target(300))
    mixup_samples = evidence.mixup_samples.labelled
    alone = fit_temperature(
        mixup_samples.logits, mixup_samples.labels, weights=mixup_samples.weights
    )
    assert evidence.temperature().effective_rows == alone.effective_rows / 4


def test_epochs_cannot_reach_a_tolerance_that_the_inputs_do_not_allow():
    few = PseudoCal(tolerance=0.03, epochs=30).fit(model, target(300))
    assert few.scaling.log_se > 0.03
    assert few.counts["pairs"] == 9000


def test_a_strategy_is_written_down():
    from functools import partial

    from pseudocal.mixup import mixup_beta
    from pseudocal.mixup.mixup import mixup

    x = target(300)
    same = PseudoCal(lam=0.8).fit(model, x, strategy=partial(mixup, lam=0.65))
    assert same.temperature == PseudoCal(epochs=1).fit(model, x).temperature
    assert same.settings["strategy"] == "mixup"
    assert same.settings["lam"] is None
    assert PseudoCal().fit(model, x, strategy=mixup_beta).settings["strategy"] == "mixup_beta"


# -----------------------------------------------------------------------------------------------
# the anytime mode


@pytest.mark.parametrize("as_data", [lambda x: x, batches], ids=["array", "stream"])
def test_a_tolerance_stops_as_soon_as_it_is_met(as_data):
    x = target(60_000)
    calibration = PseudoCal(tolerance=0.03).fit(model, as_data(x))
    assert 0.02 < calibration.scaling.log_se < 0.03
    assert calibration.counts["pairs"] < 10_000
    low, high = calibration.interval
    full = PseudoCal().fit(model, x)
    assert low < full.temperature < high


def test_ten_times_the_data_costs_about_the_same():
    passes = [
        PseudoCal(tolerance=0.03).fit(model, target(n)).counts["forward_passes"]
        for n in (10_000, 100_000)
    ]
    assert 0.8 < passes[0] / passes[1] < 1.25


def test_a_tolerance_that_cannot_be_met_reads_everything():
    calibration = PseudoCal(tolerance=1e-6, epochs=1).fit(model, target(500))
    assert calibration.counts["pairs"] == 500


# ------------------------------------------------------------------------------------------ models
# and data


def test_every_kind_of_data_gives_the_same_temperature():
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    x = target().astype(np.float32)
    y = torch.full((len(x),), -1)
    expected = PseudoCal().fit(model, batches(x, 100)).scaling
    loaders = {
        "loader": data.DataLoader(torch.from_numpy(x), batch_size=100),
        "with labels": torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.from_numpy(x), y), batch_size=100
        ),
        "generator": (b for b in batches(x, 100)),
    }
    for name, loader in loaders.items():
        assert PseudoCal().fit(model, loader).temperature == pytest.approx(
            expected.temperature, rel=1e-5
        ), name
    array = PseudoCal().fit(model, x).temperature
    for same in (torch.from_numpy(x), np.asfortranarray(x)):
        assert PseudoCal().fit(model, same).temperature == pytest.approx(array, rel=1e-5)


def test_batches_of_different_sizes():
    x = target(1000)
    uneven = [x[:1], x[1:300], x[300:302], x[302:]]
    assert distance(PseudoCal().fit(model, uneven), PseudoCal().fit(model, x)) < 3


def test_a_torch_module_a_function_and_a_classifier_agree():
    torch = pytest.importorskip("torch")
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = target(1500)
    labels = np.argmax(model(x) + np.random.default_rng(0).gumbel(size=(1500, 5)), axis=1)
    classifier = linear_model.LogisticRegression(max_iter=500).fit(x, labels)
    linear = torch.nn.Linear(8, 5)
    linear.weight.data = torch.tensor(classifier.coef_, dtype=torch.float32)
    linear.bias.data = torch.tensor(classifier.intercept_, dtype=torch.float32)
    expected = (
        PseudoCal().fit(lambda x: x @ classifier.coef_.T + classifier.intercept_, x).temperature
    )
    assert PseudoCal().fit(classifier, x).temperature == pytest.approx(expected, rel=1e-5)
    assert PseudoCal().fit(linear, x.astype(np.float32)).temperature == pytest.approx(
        expected, rel=1e-4
    )
    assert PseudoCal().fit(linear, x).temperature == pytest.approx(
        expected, rel=1e-4
    )  # float64 inputs


def test_frames_and_sparse_matrices_serve_classifiers():
    pandas = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = target(800)
    names = [f"x{i}" for i in range(8)]
    labels = model(x).argmax(axis=1)
    framed = linear_model.LogisticRegression(max_iter=500).fit(
        pandas.DataFrame(x, columns=names), labels
    )
    plain = linear_model.LogisticRegression(max_iter=500).fit(x, labels)
    expected = PseudoCal().fit(plain, x).temperature
    assert PseudoCal().fit(framed, pandas.DataFrame(x, columns=names)).temperature == pytest.approx(
        expected, rel=1e-6
    )
    assert PseudoCal().fit(plain, scipy.sparse.csr_matrix(x)).temperature == pytest.approx(
        expected, rel=1e-6
    )


def test_polars_frames_give_what_arrays_give():
    polars = pytest.importorskip("polars")
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = target(800)
    labels = model(x).argmax(axis=1)
    names = [f"x{i}" for i in range(8)]
    plain = linear_model.LogisticRegression(max_iter=500).fit(x, labels)
    framed = linear_model.LogisticRegression(max_iter=500)
    framed.fit(polars.DataFrame(x, schema=names), labels)
    found = PseudoCal().fit(framed, polars.DataFrame(x, schema=names))
    assert found.temperature == pytest.approx(PseudoCal().fit(plain, x).temperature, rel=1e-6)


def test_a_black_box_of_probabilities_is_served_by_its_logarithm():
    x = target()
    with pytest.raises(InputError, match=r"np\.log"):
        PseudoCal().fit(lambda x: softmax(model(x)), x)
    right = PseudoCal().fit(lambda x: np.log(softmax(model(x))), x)
    assert right.temperature == pytest.approx(PseudoCal().fit(model, x).temperature, rel=1e-6)


def test_one_logit_said_to_be_binary_is_two_columns():
    x = target()
    two = PseudoCal().fit(lambda x: model(x)[:, :2], x).temperature
    one = PseudoCal(binary=True).fit(lambda x: model(x)[:, 1] - model(x)[:, 0], x).temperature
    assert one == pytest.approx(two, rel=1e-6)
    with pytest.raises(InputError, match="binary_logits"):
        PseudoCal().fit(lambda x: model(x)[:, :1], x)
    with pytest.raises(InputError, match="several independent sigmoids"):
        PseudoCal(binary=True).fit(model, x)


# --------------------------------------------------------------------------------------------------- the edges


@pytest.mark.parametrize("data", [[], np.zeros((0, 8)), np.zeros((1, 8)), [np.zeros((1, 8))]])
def test_too_little_data(data):
    with pytest.raises(InputError, match=r"expected at least two target inputs to mix, got [01]"):
        PseudoCal().fit(model, data)


def test_a_model_that_always_says_the_same():
    with pytest.raises(InputError, match="one predicted class for all 40"):
        PseudoCal().fit(lambda x: np.tile([2.0, 0.0], (len(x), 1)), np.zeros((40, 2)))


def test_two_rows_are_enough_for_a_wide_interval():
    inputs = np.array([[1.0, 0.0], [0.0, 3.0]])
    low, high = PseudoCal(estimator="mixup").fit(lambda x: x, inputs).interval
    assert high / low > 4


def test_fewer_rows_than_classes():
    x = np.random.default_rng(0).normal(size=(30, 200))
    calibration = PseudoCal(epochs=1).fit(lambda x: x, x)
    assert 0 < calibration.scaling.rows <= 30
    assert calibration.temperature > 0


def test_a_model_that_raises_half_way():
    calls = []

    def fragile(x):
        calls.append(len(x))
        if len(calls) > 4:
            raise RuntimeError("boom")
        return model(x)

    with pytest.raises(RuntimeError, match="boom") as error:
        PseudoCal().fit(fragile, batches(target()))
    assert "pseudocal: while the model predicted a batch" in error.value.__notes__[0]


def test_a_dataset_is_no_loader():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="wrap it in a DataLoader"):
        PseudoCal().fit(model, torch.utils.data.TensorDataset(torch.zeros(8, 8)))


def test_data_that_cannot_be_read():
    with pytest.raises(InputError, match="an array of inputs or an iterable of batches, got int"):
        PseudoCal().fit(model, 3)
    with pytest.raises(InputError, match="in batches of one"):
        PseudoCal(pairing="batch").fit(model, batches(target(20), 1))
    with pytest.raises(InputError, match=r"numbers, since pairs of them are mixed.*for texts"):
        PseudoCal().fit(lambda x: 9.0 * np.eye(5)[np.arange(len(x)) % 5], np.full((20, 2), "a"))
    with pytest.raises(InputError, match="batch size of at least 2"):
        PseudoCal().fit(model, target(), batch_size=1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lam": 0.5}, "between 0.5 and 1"),
        ({"lam": 1.0}, "between 0.5 and 1"),
        ({"lam": math.nan}, "between 0.5 and 1"),
        ({"labels": "firm"}, "'hard' or 'soft', got 'firm'"),
        ({"pairing": "far"}, "'anywhere' or 'batch', got 'far'"),
        ({"epochs": 0}, "at least one epoch"),
        ({"seed": -1}, "seed of at least 0"),
        ({"memory": 10}, "at least 65536 bytes"),
        ({"tolerance": 0.0}, "positive tolerance"),
    ],
)
def test_settings_are_checked(setting, message):
    with pytest.raises(InputError, match=message):
        PseudoCal(**setting)


def test_nothing_in_fit_takes_labels():
    """Labels cannot leak in: there is no way to hand them over."""
    import inspect

    assert list(inspect.signature(PseudoCal.fit).parameters) == [
        "self",
        "model",
        "data",
        "second_opinion",
        "batch_size",
        "strategy",
        "executor",
    ]
    assert "labels" not in inspect.signature(Checked.__call__).parameters


def test_steps_carry_the_logits_of_second_models_once():
    x = target(100)
    other = lambda x: 2 * model(x)  # noqa: E731
    steps = list(PseudoCal(epochs=2).steps(model, x, second_opinion=[other, model], batch_size=50))
    assert [step.epoch for step in steps] == [0, 1, 0, 1]
    for step in steps[::2]:
        first, second = step.second_logits
        np.testing.assert_array_equal(first, 2 * step.logits)
        np.testing.assert_array_equal(second, step.logits)
    assert [step.second_logits for step in steps[1::2]] == [(), ()]
    alone = next(PseudoCal().steps(model, x))
    assert list(alone.second_logits) == []


def test_fit_is_a_fold_over_steps():
    x = target(1000)
    method = PseudoCal(seed=5)
    evidence, rows = method.empty_evidence(), []
    for step in method.steps(model, x):
        rows.append(step.rows)
        assert np.array_equal(step.logits, model(x[step.rows]))
        assert step.passes == len(step.rows) + len(step.mixup_samples)
        assert repr(step).startswith(f"Step({len(step.rows)} inputs, ")  # and no arrays
        evidence.add(step)
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(1000))
    folded, fitted = method.conclude(evidence), method.fit(model, x)
    assert folded.scaling == fitted.scaling
    assert folded.counts == fitted.counts


def test_steps_work_when_they_are_pulled_and_not_before():
    calls = []

    def counted(x):
        calls.append(len(x))
        return model(x)

    steps = PseudoCal().steps(counted, target(1000), batch_size=100)
    assert calls == []
    next(steps)
    assert len(calls) == 2  # one batch, and the mixup samples made from it
