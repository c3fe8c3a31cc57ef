from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from pseudocal import batches
from pseudocal.arrays import InputError
from pseudocal.batches import (
    batches_of,
    blend,
    columns_not_mixed,
    count,
    is_array,
    size,
    stack,
    streamed,
    take,
)

X = np.arange(12.0).reshape(6, 2)


def tensor(x):
    return pytest.importorskip("torch").as_tensor(x)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "array": (lambda: X, np.asarray),
    "tensor": (lambda: tensor(X), np.asarray),
    "frame": (lambda: pytest.importorskip("pandas").DataFrame(X, columns=["a", "b"]), np.asarray),
    "polars": (lambda: pytest.importorskip("polars").DataFrame(X, schema=["a", "b"]), np.asarray),
    "sparse": (lambda: scipy.sparse.csr_matrix(X), lambda x: x.toarray()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_is_indexed_stacked_and_mixed_alike(kind):
    make, back = KINDS[kind]
    x, rows, others = make(), np.array([4, 0]), np.array([1, 5])
    assert count(x) == 6
    assert is_array(x)
    assert size(x) > 0
    assert np.array_equal(back(take(x, rows)), X[rows])
    assert np.array_equal(back(stack([take(x, rows), take(x, others)])), X[[4, 0, 1, 5]])
    mixed = 0.75 * take(x, rows) + 0.25 * take(x, others)
    assert np.array_equal(back(mixed), 0.75 * X[rows] + 0.25 * X[others])


@pytest.mark.parametrize("kind", KINDS)
def test_shuffling_keeps_every_row_once(kind):
    make, back = KINDS[kind]
    batches = [back(batch.inputs) for batch in batches_of(make(), 4, np.random.default_rng(0))]
    assert [len(b) for b in batches] == [3, 3]
    assert sorted(map(tuple, np.concatenate(batches))) == sorted(map(tuple, X))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_texts_in_a_frame_are_not_mixed(package):
    frame = pytest.importorskip(package).DataFrame({"city": ["Oslo", "Rome"]})
    with pytest.raises(InputError, match="inputs that are numbers"):
        blend(frame, np.array([0]), np.array([1]), 0.65)


def test_columns_of_texts_categories_dates_and_missing_values_are_not_mixed():
    pandas = pytest.importorskip("pandas")
    columns = {
        "age": [1, 2],
        "member": [True, False],
        "numbers": pandas.Series([1, 2.5], dtype=object),
        "unknown": pandas.Series([1, None], dtype="Int64"),
        "missing": [1.0, np.nan],
        "city": ["Oslo", None],
        "kind": pandas.Categorical(["a", "b"]),
        "since": pandas.to_datetime(["2026-01-01", "2026-01-02"]),
        "mixed": pandas.Series([1, "x"], dtype=object),
    }
    missing = dict.fromkeys(["unknown", "missing"], "missing values")
    others = dict.fromkeys(["city", "kind", "since", "mixed"], "text, categories or dates")
    assert columns_not_mixed(pandas.DataFrame(columns)) == missing | others
    assert columns_not_mixed(X) == columns_not_mixed([X]) == {}


def test_columns_of_an_array_with_nan_are_not_mixed_as_those_of_a_frame():
    x = np.random.default_rng(0).normal(size=(5, 3))
    x[2, 1] = np.nan
    assert (
        columns_not_mixed(x) == columns_not_mixed(x.astype(np.float32)) == {"1": "missing values"}
    )
    pandas = pytest.importorskip("pandas")
    assert columns_not_mixed(pandas.DataFrame(x)) == {"1": "missing values"}
    assert (
        columns_not_mixed(x[:, None]) == columns_not_mixed(x[:2]) == columns_not_mixed(x[:0]) == {}
    )


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_columns_of_texts_and_missing_values_are_not_mixed_in_any_frame(package):
    columns = {
        "city": ["Oslo", "Rome"],
        "age": [1.0, 2.0],
        "children": [1, 2],
        "height": [1.8, None],
        "weight": [np.nan, 70.0],
    }
    frame = pytest.importorskip(package).DataFrame(columns)
    assert columns_not_mixed(frame) == {
        "city": "text, categories or dates",
        "height": "missing values",
        "weight": "missing values",
    }


def test_other_sparse_formats_are_understood():
    (batch,) = batches_of(scipy.sparse.coo_matrix(X), 10, np.random.default_rng(0))
    assert count(batch.inputs) == 6


def test_labels_are_dropped_unseen():
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(f"labels were looked at: {name}")

    (batch,) = streamed([(X, Untouchable())])
    assert batch.inputs is X


def test_images_of_different_sizes_cannot_be_mixed():
    with pytest.raises(InputError, match=r"one shape, .* got shapes \[\(3, 8, 8\), \(3, 9, 9\)\]"):
        stack([np.zeros((1, 3, 8, 8)), np.zeros((1, 3, 9, 9))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"pixel_values": X}], "got a mapping with .'pixel_values'."),
        (["text", "more"], "arrays or tensors with rows, got str"),
        ([1.0, 2.0], "got float"),
        ([np.float64(1.0)], "got float64"),
    ],
)
def test_what_is_no_batch_is_named(data, message):
    with pytest.raises(InputError, match=message):
        list(streamed(data))


@pytest.mark.parametrize("kind", [np.asarray, tensor])
def test_rows_are_mixed_piece_by_piece_as_they_would_be_at_once(kind, monkeypatch):
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    first, second = np.array([0, 3, 3, 6, 5]), np.array([1, 0, 2, 6, 4])
    monkeypatch.setattr(
        batches, "MIXED_AT_ONCE", 2 * x[0].nbytes
    )  # two rows at a time, the last one alone
    given = kind(x.copy())
    mixed = batches.blend(given, first, second, 0.65)
    assert np.array_equal(
        np.asarray(mixed), np.float32(0.65) * x[first] + np.float32(1 - 0.65) * x[second]
    )
    assert np.array_equal(np.asarray(given), x)
