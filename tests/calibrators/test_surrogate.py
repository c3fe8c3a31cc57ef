"""A surrogate as the second opinion.

Its classes, what is kept of a pass, and that it is never enough to apply.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.linalg import solve

from pseudocal import InputError, PseudoCal, Surrogate
from pseudocal.arrays import Labelled
from pseudocal.calibrators import ReasonCode
from pseudocal.calibrators.blocks import row_blocks
from pseudocal.calibrators.executors import BlockWork
from pseudocal.calibrators.folded_ridge import (
    ROWS_TO_STRENGTH,
    SURROGATE_FOLDS,
    FoldedRidge,
    UnitRows,
)
from pseudocal.calibrators.surrogate import (
    SurrogateBatch,
    SurrogateSample,
    feature_rows,
    logit_features,
)
from pseudocal.distributed import Deferred, LocalExecutor
from pseudocal.randomness import Streams, row_keys


def clusters(n=1200, classes=6, width=12, seed=0):
    """Inputs around one centre for each class, and a model that knows the centres roughly."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, width))
    labels = rng.integers(classes, size=n)
    x = centres[labels] + 0.8 * rng.normal(size=(n, width))
    weights = 3 * (centres + 0.5 * rng.normal(size=centres.shape)).T
    return x, labels, lambda x: np.asarray(x) @ weights


def kernel_ridge(x, labels, folds, classes, z, skipped):
    """The recipe once more, in the dual and a row at a time.

    Rows that are centred, then at unit length.
    """
    mean = x.mean(axis=0)
    a, b = ((each - mean) / np.linalg.norm(each - mean, axis=1, keepdims=True) for each in (x, z))
    found = []
    for row, out in zip(b, skipped, strict=True):
        kept = ~np.isin(folds, out)
        kernel = a[kept] @ a[kept].T
        kernel += kept.sum() / ROWS_TO_STRENGTH * np.eye(len(kernel))
        found.append((row @ a[kept].T @ solve(kernel, np.eye(classes)[labels[kept]])).argmax())
    return np.array(found)


@pytest.mark.parametrize("width", [7, 200])  # more rows than features, and fewer
def test_surrogates_are_the_kernel_ridge_that_was_measured(width):
    rng = np.random.default_rng(1)
    labels, folds = rng.integers(4, size=90), rng.integers(SURROGATE_FOLDS, size=90)
    x = rng.normal(size=(4, width))[labels] + 0.7 * rng.normal(size=(90, width)) + 5
    z, skipped = rng.normal(size=(30, width)) + 5, rng.integers(SURROGATE_FOLDS, size=(30, 2))
    at = np.arange(90)
    ridge = FoldedRidge.fitted(UnitRows.fitted(x, at), x, labels, at, folds, 4)
    assert np.array_equal(
        ridge.classes(x, at, folds[:, None]), kernel_ridge(x, labels, folds, 4, x, folds[:, None])
    )
    assert np.array_equal(
        ridge.classes(z, np.arange(30), skipped), kernel_ridge(x, labels, folds, 4, z, skipped)
    )


def test_columns_of_a_table_are_standardised():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)) * [1.0, 1000.0, 0.0]
    scaled = (x - x.mean(axis=0)) / [*x.std(axis=0)[:2], 1.0]
    expected = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    np.testing.assert_allclose(UnitRows.fitted(x, np.arange(50), scaled=True).of(x), expected)


def test_counts_by_hand():
    """Two points of a class in each fold but one odd one.

    A mixup sample called like neither parent, and one like a parent.
    """
    keys = np.sort(row_keys(Streams(0), np.arange(400)))
    own = np.arange(400) % 3
    features = 10 * np.eye(3, dtype=np.float32)[own]
    features[0] = features[1]  # the model calls it 0, the features say 1
    parents = np.array([[keys[3], keys[4]], [keys[0], keys[6]], [keys[3], keys[4]]])
    mixed = 10 * np.eye(3, dtype=np.float32)[[2, 1, 0]]
    predicted = np.array(
        [2, 1, 2]
    )  # shared; excluded, since a surrogate calls a parent 1; not shared
    batch_sample = SurrogateBatch(
        Labelled(features, own, groups=keys),
        Labelled(mixed, predicted, groups=parents),
        Surrogate(len),
    )
    surrogate_samples = SurrogateSample.of(batch_sample)
    surrogate_samples.add(batch_sample)
    opinion = surrogate_samples.opinion(3)
    assert opinion.inputs.tolist() == [134, 133, 133]
    assert opinion.agreed.tolist() == [133, 133, 133]
    assert (opinion.mistakes.tolist(), opinion.shared.tolist()) == ([0, 0, 2], [0, 0, 1])


def test_a_surrogate_estimates_the_accuracy_of_a_model_that_is_right_on_most_inputs():
    """The surrogate has other features of the same inputs, whose noise is not the model's."""
    x, labels, model = clusters()
    other = 4 * np.eye(6)[labels] + np.random.default_rng(1).normal(size=(1200, 6))
    both = np.concatenate([x, other], axis=1)
    trust = (
        PseudoCal()
        .fit(lambda x: model(x[:, :12]), both, second_opinion=Surrogate(lambda x: x[:, 12:]))
        .trust
    )
    assert trust.estimated_accuracy.value == pytest.approx(
        (model(x).argmax(axis=1) == labels).mean(), abs=0.06
    )
    assert set(trust.temperatures) == {"mixup", "surrogate"}
    assert trust.verdict == "caution"


def test_a_surrogate_is_blind_to_a_group_with_a_wrong_name_and_its_estimate_is_not_applied():
    """A model that calls all of one class another is as predictable as one that is right.

    The interval knows.
    """
    x, labels, model = clusters()
    renamed = [0, 2, 1, 3, 4, 5]
    wrong = PseudoCal().fit(lambda x: model(x)[:, renamed], x, second_opinion=Surrogate()).trust
    right = PseudoCal().fit(model, x, second_opinion=Surrogate()).trust
    assert wrong.estimated_accuracy == right.estimated_accuracy
    accuracy = (model(x)[:, renamed].argmax(axis=1) == labels).mean()
    assert wrong.estimated_accuracy.low < accuracy < wrong.estimated_accuracy.value - 0.2
    assert wrong.verdict == "caution"
    assert ReasonCode.SURROGATE_ONLY in [reason.code for reason in wrong.reasons]


@pytest.mark.parametrize("memory", [2**29, 2**16])  # everything, and a sample
def test_one_block_or_many_give_the_same_opinion(memory):
    x, _, model = clusters(6000)
    surrogate, method = Surrogate(np.tanh, memory=memory), PseudoCal()
    whole = method.collect(model, x, second_opinion=surrogate)
    merged = method.empty_evidence()
    for part in (method.collect(model, x, second_opinion=surrogate).pack(),):
        merged.merge(part)
    in_blocks = method.fit(model, x, second_opinion=surrogate, executor=LocalExecutor())
    at_once = method.conclude(whole)
    assert in_blocks.trust == at_once.trust
    assert method.conclude(merged).trust == at_once.trust
    assert whole.agreements[0].rows < 6000 or memory == 2**29


def test_many_parts_merge_into_the_sample_of_one():
    """Fifty parts, each bounded, keep the rows that one pass keeps, and so give the same classes."""
    rng = np.random.default_rng(0)
    keys, own = row_keys(Streams(0), np.arange(3000)), rng.integers(4, size=3000)
    features = (np.eye(4)[own] + 0.3 * rng.normal(size=(3000, 4))).astype(np.float32)
    parents = np.stack([keys, np.roll(keys, 1)], axis=1)
    surrogate = Surrogate(len, memory=2**16)

    def lessons_of(rows):
        part = SurrogateBatch(
            Labelled(features[rows], own[rows], groups=keys[rows]),
            Labelled(features[rows][:, ::-1].copy(), (own[rows] + 1) % 4, groups=parents[rows]),
            surrogate,
        )
        surrogate_samples = SurrogateSample.of(part)
        surrogate_samples.add(part)
        return surrogate_samples

    whole, merged = lessons_of(np.arange(3000)), lessons_of(np.arange(60))
    for start in range(60, 3000, 60):
        merged.merge(lessons_of(np.arange(start, start + 60)).pack())
    one, fifty = whole.opinion(4), merged.opinion(4)
    assert 0 < one.inputs.sum() < 3000
    for name in ("inputs", "agreed", "mistakes", "shared"):
        assert np.array_equal(getattr(one, name), getattr(fifty, name)), name


def encoder():
    return np.tanh


def tripled():
    return lambda x: 3 * x


def test_a_surrogate_is_sent_to_workers_which_open_its_encoder_once():
    x = clusters(400, classes=12)[0]
    work = BlockWork(
        PseudoCal(pairing="batch"),
        (Deferred(tripled), [Surrogate(Deferred(encoder))]),
        x,
        total=400,
    )
    on_worker = pickle.loads(pickle.dumps(work)).start()
    [block] = row_blocks(Streams(0).order().permutation(400), 128)
    packed, _ = on_worker(0, block)
    merged = PseudoCal().empty_evidence()
    merged.merge(packed)
    here = PseudoCal().collect(lambda x: 3 * x, x, second_opinion=Surrogate(np.tanh))
    said = [
        (found.rate, found.shared, found.mistakes)
        for found in (*merged.agreements, *here.agreements)
    ]
    assert said[0] == said[1]
    assert PseudoCal().conclude(merged).trust.verdict != "apply"


def test_each_input_and_each_suspect_is_encoded_once():
    x, _, model = clusters(600)
    seen = []
    calibration = PseudoCal(epochs=2).fit(
        model, x, second_opinion=Surrogate(lambda x: seen.append(len(x)) or x)
    )
    alone = PseudoCal(epochs=2).fit(model, x)
    mixed = sum(seen) - 600
    assert 0 < mixed < 600
    assert calibration.counts["forward_passes"] == alone.counts["forward_passes"] + 600 + mixed


def test_a_second_model_brings_a_surrogate_of_its_logits():
    """The same as one that is given those logits as features, at no further pass over the inputs."""
    x, _, model = clusters()
    second = clusters(seed=0)[2]

    def other(x):
        return second(x + 0.2)

    seen = []
    with_model = PseudoCal().collect(
        model, x, second_opinion=lambda x: seen.append(len(x)) or other(x)
    )
    scale = logit_features(other(x)).std(axis=0)
    given = PseudoCal().collect(
        model,
        x,
        second_opinion=[other, Surrogate(lambda x: logit_features(other(x)) / scale)],
    )
    (_, beside), (_, explicit) = with_model.agreements, given.agreements
    assert beside.surrogate
    assert (beside.rate, beside.shared) == pytest.approx((explicit.rate, explicit.shared), abs=0.01)
    assert sum(seen) == given.forward_passes - with_model.forward_passes


def test_a_model_that_is_not_used_beside_a_surrogate_is_spoken_of():
    x, _, model = clusters(500)
    method = PseudoCal(epochs=1)
    alone = method.fit(model, x, second_opinion=Surrogate()).trust
    trust = method.fit(model, x, second_opinion=[model, Surrogate()]).trust
    assert trust.reasons[0].code == ReasonCode.SECOND_MODEL_TOO_SIMILAR
    assert trust.reasons[0].numbers["shared"] == pytest.approx(0.96, abs=0.005)
    assert trust.reasons[1:] == alone.reasons
    assert trust.estimated_accuracy == alone.estimated_accuracy
    assert trust.verdict == "caution"


def test_nothing_is_taken_from_features_that_say_nothing():
    x, _, model = clusters(500)
    alone = PseudoCal().fit(model, x)
    calibration = PseudoCal().fit(model, x, second_opinion=Surrogate(np.zeros_like))
    assert calibration.trust.reasons[0].code == ReasonCode.SURROGATE_AT_CHANCE
    assert calibration.trust.verdict == "caution"
    assert calibration.trust.estimated_accuracy == alone.trust.estimated_accuracy
    assert calibration.temperature == alone.temperature


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Surrogate, "got the class Surrogate"),
        (Surrogate("encoder.onnx"), "got 'encoder.onnx': open a file with"),
    ],
)
def test_slips_are_explained(second, said):
    x, _, model = clusters(100)
    with pytest.raises(InputError, match=said):
        PseudoCal().fit(model, x, second_opinion=second)


@pytest.mark.parametrize("estimator", ["auto", "mixup", "agreement"])
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_never_apply(estimator, scale):
    x, _, model = clusters(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibration = PseudoCal(estimator=estimator).fit(
            lambda x: scale * model(x), x, second_opinion=Surrogate()
        )
    assert calibration.trust.verdict in ("caution", "do not apply")


def test_a_sequence_of_images_and_tokens_is_averaged_and_an_encoder_can_be_anything():
    torch = pytest.importorskip("torch")
    from sklearn.preprocessing import StandardScaler

    x, _, model = clusters(400)
    scaler = StandardScaler().fit(x)
    linear = torch.nn.Linear(12, 5).double()
    encoders = (scaler, linear, Deferred(lambda: np.tanh), None)
    found = [PseudoCal().fit(model, x, second_opinion=Surrogate(each)).trust for each in encoders]
    assert all("surrogate" in trust.temperatures for trust in found)
    assert feature_rows(torch.ones(2, 5, 3, 3), 2).tolist() == np.ones((2, 5)).tolist()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda x: x[:, 0], "a row of features for each of"),
        (lambda x: x[:-1], "a row of features for each of"),
        (lambda x: np.full((len(x), 3), np.nan), "finite features"),
    ],
)
def test_bad_features_are_refused(features, message):
    x, _, model = clusters(100)
    with pytest.raises(InputError, match=message):
        PseudoCal().fit(model, x, second_opinion=Surrogate(features))


def test_two_surrogates_and_pixels_are_refused():
    x, _, model = clusters(100)
    with pytest.raises(InputError, match="at most one surrogate"):
        PseudoCal().fit(model, x, second_opinion=[Surrogate(), Surrogate(np.tanh)])
    images = np.random.default_rng(0).normal(size=(8, 3, 4, 4))
    with pytest.raises(InputError, match="got a segmentation model"):
        PseudoCal().fit(lambda x: x, images, second_opinion=Surrogate())
    with pytest.raises(InputError, match="memory of at least"):
        Surrogate(memory=1)
