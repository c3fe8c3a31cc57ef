import numpy as np
import pytest

from pseudocal import passes
from pseudocal.arrays import InputError, softmax
from pseudocal.metrics import Outcomes, accuracy, brier, ece, nll, overconfidence


def columns(outcomes: Outcomes) -> np.ndarray:
    return np.stack([outcomes.confidence, outcomes.correct, outcomes.nll, outcomes.brier])


@pytest.mark.parametrize("classes", [2, 3, 50])
def test_scikit_learn_agrees(draw, classes):
    sklearn = pytest.importorskip("sklearn.metrics")
    logits, labels = draw(500, classes=classes, T=2.0)
    p = softmax(logits)
    for outcomes in (Outcomes.from_logits(logits, labels), Outcomes.from_probabilities(p, labels)):
        assert accuracy(outcomes) == sklearn.accuracy_score(labels, p.argmax(axis=1))
        assert nll(outcomes) == pytest.approx(
            sklearn.log_loss(labels, p, labels=range(classes)), abs=1e-12
        )
        reference = ((p - np.eye(classes)[labels]) ** 2).sum(axis=1).mean()
        assert brier(outcomes) == pytest.approx(reference, abs=1e-12)
        assert brier(outcomes, classes=classes) == pytest.approx(reference / classes, abs=1e-12)


def test_brier_of_scikit_learn(draw):
    reference = pytest.importorskip("sklearn.metrics")
    logits, labels = draw(500, classes=4)
    reference = reference.brier_score_loss(
        labels, softmax(logits), scale_by_half=False, labels=range(4)
    )
    assert brier(Outcomes.from_logits(logits, labels)) == pytest.approx(reference, abs=1e-12)


def test_values_of_the_released_code():
    i, j = np.ogrid[:90, :5]
    logits = 5 * np.sin(1.3 * i + 0.7 * j + 0.11 * i * j + 0.9)
    i, predicted = np.arange(90), logits.argmax(axis=1)
    labels = np.where((5 * i + 2) % 3 == 0, (predicted + 1 + i % 3) % 5, predicted)
    outcomes = Outcomes.from_logits(logits, labels)
    assert ece(outcomes) == pytest.approx(0.16204717755, abs=1e-6)
    assert nll(outcomes) == pytest.approx(2.24503840848, abs=1e-6)
    assert brier(outcomes) == pytest.approx(0.61746955377, abs=1e-6)


def test_one_row_by_hand():
    one = Outcomes.from_logits([[np.log(6), np.log(3), 0.0]], [1])  # probabilities 6/10, 3/10, 1/10
    assert columns(one)[:, 0] == pytest.approx([0.6, 0.0, np.log(10 / 3), 0.36 + 0.49 + 0.01])


def test_logits_too_far_apart_for_exp():
    far = Outcomes.from_logits([[2000.0, 0.0], [0.0, -2000.0]], [1, 0])
    assert far.nll == pytest.approx([2000.0, 0.0])
    assert far.brier == pytest.approx([2.0, 0.0])


def test_an_impossible_class_costs_inf_only_where_it_is_the_label():
    from_logits = Outcomes.from_logits([[0.0, -np.inf, 0.0]] * 2, [1, 0])
    from_probabilities = Outcomes.from_probabilities([[0.5, 0.0, 0.5]] * 2, [1, 0])
    assert columns(from_logits) == pytest.approx(columns(from_probabilities))
    assert from_logits.nll.tolist() == [np.inf, pytest.approx(np.log(2))]
    assert nll(from_logits) == np.inf


def test_of_equal_logits_the_first_is_predicted():
    assert Outcomes.from_logits(np.zeros((3, 3)), [0, 1, 2]).correct.tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_dtype_and_layout(draw, dtype, tmp_path):
    logits, labels = draw(301, classes=7)
    logits = logits.astype(dtype)
    expected = columns(Outcomes.from_logits(logits.astype(np.float64), labels))
    mapped = np.memmap(tmp_path / "logits", dtype=dtype, mode="w+", shape=logits.shape)
    mapped[:] = logits
    for same in (logits, np.asfortranarray(logits), np.repeat(logits, 2, axis=0)[::2], mapped):
        kept = same.copy()
        fine = 2e-6 if dtype == np.float16 else 0  # which is computed in float32
        np.testing.assert_allclose(
            columns(Outcomes.from_logits(same, labels)), expected, rtol=0, atol=fine
        )
        np.testing.assert_array_equal(same, kept)  # the input is not written to


def test_half_precision_probabilities_pass(draw):
    logits, labels = draw(500)
    rounded = Outcomes.from_probabilities(softmax(logits).astype(np.float16), labels)
    np.testing.assert_allclose(
        rounded.confidence, Outcomes.from_logits(logits, labels).confidence, atol=1e-3
    )


@pytest.mark.parametrize("classes", [10, 40])
@pytest.mark.parametrize("by", [34.0, 36.0, -40.0, 1e4])
def test_a_number_added_to_all_logits_of_a_row_does_not_show(classes, by):
    rng = np.random.default_rng(0)
    logits, labels = rng.integers(-8, 8, (50, classes)) * 0.5, rng.integers(0, classes, 50)
    for dtype, tolerance in ((np.float64, 1e-11), (np.float32, 1e-11), (np.float16, 2e-6)):
        if abs(by) < 1e3 or dtype is not np.float16:  # which has no halves up there
            moved = Outcomes.from_logits((logits + by).astype(dtype), labels)
            expected = Outcomes.from_logits(logits.astype(dtype), labels)
            np.testing.assert_allclose(
                columns(moved), columns(expected), rtol=tolerance, atol=tolerance
            )


def test_blocks_do_not_show(draw, monkeypatch):
    logits, labels = draw(100)
    whole = columns(Outcomes.from_logits(logits, labels))
    monkeypatch.setattr(passes, "CHUNK_NUMBERS", 7 * 10)
    np.testing.assert_array_equal(columns(Outcomes.from_logits(logits, labels)), whole)


def test_nothing_of_the_size_of_the_input_is_allocated(draw):
    import tracemalloc

    logits = np.zeros((400_000, 20), dtype=np.float32)  # 32 MB
    labels = np.zeros(len(logits), dtype=np.uint8)
    tracemalloc.start()
    Outcomes.from_logits(logits, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    per_row = 3 * 8 + 1  # what is returned; held twice while the blocks are joined
    assert peak < 2 * per_row * len(logits) + 20 * 8 * passes.CHUNK_NUMBERS


def test_four_parts_make_the_whole(draw):
    logits, labels = draw(100)
    parts = [
        Outcomes.from_logits(logits[i : i + 25], labels[i : i + 25]) for i in range(0, 100, 25)
    ]
    whole = Outcomes.from_logits(logits, labels)
    for joined in (Outcomes.concatenate(parts), parts[0] + parts[1] + parts[2] + parts[3]):
        np.testing.assert_array_equal(columns(joined), columns(whole))


def test_rows_are_picked_by_slice_mask_and_index(overconfident):
    sure = overconfident.confidence > 0.9
    assert accuracy(overconfident[sure]) == overconfident.correct[sure].mean()
    assert len(overconfident[5:15]) == 10
    assert overconfident[np.array([3, 3])].nll.tolist() == [overconfident.nll[3]] * 2
    with pytest.raises(InputError, match=r"at least one row, got shapes \[\(0,\)"):
        overconfident[overconfident.confidence > 2]
    with pytest.raises(InputError, match=r"got shapes \[\(\)"):
        overconfident[3]


def test_a_true_temperature_shows(draw):
    assert abs(overconfidence(Outcomes.from_logits(*draw(20_000, T=1.0)))) < 0.01
    assert overconfidence(Outcomes.from_logits(*draw(20_000, T=2.0))) == pytest.approx(
        0.224, abs=0.01
    )


GOOD = [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("make", "values", "labels", "message"),
    [
        (Outcomes.from_logits, [[0.0, 1.0], [np.nan, 0.0]], [0, 1], "NaN in row 1"),
        (Outcomes.from_logits, [[0.0, 1.0], [np.inf, 0.0]], [0, 1], r"\+inf in row 1"),
        (Outcomes.from_logits, [[-np.inf, -np.inf]], [0], "-inf for every class in row 0"),
        (Outcomes.from_logits, [0.0, 1.0], [0, 1], r"\(n, classes\), got shape \(2,\)"),
        (Outcomes.from_logits, np.zeros((0, 2)), [], "at least one row"),
        (Outcomes.from_logits, GOOD, [0], r"labels of shape \(2,\)"),
        (Outcomes.from_logits, GOOD, [0, 2], "from 0 to 1, got 2 in row 1"),
        (Outcomes.from_logits, GOOD, [0.0, 1.0], "integers, got dtype float64"),
        (
            Outcomes.from_probabilities,
            [[0.5], [0.5]],
            [0, 1],
            r"probabilities of shape \(n, classes\), .* got shape \(2, 1\)",
        ),
        (
            Outcomes.from_probabilities,
            [*GOOD, [3.0, -2.0]],
            [0, 1, 0],
            r"\[ 3. -2.\] in row 2; .* logits",
        ),
        (
            Outcomes.from_probabilities,
            [*GOOD, [7.0, 2.0]],
            [0, 1, 0],
            r"\[7. 2.\] in row 2; .* logits",
        ),
        (Outcomes.from_probabilities, [*GOOD, [0.5, 0.4]], [0, 1, 0], r"\[0.5 0.4\] in row 2$"),
        (Outcomes.from_probabilities, [*GOOD, [np.nan, 0.4]], [0, 1, 0], r"\[nan 0.4\] in row 2$"),
    ],
)
def test_what_cannot_be_right_is_refused(make, values, labels, message):
    with pytest.raises(InputError, match=message):
        make(values, np.array(labels, dtype=None if labels else int))


def test_the_row_is_counted_from_the_start_and_not_from_the_block(monkeypatch):
    monkeypatch.setattr(passes, "CHUNK_NUMBERS", 20)
    logits = np.zeros((100, 2))
    logits[73, 1] = np.nan
    with pytest.raises(InputError, match="NaN in row 73"):
        Outcomes.from_logits(logits, np.zeros(100, dtype=int))
    with pytest.raises(InputError, match=r"\[0.5 nan\] in row 73"):
        Outcomes.from_probabilities(logits + 0.5, np.zeros(100, dtype=int))


def test_nothing_to_join_and_columns_that_differ():
    with pytest.raises(InputError, match="at least one part"):
        Outcomes.concatenate([])
    with pytest.raises(InputError, match="one shape"):
        Outcomes(np.ones(2), np.ones(3, dtype=bool), np.ones(2), np.ones(2))
    with pytest.raises(InputError, match="at least two classes, got 1"):
        brier(Outcomes.from_logits(np.zeros((1, 2)), [0]), classes=1)
