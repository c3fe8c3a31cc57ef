from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pseudocal.lab.adapt import losses
from pseudocal.lab.adapt.pseudo_labels import (
    cluster_labels,
    moved_centroids,
    neighbour_labels,
    sharpened,
)

# Values computed by the methods' published code, on logits s * sin(1.3 i + 0.7 j + 0.11 i j +
# phase).


def wave(scale: float, phase: float = 0.0, rows: int = 12, columns: int = 5) -> Tensor:
    i, j = (
        torch.arange(rows, dtype=torch.float64)[:, None],
        torch.arange(columns, dtype=torch.float64),
    )
    return scale * torch.sin(1.3 * i + 0.7 * j + 0.11 * i * j + phase)


GOLDEN: list[tuple[Callable[[Tensor], Tensor], float]] = [
    (losses.entropy, 0.8695817271149767),
    (lambda z: losses.mcc(z, temperature=2.5), 0.6998773745428783),
    (losses.mcc, 0.5043873113859514),
    (lambda z: losses.mcc(z, temperature=3.0), 0.7252737441335543),
    (losses.bnm, -1.0323122710460333),
    (losses.bnm_atdoc, -0.9618001716942159),
    (losses.bnm_fast, -1.0861044101223323),
    (losses.information_maximisation, -0.7342548771046041),
    (losses.class_balance, 1.6148575525126667),
    (lambda z: losses.discrepancy(z, wave(3, 0.4)), 0.09917451357295398),
]


@pytest.mark.parametrize(("loss", "expected"), GOLDEN)
def test_golden_values(loss: Callable[[Tensor], Tensor], expected: float) -> None:
    assert loss(wave(3)).item() == pytest.approx(expected, abs=1e-12)


def test_golden_adversarial_losses() -> None:
    judged = 0.1 * torch.arange(12, dtype=torch.float64) - 0.5
    weights = losses.confidence_weights(wave(3).softmax(dim=1))
    ones = torch.ones(6, dtype=torch.float64)
    official = losses.per_domain(weights[:6], weights[6:])
    assert official[0][0].item() == pytest.approx(0.07464429211285611, abs=1e-8)
    for normalised, expected in (
        (official, 0.856128713394776),
        (losses.over_batch(weights[:6], weights[6:]), 0.8560603391560243),
        (losses.per_domain(ones, ones), 0.8582167626711108),
    ):
        assert losses.domain_confusion(judged[:6], judged[6:], *normalised).item() == pytest.approx(
            expected, abs=1e-8
        )


def test_stepwise_norm_has_a_constant_value_and_a_constant_pull() -> None:
    features = wave(2, columns=8).requires_grad_()
    assert features.norm(dim=1).mean().item() == pytest.approx(3.9986997501705197)
    loss = losses.stepwise_norm(features, step=0.3)
    assert loss.item() == pytest.approx(0.09)
    loss.backward()
    pull = -2 * 0.3 * features / features.norm(dim=1, keepdim=True) / 12
    torch.testing.assert_close(features.grad, pull.detach())


def _fixed(z: Tensor) -> Tensor:
    return losses.confidence_weights(z.detach().softmax(dim=1))


FIXED = _fixed(wave(1))
GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "cross entropy": lambda z: losses.cross_entropy(z, torch.arange(12) % 5, smoothing=0.1),
    "weighted cross entropy": lambda z: losses.cross_entropy(
        z, torch.arange(12) % 5, weights=FIXED
    ),
    "entropy": losses.entropy,
    "mcc": lambda z: losses.mcc(z, temperature=2.5, weights=FIXED),
    "bnm": losses.bnm,
    "bnm atdoc": losses.bnm_atdoc,
    "bnm fast": losses.bnm_fast,
    "information maximisation": losses.information_maximisation,
    "its first half": lambda z: losses.information_maximisation(z, diversity=False),
    "discrepancy": lambda z: losses.discrepancy(z, wave(3, 0.4)),
    "class balance": losses.class_balance,
    "distillation": lambda z: losses.distillation(z, wave(2, 0.3).softmax(dim=1)),
    "confusion": lambda z: losses.domain_confusion(z[:6, 0], z[6:, 0], FIXED[:6], FIXED[6:]),
    "confidence": lambda z: losses.confidence_weights(z.softmax(dim=1)).sum(),
    "multilinear": lambda z: losses.multilinear(wave(1).softmax(dim=1), z),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    assert torch.autograd.gradcheck(GRADIENTS[name], wave(1).requires_grad_())


def test_mcc_sends_no_gradient_through_its_weights() -> None:
    free, fixed = wave(1).requires_grad_(), wave(1).requires_grad_()
    losses.mcc(free).backward()
    losses.mcc(fixed, weights=_fixed(fixed)).backward()
    torch.testing.assert_close(free.grad, fixed.grad)


def test_entropy_weights_pass_gradients_only_in_the_official_way() -> None:
    weights = wave(1)[:, 0].abs().requires_grad_()
    assert losses.per_domain(weights[:6], weights[6:])[0].requires_grad
    assert not losses.over_batch(weights[:6], weights[6:])[0].requires_grad


def test_smoothed_cross_entropy_by_hand() -> None:
    z = torch.tensor([[math.log(3.0), 0.0]])
    by_hand = -(0.95 * math.log(0.75) + 0.05 * math.log(0.25))  # target (0.95, 0.05)
    assert losses.cross_entropy(z, torch.tensor([0]), smoothing=0.1).item() == pytest.approx(
        by_hand
    )


def test_class_weights_agree_with_torch_when_rows_are_weighted_by_class() -> None:
    z, y, gamma = (
        wave(2),
        torch.arange(12) % 5,
        torch.tensor([2.0, 1.0, 0.5, 0.0, 3.0], dtype=torch.float64),
    )
    expected = torch.nn.functional.cross_entropy(z, y, weight=gamma)
    torch.testing.assert_close(losses.cross_entropy(z, y, weights=gamma[y]), expected)


def test_class_weights_over_mean_and_max() -> None:
    z = wave(3)
    assert losses.class_weights(z).mean().item() == pytest.approx(1)
    assert losses.class_weights(z, over_max=True).max().item() == 1
    sharp = losses.class_weights(z, sharpness=10.0)
    assert sharp.max() > losses.class_weights(z).max()


def test_adaptive_smoothing_keeps_rows_that_sum_to_one() -> None:
    p = wave(2).softmax(dim=1)
    for keep in (1, 2, 5):
        smooth = losses.adaptive_smoothing(p, keep=keep)
        torch.testing.assert_close(smooth.sum(dim=1), torch.ones(12, dtype=torch.float64))
        torch.testing.assert_close(smooth.max(dim=1).values, p.max(dim=1).values)


def test_neighbours_against_a_double_loop() -> None:
    memory, predictions = (
        torch.nn.functional.normalize(wave(1, 0.1, 20, 6), dim=1),
        wave(2, 0.7, 20, 5).softmax(dim=1),
    )
    features, rows = wave(1, 0.2, 12, 6), torch.arange(3, 15)
    labels, weights = neighbour_labels(features, rows, memory=memory, predictions=predictions, k=3)
    for i, own in enumerate(rows.tolist()):
        others = [j for j in range(20) if j != own]
        nearest = sorted(others, key=lambda j: -(features[i] @ memory[j]).item())[:3]
        q = sum(predictions[j] for j in nearest) / 3
        assert labels[i] == q.argmax()
        assert weights[i].item() == pytest.approx(q.max().item())


def test_a_memory_smaller_than_k_still_votes() -> None:
    memory = torch.eye(2)
    labels, _ = neighbour_labels(
        memory, torch.arange(2), memory=memory, predictions=torch.eye(2), k=5
    )
    assert labels.tolist() == [1, 0]  # each has only the other


def test_sharpened_columns_sum_to_one_and_rows_do_not() -> None:
    kept = sharpened(wave(2).softmax(dim=1))
    torch.testing.assert_close(kept.sum(dim=0), torch.ones(5, dtype=torch.float64))
    assert (kept.sum(dim=1) - 1).abs().max() > 0.1


def test_absent_centroids_keep_their_direction() -> None:
    before = wave(1, 0.0, 3, 4)
    after = moved_centroids(before, wave(1, 0.5, 6, 4), torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(after[1:], 0.9 * before[1:])


def test_rare_classes_are_skipped_of_the_clusters() -> None:
    features = torch.tensor([[1.0, 0.0]] * 5 + [[0.0, 1.0]])
    p = torch.tensor([[0.9, 0.1]] * 5 + [[0.1, 0.9]])
    assert cluster_labels(features, p).tolist() == [0, 0, 0, 0, 0, 1]
    assert cluster_labels(features, p, threshold=1).tolist() == [0] * 6
    assert cluster_labels(features, p, threshold=9).tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]  # none left: the predictions
