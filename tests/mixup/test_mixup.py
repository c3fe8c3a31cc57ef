"""Pairs and mixup samples: who is mixed with whom, how often, and what label the mix gets."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.arrays import softmax
from pseudocal.batches import Batch, streamed
from pseudocal.mixup import AnywhereBefore, Pairs, WithinBatch, partners, with_different_classes
from pseudocal.mixup.mixup import mixup
from pseudocal.randomness import Streams

IDENTITY = lambda x: np.asarray(x)  # noqa: E731


def chunks(x, n):
    return [x[i : i + n] for i in range(0, len(x), n)]


def paired(pairing, batches):
    """The pairs of each batch of a stream, whose inputs are its logits."""
    found = []
    for batch in streamed(batches):
        found.append(pairing.of(batch, batch.inputs))
        pairing.keep(batch, batch.inputs)
    return found


def tensor(x):
    return pytest.importorskip("torch").as_tensor(x)


def test_a_mix_by_hand():
    x = np.array([[2.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    mix = mixup(IDENTITY, Pairs.of(x, x[::-1], x, x[::-1], np.array([5.0, 7.0])), lam=0.65)
    assert np.allclose(mix.logits, [[1.3, 1.4, 0], [0.7, 2.6, 0]])
    assert mix.labels.tolist() == [0, 1]  # the first comes out wrong: that is the point
    assert mix.weights.tolist() == [5.0, 7.0]


@pytest.mark.parametrize("kind", [np.asarray, tensor])
def test_mixing_leaves_the_inputs_as_they_were(kind):
    x = kind(np.array([[2.0, 0.0], [0.0, 4.0]]))
    pairs = Pairs.of(x, x[[1, 0]], np.asarray(x), np.asarray(x)[::-1])
    first = mixup(IDENTITY, pairs, lam=0.65).logits
    assert np.array_equal(first, mixup(IDENTITY, pairs, lam=0.65).logits)
    assert np.array_equal(np.asarray(x), [[2.0, 0.0], [0.0, 4.0]])


def test_soft_labels_follow_the_surer_share():
    x = np.array([[0.1, 0.0], [0.0, 9.0]])
    pairs = Pairs.of(x, x[::-1], x, x[::-1])
    assert mixup(IDENTITY, pairs, lam=0.65, labels="hard").labels.tolist() == [0, 1]
    assert mixup(IDENTITY, pairs, lam=0.65, labels="soft").labels.tolist() == [1, 1]
    fractions = 0.65 * softmax(x) + 0.35 * softmax(x[::-1])
    assert fractions.argmax(axis=1).tolist() == [1, 1]


def test_the_second_pass_sees_only_pairs_that_differ():
    seen = []

    def model(x):
        seen.append(len(x))
        return x

    x = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    mixup(model, Pairs.of(x, x[[1, 2, 0]], x, x[[1, 2, 0]]), lam=0.65)
    assert seen == [2]


def test_no_pair_that_differs_costs_no_pass():
    x = np.array([[1.0, 0.0], [2.0, 0.0]])
    mix = mixup(lambda x: pytest.fail("predicted"), Pairs.of(x, x[::-1], x, x[::-1]))
    assert len(mix) == 0


def test_tensors_are_mixed_as_tensors():
    torch = pytest.importorskip("torch")
    x = torch.eye(3)
    mix = mixup(
        lambda x: x.numpy(), Pairs.of(x, x[[1, 2, 0]], x.numpy(), x[[1, 2, 0]].numpy()), lam=0.75
    )
    assert mix.logits.dtype == np.float32
    assert mix.logits[0].tolist() == [0.75, 0.25, 0.0]


def test_within_a_batch_everyone_leads_once_and_follows_once():
    x = np.random.default_rng(0).normal(size=(50, 3))
    for pairs in paired(WithinBatch(Streams(1)), chunks(x, 25)):
        assert sorted(pairs.x[:, 0]) == sorted(pairs.partner[:, 0])
        assert not (pairs.x[:, 0] == pairs.partner[:, 0]).any()
        assert np.array_equal(pairs.logits, pairs.x)
        assert np.array_equal(pairs.partner_logits, pairs.partner)


def test_a_batch_of_one_pairs_with_the_past():
    x = np.arange(20.0).reshape(10, 2)
    anywhere = AnywhereBefore(10**6, np.random.default_rng(0))
    assert [len(pairs) for pairs in paired(anywhere, chunks(x, 1))] == [0] + [1] * 9
    assert [len(pairs) for pairs in paired(WithinBatch(Streams(0)), chunks(x, 1))] == [0] * 10


@pytest.mark.parametrize(
    ("batch", "memory"),
    [pytest.param(4, 10**6, marks=pytest.mark.slow), (7, 10**6), (5, 16 * (2 * 8 + 2 * 8))],
)
def test_anywhere_gives_every_ordered_pair_of_the_stream_the_same_weight(batch, memory):
    """Whatever the batch size, and with room for 16 kept rows as with room for all."""
    n, repeats = 24, 2000
    x = np.arange(2.0 * n).reshape(n, 2)
    total = np.zeros((n, n))
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        for pairs in paired(AnywhereBefore(memory, rng), chunks(x, batch)):
            if len(pairs) == 0:
                continue
            i, j = (pairs.x[:, 0] // 2).astype(int), (pairs.partner[:, 0] // 2).astype(int)
            np.add.at(total, (i, j), pairs.weights)
            assert np.array_equal(pairs.logits, pairs.x)
            assert np.array_equal(pairs.partner_logits, pairs.partner)
    assert (np.diag(total) == 0).all()
    mean = (
        total[~np.eye(n, dtype=bool)] / repeats
    )  # expected 1/2 each: a pair counts once, the lead is a toss
    assert mean.mean() == pytest.approx(0.5, rel=0.01)
    assert np.abs(mean - 0.5).max() < 6 * np.sqrt(
        n / 2 / repeats
    )  # a pair's weight varies by about sqrt(n/2)
    leads = total.sum(axis=1) / repeats
    assert np.abs(leads / leads.mean() - 1).max() < 0.1


def test_rows_kept_as_partners_take_no_more_than_their_memory():
    from pseudocal.mixup.pairs import MOST_PARTNERS, _Past

    past = _Past(memory=100 * (8 * 8 + 4 * 8), rng=np.random.default_rng(0))
    for _ in range(50):
        past.add(Batch(0, np.arange(40), np.zeros((40, 8))), np.zeros((40, 4)), None)
    assert len(past._rows) == 100
    assert past.count((8,)) == 2000
    assert all(row.inputs.base is None or row.inputs.base.nbytes <= 64 for row in past._rows)
    tiny = _Past(memory=10**9, rng=np.random.default_rng(0))
    many = MOST_PARTNERS + 100
    tiny.add(Batch(0, np.arange(many), np.zeros((many, 1))), np.zeros((many, 2)), None)
    assert len(tiny._rows) == MOST_PARTNERS


def test_pairs_share_their_rows_until_they_are_asked_for():
    x = np.eye(3)
    (pairs,) = paired(WithinBatch(Streams(0)), [x])
    assert pairs.inputs is x
    assert with_different_classes(pairs).inputs is x
    assert not np.shares_memory(pairs.x, x)


def test_partners_are_those_of_the_steps():
    x = np.random.default_rng(0).normal(size=(300, 2))
    partner, seen = partners(len(x), batch_size=64, seed=3), np.full(len(x), -1)

    def note(predict, pairs, *, rng):
        seen[pairs.ids[pairs.first]] = pairs.ids[pairs.second]
        return mixup(predict, pairs)

    for step in PseudoCal(seed=3).steps(IDENTITY, x, batch_size=64, strategy=note):
        assert len(step.mixup_samples)
    assert np.array_equal(seen, partner)
